"""One training step of a small Keras model with a learned optimizer beside Adam on the CPU.

    python -m benchmarks.meta --json=meta.json

The model has dense layers of 784-20-10, 15,910 parameters; `Model.train_on_batch` takes 128 random
images. `docs/notes/learned_optimizers.md` has a table.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import report
from benchmarks.workers import Contender

FLAGS = flags.FLAGS
_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class ModelSizes:
    """The images `[B, pixels]` and the hidden units of the model."""

    batch_size: int
    pixels: int
    units: int


def contender(cell: str | None, sizes: ModelSizes) -> Contender:
    """A training step with a learned optimizer of a cell; None: with Keras's Adam."""
    import keras
    import numpy as np

    layers = [keras.layers.Dense(sizes.units, "sigmoid"), keras.layers.Dense(_CLASSES)]
    model = keras.Sequential([keras.Input([sizes.pixels]), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(_optimizer(cell), loss)
    generator = np.random.default_rng(0)
    images = generator.random((sizes.batch_size, sizes.pixels), np.float32)
    labels = generator.integers(0, _CLASSES, sizes.batch_size)
    model.train_on_batch(images, labels)  # tracing belongs to the process at rest
    facts = {"parameters": model.count_params()}
    return Contender(lambda: model.train_on_batch(images, labels), facts)


def _optimizer(cell: str | None) -> Any:
    import keras

    from trainers.learned_optimizers.core import UpdateNetwork
    from trainers.learned_optimizers.optimizer import RecurrentOptimizer
    from trainers.models.cells import CELLS

    if cell is None:
        return keras.optimizers.Adam()
    cells = [CELLS[cell](20) for _ in range(2)]
    return RecurrentOptimizer(UpdateNetwork(cells, projection=20))


ADAM = "adam"
CONTENDERS: report.Contenders = {
    ADAM: ("keras.optimizers.Adam", functools.partial(contender, None)),
    "lstm": ("RecurrentOptimizer, two LSTMs", functools.partial(contender, "lstm")),
    "ihc_lstm": (
        "RecurrentOptimizer, two IHC-LSTMs",
        functools.partial(contender, "ihc_lstm"),
    ),
}
COLUMNS: report.Columns = {
    "optimizer": report.title,
    "ms": report.milliseconds,
    **report.times_to("Adam's"),
    "peak MiB": report.peak_mebibytes,
    "parameters": report.parameters,
}


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("batch_size", 128, "B.", lower_bound=1)
    flags.DEFINE_integer("pixels", 784, "Numbers of an image.", lower_bound=1)
    flags.DEFINE_integer("units", 20, "Units of the hidden layer.", lower_bound=1)
    report.define_only(CONTENDERS, ADAM)
    report.define_flags(rounds=50, warmup=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    sizes = ModelSizes(**report.values(["batch_size", "pixels", "units"]))
    report.show(CONTENDERS, ADAM, sizes, here, COLUMNS)
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
