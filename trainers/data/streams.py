"""Contiguous streams of tokens, and the windows that training and evaluation take from them.

The training step alone determines its window. So a run that goes on needs no saved position.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

_ALIGNMENT = 64  # bytes; TensorFlow shares memory that is so aligned
# The recipe of Merity et al. 2018 (salesforce/awd-lstm-lm) draws the lengths of windows.
_HALVED = 0.05  # the probability that a window is about half as long
_DEVIATION = 5.0
_LEAST = 5

Bounds = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""From a step of a run to its window's range [start, stop) of inputs, in TensorFlow."""


class AnyWindows(Protocol):
    """What `windows_dataset` cuts.

    Attributes:
        count: the number of windows in one pass.
    """

    @property
    def count(self) -> int:
        """The number of windows in one pass."""

    def step_bounds(self) -> Bounds:
        """Returns the function from a step of the run to its window."""


def contiguous_streams(ids: np.ndarray, batch_size: int) -> np.ndarray:
    """Cuts a text into `batch_size` contiguous streams; drops the tokens that remain.

    Args:
        ids: token ids `[N]`.
        batch_size: the number of streams, B.

    Returns:
        a view `[B, N // B]`; row b continues row b - 1.
    """
    length = len(ids) // batch_size
    return ids[: batch_size * length].reshape(batch_size, length)


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of one pass over streams, as in the released scripts.

    The first `discard` targets of a window are not scored: they give the network its history.
    The windows overlap, so that each target is scored once, except the first `discard` of a
    stream. The last window may be shorter. A window with nothing to score is left out.

    Attributes:
        length: the length N of the streams, at least `discard` + 2; they have N - 1 targets.
        window: time steps in a window, T.
        discard: time steps at its start that are not scored, fewer than `window`.
    """

    length: int
    window: int
    discard: int = 0

    @property
    def stride(self) -> int:
        """The time steps between the starts of two windows; a whole window scores as many."""
        return self.window - self.discard

    @property
    def count(self) -> int:
        """The number of windows, one for each training step of an epoch."""
        return -(-(self.length - 1 - self.discard) // self.stride)

    def bounds(self, index: int) -> tuple[int, int]:
        """Returns the range [start, stop) of a window's inputs; targets come one step later."""
        start = index * self.stride
        return start, min(start + self.window, self.length - 1)

    def step_bounds(self) -> Bounds:
        """Returns the function from a step of the run to its window."""
        every = [self.bounds(index) for index in range(self.count)]
        table = tf.constant(every, "int64")

        def bounds(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            start, stop = tf.unstack(table[step % self.count])
            return start, stop

        return bounds

    def select(self, streams: np.ndarray, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a window's part of streams `[B, N]`: its ids and targets, each `[B, T]`."""
        start, stop = self.bounds(index)
        return streams[:, start:stop], streams[:, start + 1 : stop + 1]


@dataclasses.dataclass(frozen=True)
class DrawnWindows:
    """Windows of drawn lengths, so that epochs cut the streams at different places.

    A length is a draw from the normal distribution of mean `window`, or with probability 0.05 of
    half that mean, and of deviation 5; it is cut to an integer and at least 5 (Merity et al. 2018).
    Their code draws anew in each epoch. Here each epoch has the same lengths in another order, so
    that all epochs have as many steps. The last length drawn ends with the streams.

    Attributes:
        length: the length N of the streams, at least 2; they have N - 1 targets, each scored.
        window: the mean number of time steps in most windows.
        seed: determines the lengths, and with the epoch their order.
    """

    length: int
    window: int
    seed: int

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The lengths of the windows as they were drawn, int64 `[count]`."""
        generator = np.random.default_rng(self.seed)
        left, lengths = self.length - 1, []
        while left:
            halved = generator.random() < _HALVED
            mean = self.window / 2 if halved else self.window
            drawn = max(_LEAST, int(generator.normal(mean, _DEVIATION)))
            lengths.append(min(drawn, left))
            left -= lengths[-1]
        return np.array(lengths, "int64")

    @property
    def count(self) -> int:
        """The number of windows, one for each training step of an epoch."""
        return len(self.lengths)

    def step_bounds(self) -> Bounds:
        """Returns the function from a step of the run to its window."""
        lengths = tf.constant(self.lengths)

        def bounds(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            ordered = self._ordered(lengths, step // self.count)
            index = step % self.count
            stop = tf.cumsum(ordered)[index]
            return stop - ordered[index], stop

        return bounds

    def epoch_bounds(self, epoch: int) -> np.ndarray:
        """Returns the ranges [start, stop) of the windows of an epoch from 0 on, `[count, 2]`."""
        ordered = self._ordered(self.lengths, tf.constant(epoch, "int64")).numpy()
        stops = np.cumsum(ordered)
        return np.stack([stops - ordered, stops], axis=-1)

    def _ordered(self, lengths: Any, epoch: tf.Tensor) -> tf.Tensor:
        """Returns the lengths in the order of an epoch."""
        seeds = tf.stack([self.seed, epoch])
        draws = tf.random.stateless_uniform(
            [self.count], seeds, dtype="float64", alg="philox"
        )
        return tf.gather(lengths, tf.argsort(draws, stable=True))


def windows_dataset(
    streams: np.ndarray, windows: AnyWindows, *, epochs: int = 1, first_step: int = 0
) -> tf.data.Dataset:
    """Returns the batches of a run, from any global training step to its end.

    Args:
        streams: token ids `[B, N]`, int32. Ids mapped from a file stay there; a window reads only
            its own.
        windows: the windows over them.
        epochs: passes over the streams in the whole run.
        first_step: the global step of the first batch, from 0 to epochs * windows.count.

    Returns:
        a prefetching dataset of known cardinality, of (ids, targets), each `[B, T]` int32. T is the
        length of the window.
    """
    # Cut in TensorFlow, so that the thread that prefetches never waits for Python. Cut from a
    # variable: a data set takes its handle, but would copy a tensor.
    with tf.device("CPU:0"):
        ids = tf.Variable(_tensor(streams), trainable=False)
        bounds = windows.step_bounds()

    def batch(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        start, stop = bounds(step)
        return ids[:, start:stop], ids[:, start + 1 : stop + 1]

    steps = tf.data.Dataset.range(first_step, epochs * windows.count)
    return steps.map(batch).prefetch(tf.data.AUTOTUNE)


def _tensor(streams: np.ndarray) -> tf.Tensor:
    """Returns streams as a tensor; those mapped from a file share its memory."""
    mapped: Any = streams
    while isinstance(mapped.base, np.memmap):
        mapped = mapped.base
    path = getattr(mapped, "filename", None)
    address = streams.ctypes.data
    if path is None or address % _ALIGNMENT or not streams.flags.c_contiguous:
        return tf.constant(streams, "int32")
    # DLPack refuses read-only memory. So map a private copy, whose changes would reach no file.
    offset = mapped.offset + address - mapped.ctypes.data
    writable = np.memmap(path, streams.dtype, "c", offset, streams.shape)
    return tf.cast(tf.experimental.dlpack.from_dlpack(writable.__dlpack__()), "int32")
