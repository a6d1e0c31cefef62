"""Contiguous streams of tokens, and the windows that training and evaluation take from them.

The training step alone determines its window. So a run that goes on needs no saved position.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

_ALIGNMENT = 64  # bytes; TensorFlow shares memory that is so aligned


def contiguous_streams(ids: np.ndarray, batch_size: int) -> np.ndarray:
    """Cuts a text into `batch_size` contiguous streams; drops the tokens that remain.

    Args:
        ids: Token ids [N].
        batch_size: The number of streams, B.

    Returns:
        A view [B, N // B]; row b continues row b - 1.
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
        length: The length N of the streams, at least `discard` + 2; they have N - 1 targets.
        window: Time steps in a window, T.
        discard: Time steps at its start that are not scored, fewer than `window`.
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

    def of(self, streams: np.ndarray, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a window's part of streams [B, N]: its ids and targets, each [B, T]."""
        start, stop = self.bounds(index)
        return streams[:, start:stop], streams[:, start + 1 : stop + 1]


def windows_dataset(
    streams: np.ndarray, windows: Windows, *, epochs: int = 1, first_step: int = 0
) -> tf.data.Dataset:
    """Returns the batches of a run, from any global training step to its end.

    Args:
        streams: Token ids [B, N], int32. Ids mapped from a file stay there; a window reads only
            its own.
        windows: The windows over them.
        epochs: Passes over the streams in the whole run.
        first_step: The global step of the first batch, from 0 to epochs * windows.count.

    Returns:
        A prefetching dataset of known cardinality, of (ids, targets), each [B, T] int32. T is
        `windows.window`, or less in an epoch's last window.
    """
    # Cut in TensorFlow, so that the thread that prefetches never waits for Python. Cut from a
    # variable: a data set takes its handle, but would copy a tensor.
    with tf.device("CPU:0"):
        ids = tf.Variable(_tensor(streams), trainable=False)
        bounds = tf.constant(
            [windows.bounds(index) for index in range(windows.count)], "int64"
        )

    def batch(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        start, stop = tf.unstack(bounds[step % windows.count])
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
