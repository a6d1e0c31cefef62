"""The batches of a run as data sets of TensorFlow: windows of streams, and shuffled examples.

The training step alone determines a batch. So a run that goes on needs no saved position.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from trainers.data.shuffling import steps_per_epoch
from trainers.data.streams import AnyWindows

_ALIGNMENT = 64  # bytes; TensorFlow shares memory that is so aligned


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
        every = windows.every(epochs)
        bounds = tf.constant(every, "int64")

    def batch(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        start, stop = tf.unstack(bounds[step % len(every)])
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


def order(count: int, seed: int, epoch: Any) -> tf.Tensor:
    """Returns the order of `count` examples in an epoch, counted from 0: their places, int32."""
    # Draw in TensorFlow, so that the thread that prefetches never waits for Python. Draw as many
    # bits as there are, so that hardly two draws are equal: equal ones would keep their order.
    draws = tf.random.stateless_uniform(
        [count], tf.stack([seed, epoch]), dtype="float64", alg="philox"
    )
    return tf.argsort(draws, stable=True)


def batches_dataset(
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    batch_size: int,
    seed: int,
    epochs: int = 1,
    first_step: int = 0,
) -> tf.data.Dataset:
    """Returns the batches of a run, from any global step to its end.

    Each epoch has every example once.

    Args:
        inputs: sequences `[N, T, p]`.
        targets: what the model shall predict, `[N, ...]`.
        batch_size: examples in a batch, B.
        seed: the seed of the epochs' orders.
        epochs: passes over the examples in the whole run.
        first_step: the global step of the first batch, from 0 to epochs * steps_per_epoch(N, B).

    Returns:
        a prefetching dataset of known cardinality, of (inputs `[B, T, p]`, targets `[B, ...]`), in
        the arrays' dtypes. If B does not divide N, an epoch's last batch is shorter.
    """
    count = len(inputs)
    steps = steps_per_epoch(count, batch_size)
    first_epoch, done = divmod(first_step, steps)

    # Variables: a data set takes their handles, but would copy tensors.
    with tf.device("CPU:0"):
        sequences = tf.Variable(inputs, trainable=False)
        answers = tf.Variable(targets, trainable=False)

    def chosen_in(epoch: tf.Tensor) -> tf.data.Dataset:
        chosen = tf.data.Dataset.from_tensor_slices(order(count, seed, epoch))
        return chosen.batch(batch_size, drop_remainder=count % batch_size == 0)

    def batch(chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(sequences, chosen), tf.gather(answers, chosen)

    chosen = tf.data.Dataset.range(first_epoch, epochs).flat_map(chosen_in).skip(done)
    remaining = tf.data.experimental.assert_cardinality(epochs * steps - first_step)
    return chosen.map(batch).apply(remaining).prefetch(tf.data.AUTOTUNE)
