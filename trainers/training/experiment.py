"""What a run trains and measures, whatever it is; and what all tasks on shuffled examples share."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
from etils import epath
from ml_collections import ConfigDict

from trainers.data import files, shuffling
from trainers.data.sequences import SequenceData
from trainers.training import checkpoints, memory, schedules
from trainers.training.batches import Batches
from trainers.training.workdir import WorkdirError, read_record

if TYPE_CHECKING:  # for names alone, of packages that not every machine has
    from matplotlib import figure

    from trainers.training.trainer import Task

Check = Callable[[], None]
"""Raises if the run must stop; it is called between parts of the work."""

SPLITS = ("validation", "test")  # that are scored
DATA = "data.json"
PROTOCOL = "exact"  # of scores for which there is only one


class Scores(NamedTuple):
    """The scores of a finished run.

    Attributes:
        summary: the scores in words.
        values: numbers by split, protocol and name.
        pictures: figures by file name.
        beside: lines that put the score beside others or explain it, for a person.
    """

    summary: str
    values: dict[str, dict[str, dict[str, Any]]]
    pictures: Mapping[str, figure.Figure] = MappingProxyType({})
    beside: tuple[str, ...] = ()


class Experiment(abc.ABC):
    """Data and a model.

    A subclass loads the data when it is made, and raises ValueError or OSError if they cannot be
    used.

    Args:
        config: the run's config.
    """

    def __init__(self, config: ConfigDict) -> None:
        self._config = config

    @property
    def splits(self) -> Sequence[str]:
        """Those of `SPLITS` that the data have."""
        return SPLITS

    @abc.abstractmethod
    def need(self, config: ConfigDict) -> memory.Need:
        """Returns the memory that training with a config takes on these data."""

    @abc.abstractmethod
    def checksums(self) -> dict[str, str]:
        """Returns a checksum of each part of the data, which all workers must share."""

    @abc.abstractmethod
    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError if that many replicas cannot share the batches."""

    @abc.abstractmethod
    def build(self) -> keras.Model:
        """Returns the built model; called in the strategy's scope."""

    @abc.abstractmethod
    def task(self, model: Any) -> Task:
        """Returns what the loop trains; called in the strategy's scope."""

    @abc.abstractmethod
    def keep(self, path: epath.Path) -> None:
        """Binds a run's folder to its data; raises WorkdirError if it has other data."""

    @abc.abstractmethod
    def introduction(self, model: Any) -> str:
        """Returns a line about the data, and what the model sees of them."""

    @abc.abstractmethod
    def describe(self, split: str, score: Any) -> str:
        """Returns the score of a split in words."""

    @abc.abstractmethod
    def numbers(self, split: str, score: Any) -> dict[str, dict[str, Any]]:
        """Returns the numbers of a split's score by protocol and name."""

    def score_split(self, task: Any, split: str, check: Check) -> Any:
        """Returns the score of a split, for `describe` and `numbers`."""
        check()
        return task.score(split)

    def score(self, task: Task, check: Check, splits: Sequence[str]) -> Scores:
        """Scores the model; the test data are read only here.

        Args:
            task: what was trained.
            check: raises if the run must stop.
            splits: some of `SPLITS`.
        """
        scores = {split: self.score_split(task, split, check) for split in splits}
        summary = "; ".join(itertools.starmap(self.describe, scores.items()))
        values = {split: self.numbers(split, score) for split, score in scores.items()}
        return self.complete(Scores(summary, values), task, check)

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Returns scores with what else an experiment makes at the end of a run."""
        del task, check
        return scores

    def observe(self, losses: Sequence[float]) -> None:
        """Takes the validation losses so far, when a run goes on and after each epoch."""
        del losses

    def advice(self) -> list[str]:
        """Returns advice on the config, for a machine without a GPU."""
        return []


class ShuffledExamples:
    """The part of the loop's `Task` that draws batches; nothing is carried between them.

    Args:
        config: the run's config.
        data: the examples.
    """

    def __init__(self, config: ConfigDict, data: SequenceData) -> None:
        self._config = config
        self._data = data
        size = config.data.batch_size
        self.steps_per_epoch = shuffling.steps_per_epoch(data.count, size)
        validation, test = (len(part.inputs) for part in (data.validation, data.test))
        # Without a backward pass, which takes twice as long as the forward pass.
        self.evaluation_steps = validation / size / 3
        self.scoring = (validation + test) / max(1, validation)

    def dataset(self, first_step: int) -> Batches:
        """Returns the batches (inputs, targets) from a training step to the run's end."""
        config = self._config
        epochs = schedules.passes(config.training, self.steps_per_epoch)
        return self._data.batches(
            config.data.batch_size, config.seed, epochs, first_step
        )

    def initial_state(self) -> tuple[()]:
        """Returns (): nothing is carried from batch to batch."""
        return ()


class ExamplesExperiment(Experiment):
    """The part of an experiment on examples that binds it to them.

    Attributes:
        examples: what the examples are, in the plural.
        contents: what the data are, in the plural.

    Args:
        config: the run's config.
        data: the examples; None for a task without data.
    """

    examples, contents = "images", "images"

    def __init__(self, config: ConfigDict, data: SequenceData | None) -> None:
        super().__init__(config)
        self._data: Any = data

    def check_batch_size(self) -> None:
        """Raises ValueError if a batch has more examples than there are."""
        size, count = self._config.data.batch_size, self._data.count
        if size > count:
            raise ValueError(
                f"`config.data.batch_size` must be at most {count}, the number of training "
                f"{self.examples}. Received: config.data.batch_size={size}"
            )

    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError if replicas cannot share an epoch's batches, the last included."""
        size, count = self._config.data.batch_size, self._data.count
        if size % replicas or count % size % replicas:
            raise ValueError(
                f"`config.data.batch_size` must leave no rest that {replicas} replicas cannot "
                f"share: of {count:,} training {self.examples} the last batch has {count % size}. "
                f"Received: config.data.batch_size={size}"
            )

    def checksums(self) -> dict[str, str]:
        """Returns the SHA-256 of each split; none without data."""
        return {} if self._data is None else self._data.checksums()

    def record(self) -> dict[str, Any]:
        """Returns what a run's folder keeps of its data."""
        return {"sha256": self.checksums()}

    def keep(self, path: epath.Path) -> None:
        """Records the data in the run's folder, after `check`."""
        self.check(path)
        if self._data is not None and not files.exists(path / DATA):
            files.write_json(path / DATA, self.record())

    def check(self, path: epath.Path) -> None:
        """Raises WorkdirError if the folder's run was trained on other data."""
        checksums = self.checksums()
        recorded = (read_record(path / DATA, {"sha256": dict}) or {}).get(
            "sha256", checksums
        )
        if differing := [
            split for split in checksums if recorded.get(split) != checksums[split]
        ]:
            raise WorkdirError(
                f"{path} belongs to a run on other {self.contents} ({', '.join(differing)}); "
                "give that run's data by --data_dir, or choose another --workdir"
            )

    def evaluate(self, path: epath.Path) -> None:
        """Prints the scores of a run's best model on validation and test data.

        Args:
            path: the run's folder.

        Raises:
            WorkdirError: the folder cannot be used.
        """
        self.check(path)
        model = self.build()
        checkpoints.load_best(path, model)
        task: Any = self.task(model)
        for split in self.splits:
            score = self.score_split(task, split, lambda: None)
            lines = [self.describe(split, score), *self.details(split, score)]
            print("\n".join(lines), flush=True)

    def details(self, split: str, score: Any) -> list[str]:
        """Returns indented lines on where the errors of a score are, if there is more to say."""
        del split, score
        return []
