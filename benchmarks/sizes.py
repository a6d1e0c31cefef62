"""The sizes of a training step, and the work that it takes."""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

MODES = {"train": 3, "forward": 1}  # products a weight: forward, and two gradients
DTYPES = ("float32", "bfloat16")


def nearest_units(count: Callable[[int], int], wanted: int) -> int:
    """Returns the units with which a network comes nearest to so many parameters.

    Args:
        count: returns the parameters of so many units, more than units^2.
        wanted: the number of parameters.
    """
    candidates = range(1, 1 + math.isqrt(wanted))
    above = 1 + bisect.bisect_left(candidates, wanted, key=count)
    below = max(1, above - 1)
    return min(below, above, key=lambda units: abs(count(units) - wanted))


@dataclasses.dataclass(frozen=True)
class Sizes:
    """An input [B, T, p] and the trellis network on it; Python and NumPy alone.

    Attributes:
        discard: how many of the first outputs are context only: not in the loss.
        mode: one of `MODES`.
        dtype: one of `DTYPES`; what is computed in. Variables and losses are float32.
    """

    batch_size: int
    time_steps: int
    input_units: int
    units: int
    depth: int
    kernel_size: int = 2
    dilation_rate: tuple[int, ...] = (1,)
    threads: int = 1
    reference_dir: str | None = None
    discard: int = 0
    mode: str = "train"
    dtype: str = "float32"

    def input(self) -> Any:
        """Returns the input, a float32 array [B, T, p]."""
        import numpy as np

        shape = (self.batch_size, self.time_steps, self.input_units)
        random = np.random.default_rng(0)
        return random.normal(size=shape).astype("float32")

    def dilations(self) -> list[int]:
        """Returns each level's dilation."""
        endless = itertools.cycle(self.dilation_rate)
        return list(itertools.islice(endless, self.depth))

    def receptive_field(self) -> int:
        """Returns `keras_trellis.receptive_field`, without TensorFlow in the peers' processes."""
        levels = self.dilations()
        if self.kernel_size == 1:
            return 1 + sum(levels[1:])
        return 1 + (self.kernel_size - 1) * sum(levels)

    def needed(self) -> list[set[int]]:
        """Returns for each level the positions whose state a kept output depends on."""
        positions = set(range(self.discard, self.time_steps))
        found = []
        for dilation in reversed(self.dilations()):
            found.append(positions)
            taps = max(self.kernel_size, 2)
            backs = range(0, taps * dilation, dilation)
            positions = {t - back for t in positions for back in backs if t >= back}
        return found[::-1]

    def flops(self, weights: int, steps: int | None = None) -> int:
        """Returns the work of so many weights at each of `steps` positions; None for all T.

        A multiplication and an addition, in each of the mode's products.
        """
        steps = self.time_steps if steps is None else steps
        return 2 * MODES[self.mode] * self.batch_size * steps * weights

    def trellis_facts(self, input_weights: int, hidden_weights: int, parameters: int) -> dict:
        """Returns the facts of a trellis network, whoever wrote it.

        The input's product counts once for every dilation, the hidden product at every level
        but the first, whose hidden state is zero; each at the positions that a kept output needs.
        """
        injected: dict[int, set[int]] = {}
        needed = self.needed()
        for dilation, positions in zip(self.dilations(), needed, strict=True):
            injected.setdefault(dilation, set()).update(positions)
        injections = sum(map(len, injected.values()))
        states = sum(map(len, needed[1:]))
        flops = self.flops(input_weights, injections) + self.flops(hidden_weights, states)
        return {
            "flops": flops,
            "receptive_field": self.receptive_field(),
            "parameters": parameters,
        }

    def product_shape(self) -> tuple[int, int, int]:
        """Returns rows, inner size and columns of a level's hidden product."""
        rows = self.batch_size * self.time_steps
        return rows, self.kernel_size * self.units, 4 * self.units

    def product_flops(self) -> int:
        """Returns the work of a level's hidden product and, in training, its two gradients."""
        return 2 * MODES[self.mode] * math.prod(self.product_shape())
