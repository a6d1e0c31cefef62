"""The model that the benchmarks of serving load."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import exported, workers


def test_sizes_are_those_of_the_model(model):
    built = model.build()
    assert model.parameters == built.count_params()
    assert model.receptive_field == built.receptive_field
    kernels = built.trellis.kernel.shape, built.trellis.recurrent_kernel.shape
    assert (model.input_weights, 2 * model.tap_weights) == tuple(map(np.prod, kernels))
    assert model.head_weights == np.prod(built.embedding.embeddings.shape) + 11


def test_the_export_has_the_weights(model):
    loaded = model.load()
    log_probs, cache = exported.empty_cache(loaded, 2)
    ids = tf.constant([3, 4])
    built = model.build()
    expected, _ = built.step(ids, built.get_initial_cache(2))
    found, _ = exported.split(loaded.signatures["step"](ids=ids, **cache))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert log_probs.shape == [2, 11]
    assert 4 * model.parameters < model.size(exported.FULL) < 4 * model.parameters + 2e7


def test_an_export_that_fails_says_why(model, monkeypatch):
    monkeypatch.setattr(
        workers, "measure", lambda builds, *_, **__: ({}, dict.fromkeys(builds, "no room"))
    )
    with pytest.raises(RuntimeError, match="the export in int8: no room"):
        exported.write(model, ["int8"])
