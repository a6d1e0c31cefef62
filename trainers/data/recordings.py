"""Recordings: series of several channels, of any lengths, and the windows that they are cut in.

A step that lacks a value is a gap: NaN in all of its channels. Models skip it, as they skip the
padding of a window that is longer than its recording.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainers.data.long_memory import Examples
from trainers.data.sequences import SPLITS, SequenceData

NO_CLASS = (
    -1
)  # the target of a step without a class; NaN is that of one without a number
# Standard deviations that the scaling takes. The layer squares that of a channel, in float32, and
# divides by no less than the first. Numbers to predict are multiplied and divided by theirs alone.
_CHANNEL_DEVIATIONS = (1e-7, 1e19)
_NUMBER_DEVIATIONS = (1e-30, 1e30)


class Recording(NamedTuple):
    """One series.

    Attributes:
        name: its name, which no other one has.
        values: `[T, p]`, float32.
        target: what to predict, of the whole series `[]`, or of each step `[T, ...]`: classes,
            int32, or numbers, float32.
        times: of each step, as a file has them; empty if nobody knows them.
    """

    name: str
    values: np.ndarray
    target: np.ndarray
    times: Sequence[str] = ()


class Windows(NamedTuple):
    """Parts of recordings.

    Attributes:
        examples: inputs `[N, W, p]`, float32, and targets `[N]` or `[N, W, ...]`.
        owners: `[N]`, the recording of each, by its place.
    """

    examples: Examples
    owners: np.ndarray


class Facts(NamedTuple):
    """What a model of recordings has to know of its data; a run's folder keeps it.

    Attributes:
        channels: the channels' names, p of them.
        mean: of each channel, over the training recordings.
        deviation: the standard deviation; 1 of a channel that stays the same.
        outputs: how many numbers the network returns for one target.
        every_step: whether each step has a target; else a recording has one.
        window: W, the steps of a training window.
        gaps: whether a training window has a gap or padding.
        classes: their names; empty where numbers are predicted.
        offset: the mean of each predicted number over the training recordings; empty for classes.
        scale: the standard deviation of all of them together.
        period: the time between two steps; None if nobody knows it.
    """

    channels: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    outputs: int
    every_step: bool
    window: int
    gaps: bool
    classes: tuple[str, ...] = ()
    offset: tuple[float, ...] = ()
    scale: float = 1.0
    period: float | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Facts":
        """Returns facts of what JSON made of them, by `_asdict`."""
        lists = {k: tuple(v) for k, v in values.items() if isinstance(v, list)}
        return cls(**{**values, **lists})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesData(SequenceData):
    """The recordings of a task, and windows of them.

    Attributes:
        recordings: those of each split.
        owners: the recording of each window of a split, by its place.
        facts: what a model has to know of them.
        notes: lines about them, for a person.
        levels: the series that is forecast, with its gaps filled; None for other tasks.
    """

    recordings: Mapping[str, Sequence[Recording]]
    owners: Mapping[str, np.ndarray]
    facts: Facts
    notes: tuple[str, ...] = ()
    levels: np.ndarray | None = None

    @property
    def summary(self) -> str:
        """The training windows and recordings in words."""
        count, steps = len(self.recordings["train"]), self.facts.window
        whole = f"{count:,} recordings" if count > 1 else "one recording"
        return f"{self.count:,} training windows of {steps:,} steps, of {whole}"


def whole(values: np.ndarray) -> np.ndarray:
    """Returns which steps of values `[..., p]` have all of their channels: booleans `[...]`."""
    return np.isfinite(values).all(-1)


def with_gaps(values: np.ndarray) -> np.ndarray:
    """Returns values `[T, p]` as float32 whose steps have all channels, or NaN in all."""
    values = np.asarray(values, "float32")
    is_whole = whole(values)[:, None]
    return np.where(is_whole, values, np.float32(np.nan))


def starts(steps: int, window: int, hop: int) -> list[int]:
    """Returns where windows begin in a recording.

    They are `hop` steps apart. One more ends with the recording, if its end would be in none.
    """
    last = max(0, steps - window)
    return [*range(0, last, hop), last]


def cut(recordings: Sequence[Recording], window: int, hop: int) -> Windows:
    """Cuts recordings in windows; a shorter recording is one window with padding.

    A window without a whole step, or without a target, is left out.

    Args:
        recordings: at least one.
        window: W, the steps of a window.
        hop: steps from one beginning to the next.
    """
    inputs, targets, owners = [], [], []
    for owner, recording in enumerate(recordings):
        for start in starts(len(recording.values), window, hop):
            values, target = _part(recording.values, start, window), recording.target
            if target.ndim:
                target = _part(target, start, window)
            if whole(values).any() and known(target).any():
                inputs.append(values)
                targets.append(target)
                owners.append(owner)
    examples = Examples(np.array(inputs), np.array(targets))
    return Windows(examples, np.array(owners, "int32"))


def known(targets: np.ndarray) -> np.ndarray:
    """Returns which targets there are: booleans of their shape."""
    if np.issubdtype(targets.dtype, np.integer):
        return targets != NO_CLASS
    return np.isfinite(targets)


def _part(array: np.ndarray, start: int, window: int) -> np.ndarray:
    """Returns the steps of a window; those beyond the end are padding."""
    part = array[start : start + window]
    is_class = np.issubdtype(array.dtype, np.integer)
    fill = NO_CLASS if is_class else np.nan
    others = [(0, 0)] * (array.ndim - 1)
    padding = [(0, window - len(part)), *others]
    return np.pad(part, padding, constant_values=fill)


def moments(arrays: Sequence[np.ndarray]) -> tuple[tuple[float, ...], ...]:
    """Returns mean and standard deviation of each channel over the whole steps `[T, p]`."""
    steps = np.concatenate(arrays).astype("float64")
    steps = steps[whole(steps)]
    deviation = np.where(np.ptp(steps, 0) > 0, steps.std(0), 1.0)
    return tuple(steps.mean(0).tolist()), tuple(deviation.tolist())


def assemble(
    recordings: Mapping[str, Sequence[Recording]],
    channels: Sequence[str],
    *,
    window: int | None,
    hop: int | None,
    classes: Sequence[str] = (),
    outputs: int | None = None,
    every_step: bool | None = None,
    period: float | None = None,
    **further: Any,
) -> SeriesData:
    """Cuts the recordings of each split, and computes the scaling of the training recordings.

    Args:
        recordings: those of each of `SPLITS`, at least one.
        channels: the channels' names.
        window: the steps of a window; None: those of the longest training recording.
        hop: steps between two windows of a recording; None: as many as a window has.
        classes: the classes' names; empty where numbers are predicted.
        outputs: how many numbers the network returns for one target, if it predicts no targets.
            Default: one for each class or number.
        every_step: whether it returns them at each step. Default: if each step has a target.
        period: the time between two steps.
        **further: `notes` and `levels` of the data.

    Raises:
        ValueError: a split has no window that can be used; or float32 cannot scale a channel, or
            the numbers to predict.
    """
    train = recordings["train"]
    window = window or max(len(recording.values) for recording in train)
    windows = {split: cut(recordings[split], window, hop or window) for split in SPLITS}
    for split, (examples, _) in windows.items():
        if not len(examples.inputs):
            raise ValueError(
                f"the {split} recordings must have a step with all channels, and a target. "
                f"Received: {len(recordings[split]):,} recordings without"
            )
    mean, deviation = moments([recording.values for recording in train])
    for channel, size in zip(channels, deviation, strict=True):
        _check_deviation(f"the channel {channel!r}", size, _CHANNEL_DEVIATIONS)
    predicts_numbers = outputs is None and not classes
    offset, scale = _number_scale(train) if predicts_numbers else ((), 1.0)
    facts = Facts(
        tuple(channels),
        mean,
        deviation,
        outputs or len(classes) or len(offset),
        train[0].target.ndim > 0 if every_step is None else every_step,
        window,
        not whole(windows["train"].examples.inputs).all(),
        tuple(classes),
        offset,
        scale,
        period,
    )
    return SeriesData(
        train=windows["train"].examples,
        validation=windows["validation"].examples,
        test=windows["test"].examples,
        normalise=lambda inputs: inputs,  # the model scales them
        outputs=facts.outputs,
        classes=facts.classes,
        recordings=recordings,
        owners={split: windows[split].owners for split in SPLITS},
        facts=facts,
        **further,
    )


def _number_scale(train: Sequence[Recording]) -> tuple[tuple[float, ...], float]:
    """Returns the mean of each predicted number, and one standard deviation for all."""
    first = train[0].target
    width = first.shape[1] if first.ndim == 2 else 1
    values = np.concatenate(
        [recording.target.reshape(-1, width) for recording in train]
    ).astype("float64")
    means = np.nanmean(values, 0)
    differ = np.nanmax(values, 0) > np.nanmin(values, 0)
    if not differ.any():
        return tuple(means.tolist()), 1.0
    scale = float(np.sqrt(np.nanmean((values - means) ** 2)))
    _check_deviation("the numbers to predict", scale, _NUMBER_DEVIATIONS)
    return tuple(means.tolist()), scale


def _check_deviation(name: str, deviation: float, limits: tuple[float, float]) -> None:
    """Raises ValueError if float32 cannot scale numbers of a standard deviation."""
    least, most = limits
    if not least <= deviation <= most:
        raise ValueError(
            f"{name} must have a standard deviation from {least:g} to {most:g} over the training "
            f"recordings: give other units. Received: {deviation:g}"
        )


def by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yields the places of recordings in groups of about equal lengths, `size` each."""
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    for start in range(0, len(order), size):
        yield order[start : start + size]
