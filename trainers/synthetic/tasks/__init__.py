"""Sequences drawn from the seed: tests of memory over many steps, and algorithms to learn."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from configs import adding, addition, copy_memory, memorization
from configs import baselines as settings
from trainers.data import long_memory, sequences
from trainers.data.long_memory import Examples
from trainers.data.sequences import SPLITS, SequenceData
from trainers.kinds import search as spaces
from trainers.kinds.measures import Measure
from trainers.kinds.search import Space
from trainers.kinds.task import STEM, TEXT_FIELDS, Task
from trainers.models.fields import A_CALL, COUNT, Field, Rule, Values, integer
from trainers.training import schedules

SYMBOLS = Measure("accuracy", 2, "symbols", higher_is_better=True, unit=" %")
CROSS_ENTROPY = Measure("cross_entropy", 6, "symbols")
SQUARED_ERROR = Measure("squared_error", 6, "sequences")
_FIELDS: dict[str, Field] = {
    **{f"data.{split}": COUNT for split in SPLITS},
    "evaluation.batch_size": A_CALL,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawnTask(Task):
    """A task whose data are drawn from the seed."""

    program = "trainers.pixels"
    folder = "trainers.synthetic"
    reads_files = False
    takes_workers = True
    kind_fields = _FIELDS
    unread_fields = (*TEXT_FIELDS, STEM, "dropout", "output_dropout")

    search: Space = dataclasses.field(default_factory=lambda: spaces.GENERATED)

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of a batch."""
        beyond = values["data.batch_size"] > values["data.train"]
        expected = "at most the number of training sequences"
        yield beyond, "data.batch_size", expected, "data.train"

    def load(
        self,
        config: Any,
        data_dir: epath.PathLike | None = None,
        permutation: None = None,
    ) -> SequenceData:
        """Draws the data of a run, as `sequences.experiment` asks for them."""
        del permutation
        if data_dir is not None:
            raise ValueError(
                f"--data_dir has no use for --task={self.name}, which is drawn from the seed. "
                f"Received: --data_dir={data_dir}"
            )
        return self.draw_data(config, [config.data[split] for split in SPLITS])

    def draw_data(self, config: Any, lengths: Sequence[int]) -> SequenceData:
        """Draws the examples of each split."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratedTask(DrawnTask):
    """A number of sequences, to test how long a network remembers.

    Attributes:
        draw: takes a number of sequences, `config.data.steps` and a generator.
        outputs: how many numbers the network returns for one target.
    """

    reproduction = "trainers.papers.examples"

    draw: Callable[[int, int, np.random.Generator], Examples]
    outputs: int
    measure: Measure = CROSS_ENTROPY

    def draw_data(self, config: Any, lengths: Sequence[int]) -> SequenceData:
        """Draws the sequences of each split."""
        steps = config.data.steps
        return sequences.generated(self.draw, lengths, steps, config.seed, self.outputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlgorithmTask(DrawnTask):
    """An algorithm to learn from examples, each of which a run sees once.

    It has the name of its function in `trainers.data.algorithms`, and its arguments as fields.
    """

    has_answers = True
    passed = "examples"

    measure: Measure = SYMBOLS
    baselines: Mapping[str, dict] = dataclasses.field(
        default_factory=lambda: settings.ALGORITHMS
    )

    def draw_data(self, config: Any, lengths: Sequence[int]) -> SequenceData:
        """Returns what draws the examples when they are read."""
        from trainers.data import algorithms, streamed  # they need TensorFlow

        names = [name.removeprefix("data.") for name in self.fields]
        arguments = {name: config.data[name] for name in names}
        algorithm = getattr(algorithms, self.name)(**arguments)
        _check(algorithm, algorithms.LARGEST, config)
        return streamed.streamed(algorithm, lengths, config.seed)

    def epoch_length(self, config: Values) -> int:
        """Returns the examples of an epoch."""
        return config["data"]["train"]


def _check(algorithm: Any, largest: int, config: Any) -> None:
    """Refuses examples that cannot be counted, and a run that would have to repeat them."""
    data, training = config.data, config.training
    if max(algorithm.sizes) > largest:
        raise ValueError(
            "(`config.data.kinds` - 1) to the power of half of `config.data.symbols` must be below "
            f"2**62. Received: config.data.kinds={data.kinds}, config.data.symbols={data.symbols}"
        )
    steps = schedules.length(training, -(-data.train // data.batch_size))
    held_out, read = data.validation + data.test, steps * data.batch_size
    if held_out + read > algorithm.examples:
        raise ValueError(
            f"a run of --task={config.task} sees each example once, and there are "
            f"{algorithm.examples:,}. Received: {held_out:,} that are held out and {read:,} to "
            "train on (config.training.epochs, config.data.train)"
        )


COPY_MEMORY = GeneratedTask(
    name="copy_memory",
    presets=copy_memory.PRESETS,
    draw=long_memory.copy_memory,
    outputs=long_memory.CLASSES,
    baselines=settings.COPY_MEMORY,
    fields={"data.steps": COUNT},
)

ADDING = GeneratedTask(
    name="adding",
    presets=adding.PRESETS,
    draw=long_memory.adding,
    outputs=1,
    measure=SQUARED_ERROR,
    baselines=settings.ADDING,
    fields={"data.steps": integer(2)},  # two are marked
)

ADDITION = AlgorithmTask(
    name="addition",
    presets=addition.PRESETS,
    fields={"data.digits": integer(1, 18)},
)

MEMORIZATION = AlgorithmTask(
    name="memorization",
    presets=memorization.PRESETS,
    fields={"data.symbols": integer(1, 40), "data.kinds": integer(2, 257)},
)
