"""`portable_stream` of a layer is its `stream`."""

import numpy as np
import pytest
import tensorflow as tf

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer

# Levels in and above one turn of the loop; an iteration; a stack, which has none.
LAYERS = {
    "levels": lambda: TrellisLayer(6, 4, dilation_rate=(1, 2), gate="gru", dropout=0.5),
    "many levels": lambda: TrellisLayer(4, 11, output_units=2),
    "iteration": lambda: EquilibriumTrellisLayer(
        4, tolerance=1e-6, max_iterations=33, dropout=0.5
    ),
    "few iterations": lambda: EquilibriumTrellisLayer(4, max_iterations=3),
    "stack": lambda: EquilibriumTrellisLayer(6, groups=2, inject_groups=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_it_streams_alike(name):
    tf.random.set_seed(0)
    layer = LAYERS[name]()
    layer.build([None, None, 3])
    random = np.random.default_rng(0)
    cache = layer.get_initial_cache(2)
    for mask in (None, [[True] * 3, [True, False, False]]):
        chunk = random.normal(size=[2, 3, 3]).astype("float32")
        mask = None if mask is None else tf.constant(mask)
        expected = layer.stream(chunk, cache, mask)
        found = layer.portable_stream(tf.constant(chunk), cache, mask)
        for one, other in zip(*map(tf.nest.flatten, (expected, found)), strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5)
        _, cache = expected
