"""Nests of tensors, compared."""

import numpy as np
import tensorflow as tf


def assert_close(actual, expected, tolerance):
    """Compares two nests of as many tensors, by relative and absolute differences."""
    actual, expected = tf.nest.flatten(actual), tf.nest.flatten(expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(
            np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance
        )
