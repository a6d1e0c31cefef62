"""What half precision costs on this machine."""

import time

import tensorflow as tf

_SIZE = 256  # of a product that takes a millisecond
_TRIALS = 5


def slowdown() -> float:
    """Returns how many times as long a product takes in bfloat16 as in float32.

    A processor with instructions for bfloat16 takes about half as long, one without them several
    times as long.
    """
    half, single = map(_seconds, (tf.bfloat16, tf.float32))
    return half / single


def _seconds(dtype: tf.DType) -> float:
    """Returns the least time of a product."""
    matrix = tf.ones([_SIZE, _SIZE], dtype)
    seconds = []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        tf.matmul(matrix, matrix).numpy()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
