"""Layers of a user's own: examples/linear_attention.py, and what `verify_layer` says of others."""

import keras
import numpy as np
import pytest
from keras import ops

from examples.linear_attention import LinearAttention
from keras_trellis import StreamedModel, TrellisLM
from keras_trellis.testing import PROMISES, verify_layer
from tests.contract import tensors

pytestmark = tensors.not_in_float64_on_jax


@pytest.mark.parametrize("promise", PROMISES)
def test_linear_attention_keeps(promise):
    verify_layer(LinearAttention, promises=[promise])


def test_its_outputs_are_those_of_the_recurrence():
    layer = LinearAttention(6, heads=2, return_sequences=True)
    x = np.random.default_rng(0).normal(size=(2, 9, 4)).astype("float32")
    outputs = ops.convert_to_numpy(layer(x))
    kernel = ops.convert_to_numpy(layer.kernel)
    query, key, value = ((x @ kernel).reshape(2, 9, 3, 2, 3)[:, :, i] for i in range(3))
    memory = np.zeros([2, 2, 3, 3])
    for time in range(9):
        written = key[:, time, :, :, None] * value[:, time, :, None]
        memory = np.array([0.75, 0.875])[:, None, None] * memory + written
        read = np.einsum("bhi,bhij->bhj", query[:, time], memory)
        np.testing.assert_allclose(outputs[:, time], read.reshape(2, 6), atol=1e-5)


def test_a_summary_counts_what_it_multiplies():
    """The kernel, the memory that is read and the one that is written, and the step itself."""
    layer = LinearAttention(8, heads=2, return_sequences=True)
    model = keras.Sequential([keras.Input((None, 4)), layer])
    *_, multiplied = StreamedModel(model).summary().split()
    assert int(multiplied) == 4 * 3 * 8 + 2 * 2 * 4 * 4 + 2 * 8


@pytest.mark.skipif(tensors.BACKEND != "tensorflow", reason="TensorFlow exports")
def test_a_language_model_over_it_is_served(tmp_path):
    pytest.importorskip("tf2onnx")
    from keras_trellis import export
    from keras_trellis.serving import runtime

    model = TrellisLM(5, LinearAttention(8), embedding_units=8)
    vocabulary = ["<eos>", "<unk>", "a", "b", "c"]
    export.export_language_model(model, vocabulary, tmp_path / "own", runtime=True)
    served = runtime.load(tmp_path / "own")
    ids = np.array([[0, 2, 3, 4, 2, 2]])
    nll, _ = model.score(ids[:, :-1], ids[:, 1:])
    scores = served.score(["a b c a a"])
    np.testing.assert_allclose(scores.nll, nll, rtol=1e-4)


def test_an_unknown_promise_is_refused():
    with pytest.raises(ValueError, match=r"`promises` must be of \['rows', .*'speed'"):
        verify_layer(LinearAttention, promises=["speed"])


# Each breaks one promise.


def changed(name, **methods):
    """Makes a layer of its own with other methods."""
    cls = type(name, (LinearAttention,), methods)
    return keras.saving.register_keras_serializable("tests")(cls)


def run_chunk_of(change):
    """Returns a `run_chunk` that does something else than the right one."""

    def run_chunk(self, sequences, cache, mask, training):
        right = super(type(self), self).run_chunk
        return change(right, self, sequences, cache, mask, training)

    return {"run_chunk": run_chunk}


def adds_rows(run, layer, x, *others):
    outputs, cache = run(x, *others)
    return outputs + ops.sum(outputs, axis=0, keepdims=True), cache


def looks_ahead(run, layer, x, *others):
    return run(x + ops.roll(x, -1, axis=1), *others)


def reads_masked_steps(run, layer, x, cache, mask, training):
    return run(x, cache, None, training)


def forgets(run, layer, x, cache, mask, training):
    outputs, after = run(x, cache, mask, training)
    return outputs, after._replace(state=(0.5 * after.state[0],))


def returns_float16(run, layer, *args):
    outputs, cache = run(*args)
    return ops.cast(outputs, "float16"), cache


def has_no_gradient(run, layer, x, cache, mask, training):
    outputs, after = run(x, cache, mask, training)
    return ops.stop_gradient(outputs) + 0 * ops.sum(layer.kernel), after


def is_imprecise(run, layer, *args):
    outputs, cache = run(*args)
    return outputs * (2 if layer.compute_dtype == "bfloat16" else 1), cache


def begins_at_zeros(self, state):
    zeros = tuple(0 * part for part in state)
    return super(type(self), self).cache_of_state(zeros)


def is_not_reset(self):
    return None


def lacks_heads(self):
    return {**super(type(self), self).get_config(), "heads": 4}


BROKEN = {
    "rows": changed("Rows", **run_chunk_of(adds_rows)),
    "causal": changed("Causal", **run_chunk_of(looks_ahead)),
    "masks": changed("Masks", **run_chunk_of(reads_masked_steps)),
    "chunks": changed("Chunks", **run_chunk_of(forgets)),
    "states": changed("States", cache_of_state=begins_at_zeros),
    "stateful": changed("Stateful", reset_state=is_not_reset),
    "shapes": changed("Shapes", **run_chunk_of(returns_float16)),
    "gradients": changed("Gradients", **run_chunk_of(has_no_gradient)),
    "bfloat16": changed("Bfloat16", **run_chunk_of(is_imprecise)),
    "file": changed("File", get_config=lacks_heads),
}


@pytest.mark.skipif(tensors.BACKEND == "jax", reason="JAX is slow to begin")
@pytest.mark.parametrize("promise", PROMISES)
def test_a_broken_promise_is_named(promise):
    message = f"{promise.title()} breaks a promise, that {PROMISES[promise]}. "
    with pytest.raises(AssertionError) as caught:
        verify_layer(BROKEN[promise], promises=[promise])
    assert str(caught.value).startswith(message)
    numeric = "differ by up to" in str(caught.value)
    assert numeric == (promise != "shapes")
