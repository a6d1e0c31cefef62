"""The sizes of a training step."""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

from absl import flags

STEPS = ("train", "forward")  # a training step, or its forward half
# And a training step that XLA compiles; the first training step, with tracing and compiling; the
# first at another length; and one whose graph does not know the number of time steps.
MODES = (*STEPS, "xla", "first", "another_length", "unknown_length")
DTYPES = ("float32", "bfloat16")


def define_step_flags() -> None:
    """Defines the flags that say what a step is and what it is computed in."""
    flags.DEFINE_enum("mode", "train", STEPS, "A training step, or forward alone.")
    flags.DEFINE_enum("dtype", "float32", DTYPES, "What is computed in.")


def nearest_units(
    count: Callable[[int], int], wanted: int, most: int | None = None
) -> int:
    """Returns the units with which a network comes nearest to so many parameters.

    Args:
        count: returns the parameters of so many units.
        wanted: the number of parameters.
        most: the most units that may be; the root of `wanted` by default, for networks that have
            more parameters than units^2.
    """
    candidates = range(1, 1 + (most or math.isqrt(wanted)))
    above = 1 + bisect.bisect_left(candidates, wanted, key=count)
    below = max(1, above - 1)
    return min(below, above, key=lambda units: abs(count(units) - wanted))


def receptive_field(
    depth: int, dilation_rate: tuple[int, ...], kernel_size: int = 2
) -> int:
    """Returns `keras_trellis.receptive_field`, in processes without TensorFlow."""
    dilations = itertools.cycle(dilation_rate)
    return 1 + (kernel_size - 1) * sum(itertools.islice(dilations, depth))


@dataclasses.dataclass(frozen=True)
class Sizes:
    """An input `[B, T, p]` and the trellis network on it; Python and NumPy alone.

    Attributes:
        discard: how many of the first outputs are context only: not in the loss.
        mode: one of `MODES`.
        dtype: one of `DTYPES`; what is computed in. Variables and losses are float32.
        masked: whether the rows have T/2 to T steps, padded on the right.
    """

    batch_size: int
    time_steps: int
    input_units: int
    units: int
    depth: int
    dilation_rate: tuple[int, ...] = (1,)
    threads: int = 1
    reference_dir: str | None = None
    discard: int = 0
    mode: str = "train"
    dtype: str = "float32"
    kernel_size: int = 2
    masked: bool = False

    def input(self) -> Any:
        """Returns the input, a float32 array `[B, T, p]`."""
        import numpy as np

        shape = (self.batch_size, self.time_steps, self.input_units)
        return np.random.default_rng(0).standard_normal(shape, np.float32)

    def mask(self) -> Any:
        """Returns the mask, a bool array `[B, T]`; None where there is none."""
        import numpy as np

        if not self.masked:
            return None
        least, most = (self.time_steps + 1) // 2, self.time_steps + 1
        lengths = np.random.default_rng(1).integers(least, most, (self.batch_size, 1))
        return np.arange(self.time_steps) < lengths

    @property
    def receptive_field(self) -> int:
        """How many time steps an output of the trellis network depends on."""
        return receptive_field(self.depth, self.dilation_rate, self.kernel_size)

    @property
    def parameters(self) -> int:
        """The number of the trellis network's parameters."""
        read = self.kernel_size * (self.input_units + self.units)
        return 4 * self.units * (read + 1)
