"""How much memory a run takes, computed before the model is built.

The number of parameters is exact. The rest is a lower bound for a training step, and an estimate of
its order of magnitude.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import ml_collections

from trainers.optimizers import OPTIMIZERS
from trainers.training import resources
from trainers.training.resources import Room

_BYTES = 4  # float32
# What tracing and TensorFlow's own buffers add once steps are taken: 0.1 to 0.35 GiB beside what a
# step keeps, with the presets of pydoc.
_GRAPHS = 2**28


class Need(NamedTuple):
    """The memory of training in bytes, beside what the process has before.

    Attributes:
        least: a lower bound.
        about: an estimate.
    """

    least: int
    about: int


def training(
    config: ml_collections.ConfigDict, parameters: int, least: int, about: int
) -> Need:
    """Returns the memory of training, without the imported program and the data.

    Args:
        config: the run's config.
        parameters: the model's number of parameters. They, their gradients and the optimizer's
            variables are in memory at once.
        least: the least number of values that a training step keeps for its backward pass.
        about: an estimate of that number.
    """
    copies = 2 + len(OPTIMIZERS[config.optimizer.name].run_slot_names(config))
    least, about = (
        _BYTES * (copies * parameters + values) for values in (least, about)
    )
    return Need(least, max(least, about) + _GRAPHS)


def format_need(need: Need, has_gpu: bool) -> str | None:
    """Returns a line on the memory that this process will take; None if it cannot be known.

    Args:
        need: the memory of training.
        has_gpu: whether training takes a GPU's memory. Else it adds to what the process has now,
            TensorFlow above all.
    """
    if has_gpu:
        return f"about {_text(need.about)} of the GPU's memory in training"
    now = resources.resident("VmRSS")
    if now is None:
        return None
    total = _text(now + need.about)
    return f"about {total} of memory in training, {_text(now)} of it taken already"


def check_training(
    config: ml_collections.ConfigDict,
    need: Callable[[ml_collections.ConfigDict], Need],
    presets: Callable[[], Iterable[ml_collections.ConfigDict]],
) -> str | None:
    """Compares the memory of training with the available memory.

    Args:
        config: the run's config.
        need: returns the memory of training with a config on the run's data.
        presets: returns the configs of the task's presets.

    Returns:
        a warning if training may not fit, else None.

    Raises:
        ValueError: training cannot fit; the message names what would.
    """
    room, (least, about) = resources.room(), need(config)
    if room is None or about <= room.size:
        return None
    takes = f"training takes about {_text(about)} of memory"
    there = f"{_text(room.size)} are available ({room.limit})"
    fits = (
        " or ".join(_that_fit(config, need, presets(), room)) or "no preset of the task"
    )
    if least > room.size:
        raise ValueError(
            f"{takes}, {_text(least)} at the least, and {there}; what would fit: {fits}"
        )
    return f"warning: {takes}, and {there}; what would surely fit: {fits}"


def check_weights(parameters: int) -> None:
    """Raises ValueError if a model and the file of its weights cannot be in memory at once."""
    # The variables and the arrays of the file.
    room, least = resources.room(), 2 * _BYTES * parameters
    if room is not None and least > room.size:
        raise ValueError(
            f"a model of {parameters:,} parameters is read in {_text(least)} of memory at the "
            f"least, and {_text(room.size)} are available ({room.limit})"
        )


def _that_fit(
    config: ml_collections.ConfigDict,
    need: Callable[[ml_collections.ConfigDict], Need],
    presets: Iterable[ml_collections.ConfigDict],
    room: Room,
) -> Iterator[str]:
    """Yields flags that make training fit: a smaller batch, another preset."""
    smaller = ml_collections.ConfigDict(config.to_dict())
    while smaller.data.batch_size > 1:
        smaller.data.batch_size //= 2
        if need(smaller).about <= room.size:
            yield f"--config.data.batch_size={smaller.data.batch_size}"
            break
    fitting = []
    for other in presets:
        with contextlib.suppress(ValueError):  # it does not suit the data
            size = need(other).about
            if other.preset != config.preset and size <= room.size:
                fitting.append((size, other.preset))
    if fitting:
        yield f"--preset={max(fitting)[1]}"


def _text(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
