"""How far back a trellis network sees."""

from __future__ import annotations

from collections.abc import Sequence

from keras_trellis.arguments import dilation_cycle, positive


def receptive_field(
    depth: int, *, kernel_size: int = 2, dilation_rate: int | Sequence[int] = 1
) -> int:
    """Returns the number of time steps that an output depends on, its own included.

    This is 1 + (k - 1) * the sum of the levels' dilations. With k = 1 only the state reaches back,
    from the second level on: 1 + the sum of the dilations above the first level. For a gate that
    ignores its shifted state this is an upper bound.

    Args:
        depth: the number of levels.
        kernel_size: the number of taps, k.
        dilation_rate: an integer, or a cycle; level i uses dilation_rate[i % len].

    Raises:
        ValueError: an argument is not positive.
    """
    depth = positive("depth", depth)
    kernel_size = positive("kernel_size", kernel_size)
    cycle = dilation_cycle(dilation_rate)
    turns, rest = divmod(depth, len(cycle))
    total = turns * sum(cycle) + sum(cycle[:rest])
    if kernel_size == 1:
        return 1 + total - cycle[0]
    return 1 + (kernel_size - 1) * total


def depth_for(
    steps: int, *, kernel_size: int = 2, dilation_rate: int | Sequence[int] = 1
) -> int:
    """Returns the smallest depth whose receptive field covers `steps` time steps.

    Args:
        steps: the number of time steps that an output must see, its own included.
        kernel_size: the number of taps, k.
        dilation_rate: an integer, or a cycle; level i uses dilation_rate[i % len].

    Raises:
        ValueError: an argument is not positive.
    """
    steps = positive("steps", steps)
    kernel_size = positive("kernel_size", kernel_size)
    cycle = dilation_cycle(dilation_rate)
    # Count whole turns of the cycle by division: a million steps must not take as many iterations.
    reach = max(kernel_size - 1, 1) * sum(cycle)
    turns = (steps - 1) // reach - 1
    depth = max(1, turns * len(cycle))
    while receptive_field(depth, kernel_size=kernel_size, dilation_rate=cycle) < steps:
        depth += 1
    return depth
