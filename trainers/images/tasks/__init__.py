"""Images read pixel by pixel: MNIST, MNIST in an order drawn from the seed, and CIFAR-10."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from configs import baselines as settings
from configs import seq_mnist
from trainers.data import images, sequences
from trainers.data.images import ImageSource
from trainers.data.sequences import SequenceData
from trainers.kinds import search
from trainers.kinds.measures import Measure
from trainers.kinds.search import Space
from trainers.kinds.task import EXPORT, REPORT, SCORE, TEXT_FIELDS, Published, Task
from trainers.models.fields import A_CALL, RATE, Field, Rule, Values, integer
from trainers.models.kinds import stem_rules

ACCURACY = Measure("accuracy", 2, "images", higher_is_better=True, unit=" %")
_FIELDS: dict[str, Field] = {
    # 0: all images train, and the last epoch's weights are the run's.
    "data.validation": integer(0),
    # The share of each training label that all classes get, in equal parts (Szegedy et al., 2016).
    # Scores are without it.
    "training.label_smoothing": RATE._replace(default=0.0),
    "evaluation.batch_size": A_CALL,
}
# The fields that read the validation loss, and their values without.
_BY_LOSS = {
    "schedule.patience": None,
    "schedule.average": False,
    "schedule.stop_after": None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageTask(Task):
    """Classification of images after the last pixel.

    Attributes:
        images: their source.
        permuted: whether pixels are read in an order drawn from the seed.
    """

    program = "trainers.pixels"
    folder = "trainers.images"
    takes_workers = True
    reproduction = "trainers.papers.examples"
    kind_fields = _FIELDS
    unread_fields = TEXT_FIELDS
    model_fields = ("dropout",)
    next_commands = (SCORE, EXPORT, REPORT)

    images: ImageSource
    measure: Measure = ACCURACY
    permuted: bool = False
    search: Space = dataclasses.field(default_factory=lambda: search.IMAGES)
    baselines: Mapping[str, dict] = dataclasses.field(
        default_factory=lambda: settings.IMAGES
    )

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what a run refuses of its stem, and one that has no validation images."""
        yield from stem_rules(values)
        without = values["data.validation"] == 0
        reason = "with config.data.validation=0, which leaves no validation loss"
        for name, off in _BY_LOSS.items():
            yield without and values[name] != off, name, f"{off} {reason}"
        expected = "True with config.data.validation=0: there would be no score"
        yield without and not values["evaluation.test"], "evaluation.test", expected

    def load(
        self,
        config: Any,
        data_dir: epath.PathLike | None = None,
        permutation: Sequence[int] | None = None,
    ) -> SequenceData:
        """Loads the data of a run, as `sequences.experiment` asks for them."""
        return sequences.from_images(
            self.images,
            config.data.validation,
            config.seed,
            permuted=self.permuted,
            permutation=permutation,
            data_dir=data_dir,
        )


# Table 4 of the paper: sequential MNIST, permuted, sequential CIFAR-10, in percent.
_TABLE_4 = {
    "dilated GRU": (99.0, 94.6, None),
    "IndRNN": (99.0, 96.0, None),
    "generic TCN": (99.0, 97.2, None),
    "r-LSTM with an auxiliary loss": (98.4, 95.2, 72.2),
    "Transformer": (98.9, 97.9, 62.2),
}


def _quoted(column: int) -> tuple[Published, ...]:
    """Returns the other models of a column."""
    values = {name: row[column] for name, row in _TABLE_4.items()}
    return tuple(
        Published(name, None, value)
        for name, value in values.items()
        if value is not None
    )


SEQ_MNIST = ImageTask(
    name="seq_mnist",
    presets=seq_mnist.PRESETS | seq_mnist.MNIST,
    images=images.MNIST,
    data="MNIST, handwritten digits, pixel by pixel",
    published=(Published("as published", 8e6, 99.20),),
    quoted=_quoted(0),
    sizes={"paper": "8M", "paper_larger": "8M"},
)

PERMUTED_MNIST = dataclasses.replace(
    SEQ_MNIST,
    name="permuted_mnist",
    permuted=True,
    presets={
        **SEQ_MNIST.presets,
        "medium": seq_mnist.permuted_medium,
        "stem": seq_mnist.permuted_stem,
    },
    data="MNIST, handwritten digits, pixel by pixel in an order drawn once",
    published=(Published("as published", 8e6, 98.13),),
    quoted=_quoted(1),
    search=search.PERMUTED,
)

SEQ_CIFAR10 = dataclasses.replace(
    SEQ_MNIST,
    name="seq_cifar10",
    presets=seq_mnist.PRESETS,
    images=images.CIFAR10,
    data="CIFAR-10, small photographs, pixel by pixel",
    published=(Published("as published", 8e6, 73.42),),
    quoted=_quoted(2),
)
