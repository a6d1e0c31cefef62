"""What every command asks of a task, whatever its kind.

A task is one value, which `registry` lists. Its class is its kind, and stands in the folder of the
kind with all that only this kind needs. No code outside of that folder asks of which kind a task
is: it asks the task, by an attribute or a method of `Task`, or takes a module of the folder.

`Task.part` returns such a module by its name. A kind has `experiment`, and those of the others
that mean something for it:

    experiment   load(config, data_dir, path): the run's `training.experiment.Experiment`, or of
                     tasks with a layer its `sequences.layer.LayerExperiment`. Its method
                     evaluate(path, **options) prints the scores of a run's best model, unless
                     there is a command of its own for that; the options are what
                     `trainers.evaluate` makes of the flags in `Task.evaluation_flags`
    exporting    export(path, options): writes a run's best model, as the options, a
                     `tasks.run_folders.ExportOptions`, say; returns the version's folder
    writing      generate(path, prompt, max_length, **sampling): returns a text
    authors      what `trainers.verify` and `trainers.import_weights` need of a task that the
                     authors' code has too; see `language.authors`

The commands import a part when they need it. They know the tasks, which stand in helps and in
errors, without the rest.
"""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from ml_collections import ConfigDict

from keras_trellis.formats.manifest import NOT_STATED
from trainers.kinds.measures import Measure, Metric
from trainers.kinds.search import Space
from trainers.models.fields import Condition, Field, Rule, Values
from trainers.models.heads import HEADS
from trainers.models.layers import LAYERS

STEM = "stem"
"""The group of `config.model` that classifiers of images and models of recordings read."""
TEXT_FIELDS = (
    "head",
    *HEADS,
    "embedding_dropout",
    "embeddings_initializer",
    "untrained_input_id",
    "activation_weight",
    "temporal_weight",
    "auxiliary_every",
    "auxiliary_from",
    "auxiliary_weight",
)
"""The fields of `config.model` that a language model reads, and no other model."""


