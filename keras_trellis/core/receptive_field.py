"""How far back a trellis network sees."""

from __future__ import annotations

from collections.abc import Sequence

from keras_trellis.arguments import dilation_cycle, positive


def receptive_field(
    depth: int, *, kernel_size: int = 2, dilation_rate: int | Sequence[int] = 1
) -> int:
    """Returns the number of steps that an output depends on, its own step included.

    1 + (k - 1) * sum of the levels' dilations. With k = 1 the state alone reaches back, from the
    second level on: 1 + sum of the dilations above the first level (an upper bound for a gate
    that ignores its shifted state).

    Args:
        depth: the number of levels.
        kernel_size: the number of taps, k.
        dilation_rate: an integer, or a cycle; level i uses dilation_rate[i % len].

    Raises:
        ValueError: if an argument is not positive.
    """
    depth = positive("depth", depth)
    kernel_size = positive("kernel_size", kernel_size)
    cycle = dilation_cycle(dilation_rate)
    turns, rest = divmod(depth, len(cycle))
    total = turns * sum(cycle) + sum(cycle[:rest])
    return 1 + ((kernel_size - 1) * total if kernel_size > 1 else total - cycle[0])


def depth_for(steps: int, *, kernel_size: int = 2, dilation_rate: int | Sequence[int] = 1) -> int:
    """Returns the smallest depth whose receptive field spans `steps` steps.

    Args:
        steps: the number of steps that an output shall depend on, its own included.
        kernel_size: the number of taps, k.
        dilation_rate: an integer, or a cycle; level i uses dilation_rate[i % len].

    Raises:
        ValueError: if an argument is not positive.
    """
    steps = positive("steps", steps)
    kernel_size = positive("kernel_size", kernel_size)
    cycle = dilation_cycle(dilation_rate)
    # Whole turns of the cycle by division, so that a million steps cost no million iterations.
    reach = max(kernel_size - 1, 1) * sum(cycle)
    depth = max(1, (steps - 1) // reach * len(cycle) - len(cycle))
    while receptive_field(depth, kernel_size=kernel_size, dilation_rate=cycle) < steps:
        depth += 1
    return depth
