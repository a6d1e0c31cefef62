"""Batches of shuffled examples.

The seed and the epoch alone determine an epoch's order. So a run that goes on needs no saved
position.
"""

from typing import Any

import numpy as np
import tensorflow as tf


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Returns the number of batches of `count` examples; the last one may be shorter."""
    return -(-count // batch_size)


def order(count: int, seed: int, epoch: Any) -> tf.Tensor:
    """Returns the order of `count` examples in an epoch, counted from 0: their places, int32."""
    # Draw in TensorFlow, so that the thread that prefetches never waits for Python. Draw 53 bits,
    # so that hardly two draws are equal: equal ones would keep their order.
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