SCORE = ("score again", "trainers.evaluate {workdir} {data}")
EXPORT = ("export for a server", "trainers.export {workdir} --output=models/{name}")
REPORT = ("a table and curves", "trainers.report {path} --output=reports/{name}")
"""What one does with a finished run, and how: a module with its arguments. In them stand the run's
folder, the flags of that and of the data, and the run's name."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A result of the paper on test data, in the task's measure, under the authors' protocol.

    Attributes:
        name: the paper's name for the model.
        parameters: the number of the model's parameters; None if it is not published.
        value: the result.
    """

    name: str
    parameters: float | None
    value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task: data, a measure, published results and presets.

    Attributes:
        name: the value of `--task`.
        presets: functions that return config values, by the value of `--preset`; the first is the
            default. They give the values that differ from the defaults of `schema`.
        former_presets: the names that presets had in the release before, with those of today. They
            work for one release, and name a run's folder as they did.
        measure: the measure of results.
        data: a description of the data, for model cards.
        licence: what the data's publisher says; nothing here is advice on the law.
        metrics: numbers that are scored beside the measure. They need the whole distribution over
            the tokens, also where the loss needs less. An `OwnTask` has none.
        published: the paper's results.
        quoted: results of other models, which the paper's tables have beside its own.
        sizes: the paper's number of parameters, by preset.
        fields: fields of the config that this task alone has, by their dotted names.
        conditions: when those of its `fields` are read that are not always.
        search: what `trainers.tune` searches.
        baselines: the settings that `trainers.compare` begins with, by layer.
        folds: how many folds of its data the seeds choose among in turn, unless `config.data.fold`
            does; None: the data have none.
        program: the command that trains it.
        folder: the package of its kind, in which `part` looks.
        evaluation: the command that scores its runs; None: `trainers.evaluate` does.
        evaluation_flags: those flags of `trainers.evaluate` that not all kinds have.
        has_layer: whether its model has one of the sequence layers of `config.model`.
        kind_fields: the fields of the config that all tasks of its kind have.
        unread_fields: what of `config.model` its model neither reads nor hands to its layer.
        model_fields: what its model reads itself, so that it may be any layer's.
        reads_files: whether `--data_dir` may name its data.
        takes_workers: whether several workers can train it together.
        has_answers: whether a run can end by the share of its right answers.
        reproduction: the module by which `trainers.reproduce` trains it; None: it does not.
        next_commands: what one does with its finished runs, as `SCORE`.
        passed: what the curves of `trainers.report` count.
    """

    program: ClassVar[str]
    folder: ClassVar[str]
    evaluation: ClassVar[str | None] = None
    evaluation_flags: ClassVar[tuple[str, ...]] = ()
    has_layer: ClassVar[bool] = True
    kind_fields: ClassVar[Mapping[str, Field]] = {}
    unread_fields: ClassVar[tuple[str, ...]] = (*TEXT_FIELDS, STEM)
    model_fields: ClassVar[tuple[str, ...]] = ()
    reads_files: ClassVar[bool] = True
    takes_workers: ClassVar[bool] = False
    has_answers: ClassVar[bool] = False
    reproduction: ClassVar[str | None] = None
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = (SCORE, REPORT)
    passed: ClassVar[str] = "epoch"

    name: str
    presets: Mapping[str, Callable[[], dict]]
    former_presets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    measure: Measure
    data: str = ""
    licence: str = NOT_STATED
    metrics: tuple[Metric, ...] = ()
    published: tuple[Published, ...] = ()
    quoted: tuple[Published, ...] = ()
    sizes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, Field] = dataclasses.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    search: Space = dataclasses.field(default_factory=dict)
    baselines: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    folds: int | None = None

    def part(self, name: str) -> Any:
        """Returns a module of its kind's folder, by one of the names above."""
        return importlib.import_module(f"{self.folder}.{name}")

    def has_part(self, name: str) -> bool:
        """Returns whether its kind has a module of that name."""
        return importlib.util.find_spec(f"{self.folder}.{name}") is not None

    def reproduced(self) -> Any:
        """Returns the module `reproduction`."""
        return importlib.import_module(str(self.reproduction))

    def configured(self, config: Values) -> "Task":
        """Returns the task as a config, nested, has it."""
        del config
        return self

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what the kind refuses of a config's values, by their dotted names."""
        del values
        return iter(())

    def network(self, config: ConfigDict) -> str:
        """Returns in words the network that a config of the task trains."""
        model = config.model
        return LAYERS[model.layer].network(model, self.output_channels(model))

    def output_channels(self, model: ConfigDict) -> int:
        """Returns the channels of the outputs of the layer in the group `model`."""
        return model.output_units or model.units

    def data_facts(self, checksums: Mapping[str, str]) -> dict[str, str]:
        """Returns what a model card says about its data.

        Args:
            checksums: the SHA-256 of each split; empty if the run did not keep them.
        """
        sums = ", ".join(f"{split} {sha256}" for split, sha256 in checksums.items())
        return {
            "Trained on": self.data,
            "Licence of the data": self.licence,
            "SHA-256 of the data": sums or NOT_STATED,
        }

    def format_loss(self, loss: float) -> str:
        """Returns a validation loss in words."""
        return f"loss {loss:.5g}"

    def epoch_length(self, config: Values) -> int:
        """Returns how much of `passed` an epoch of a run is."""
        del config
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask(Task):
    """A task of a command of its own, whose model has no sequence layer.

    Its `fields` are all that its groups `model`, `data` and `evaluation` have, beside
    `data.batch_size`.
    """

    evaluation: ClassVar[str]
    has_layer = False

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused: it has no levels to train in turn."""
        expected = f"() for --task={self.name}, which trains no trellis network"
        yield values["training.depths"], "training.depths", expected
