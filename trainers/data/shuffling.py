"""The orders of shuffled examples.

The seed and the epoch alone determine an epoch's order. So a run that goes on needs no saved
position.
"""

import numpy as np

from keras_trellis.formats.philox import stateless_bits

_UPPER = np.uint64(2**20 - 1)  # of the bits of a draw, those of its first word


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Returns the number of batches of `count` examples; the last one may be shorter."""
    return -(-count // batch_size)


def order(count: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the order of `count` examples in an epoch, counted from 0: their places, `[count]`.

    It is `datasets.order`, which TensorFlow computes.
    """
    words = stateless_bits(2 * count, (seed, epoch)).astype(np.uint64)
    # The 52 bits of a float64 from 0 to 1, of which TensorFlow sorts as many.
    draws = (words[::2] & _UPPER) << np.uint64(32) | words[1::2]
    return np.argsort(draws, kind="stable")
