"""What a tuner may draw for a field of a config, and the default search spaces of the tasks.

A search space maps names to values. A name is that of a field, such as "optimizer.learning_rate",
or of a group, such as "data". The values of a group are mappings: they change several of its fields
at once. `trainers.studies.search` draws from a space. Nothing here needs a tuner.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class _Range:
    """What lies between two values.

    Attributes:
        low: the least value.
        high: the greatest value.
        log: whether its logarithm is uniform, rather than the value itself.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self):
        low, high = self.low, self.high
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(
                "`low` must be below `high`, and both must be finite. "
                f"Received: low={low}, high={high}"
            )
        if self.log and low <= 0:
            raise ValueError(
                f"`low` must be above 0 with log=True. Received: low={low}"
            )

    @property
    def ends(self) -> tuple[float, float]:
        """The values that show whether a field takes all of them."""
        return (self.low, self.high)


class Uniform(_Range):
    """A number of a range."""


@dataclasses.dataclass(frozen=True)
class Integers(_Range):
    """An integer of a range, both ends included."""

    low: int
    high: int


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of some values: tuples, strings, or mappings for the fields of a group."""

    values: tuple[Any, ...]

    def __post_init__(self):
        if len(self.values) < 2:
            raise ValueError(
                f"`values` must have at least two values. Received: values={self.values}"
            )

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that show whether a field takes all of them."""
        return self.values


Search = Uniform | Integers | Choice
Space = Mapping[str, Search]


def _vectors(*widths: int) -> Choice:
    """Returns the choice among sizes of word vectors, which the outputs have too."""
    return Choice(
        tuple({"embedding_units": width, "output_units": width} for width in widths)
    )


def _around(*ends: float) -> Choice:
    """Returns the choice among ranges `[-end, end]` of initial word vectors."""
    return Choice(tuple({"minval": -end, "maxval": end} for end in ends))


def _seeing(*reaches: tuple[int, tuple[int, ...]]) -> Choice:
    """Returns the choice among kernel sizes and dilations, each dilation once."""
    shapes = (
        {"kernel_size": taps, "dilation_rate": dilations, "depth": len(dilations)}
        for taps, dilations in reaches
    )
    return Choice(tuple(shapes))


def _shapes(overlapping: tuple[int, int, int], *carried: tuple[int, int]) -> Choice:
    """Returns the choice among shapes of a batch of text.

    The carried history reaches all outputs of a trellis network in windows no longer than the
    network is deep. So there are short windows in many rows, too.

    Args:
        overlapping: rows, window and horizon of a shape whose history is not carried.
        carried: rows and window of those whose history is carried.
    """
    rows, window, horizon = overlapping
    zero = dict(history="zero", batch_size=rows, window=window, horizon=horizon)
    others = (
        dict(history="carried", batch_size=rows, window=window, horizon=0)
        for rows, window in carried
    )
    return Choice((zero, *others))


_EMBEDDINGS = "model.embeddings_initializer.config"
# The ranges suit small presets with Adam, for minutes or hours of a CPU.
_COMMON: Space = {
    "optimizer.learning_rate": Uniform(1e-3, 2e-2, log=True),
    "model.recurrent_dropout": Uniform(0.0, 0.4),
    "model.weight_dropout": Uniform(0.0, 0.5),
}
WORDS: Space = {
    **_COMMON,
    "model": _vectors(64, 100, 150, 200),
    "model.depth": Integers(3, 16),
    "model.dilation_rate": Choice(((1,), (1, 2), (1, 2, 4), (1, 3, 9))),
    # The last layer of a text has `output_units`, so that a single one would have no size.
    "model.layers": Choice((2, 3)),
    "model.embedding_dropout": Uniform(0.0, 0.2),
    "model.dropout": Uniform(0.0, 0.5),
    "model.output_dropout": Uniform(0.0, 0.5),
    _EMBEDDINGS: _around(0.1, 0.25, 0.5, 1.0),
    "data": _shapes(
        (8, 80, 16), (128, 4), (64, 8), (32, 16), (8, 64), (32, 32), (16, 128)
    ),
}
CHARACTERS: Space = {
    **WORDS,
    "model": _vectors(32, 64, 96),
    "model.dilation_rate": Choice(((1,), (1, 2, 4), (1, 2, 4, 8, 16))),
    "data": _shapes(
        (16, 160, 32), (512, 4), (256, 8), (128, 16), (64, 32), (64, 64), (16, 128)
    ),
}
# Of a long sequence the network has to see all.
_DOUBLING = tuple(2**power for power in range(10))
IMAGES: Space = {
    **_COMMON,
    "model": _seeing(
        (2, _DOUBLING),
        (2, (1, *_DOUBLING)),
        (2, (1, 1, 2, 2, 4, 4, 8, 8, *_DOUBLING[4:])),
        (3, tuple(3**power for power in range(7))),
        (4, tuple(4**power for power in range(5))),
    ),
    "model.layers": Choice((2, 3)),
    "data.batch_size": Choice((32, 64, 128)),
}
# For the widths of `medium`: what a trial costs in time decides among them, not their parameters.
# Not label smoothing, which raises the validation loss, by which trials are compared, where it
# helps too.
PERMUTED: Space = {
    **_COMMON,
    "model.units": Choice((128, 144, 160, 176, 192)),
    "model.recurrent_dropout": Uniform(0.0, 0.5),
    "model.layers": Choice((2, 3)),
    "data.batch_size": Choice((32, 64, 128)),
}
GENERATED: Space = {
    "optimizer.learning_rate": Uniform(1e-3, 3e-2, log=True),
    "model": _seeing(
        (2, _DOUBLING),
        (3, (1, 3, 9, 27, 81, 243)),
        (4, (1, 1, 4, 16, 64, 256)),
        (5, (1, 5, 25, 125)),
        (11, (1, 11, 121)),
    ),
    "model.initial_deviation": Choice((0.0, 0.1, 0.2, 0.3)),
    "model.layers": Choice((1, 2)),
    "data.batch_size": Choice((16, 32, 64)),
}
# Of a window of some hundred steps the network has to see all, or much.
SERIES: Space = {
    "optimizer.learning_rate": Uniform(5e-4, 2e-2, log=True),
    "model.recurrent_dropout": Uniform(0.0, 0.5),
    "model.weight_dropout": Uniform(0.0, 0.5),
    "model.dropout": Uniform(0.0, 0.5),
    "model.output_dropout": Uniform(0.0, 0.5),
    "model": _seeing(
        (2, _DOUBLING[:9]),
        (3, (1, 3, 9, 27, 81)),
        (4, (1, 4, 16)),
        (4, (1, 4, 16, 64)),
        (4, (1, 4, 16, 64, 256)),
        (8, (1, 8, 64)),
    ),
    "model.layers": Choice((1, 2)),
    "data.batch_size": Choice((16, 32, 64)),
}
