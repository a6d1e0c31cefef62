"""The model whose answers an export gives, in each precision."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisClassifier, TrellisLayer, TrellisLM, heads
from keras_trellis.export.weights import Weights, inference_model
from tests.refusals import refuses

OF_LAYER = {
    "weight_normalization",
    "groups",
    "dropout",
    "recurrent_dropout",
    "output_units",
    "gate",
    "seed",
}
IDS = np.random.default_rng(0).integers(11, size=(2, 7))


def language_model(**arguments):
    keras.utils.set_random_seed(3)
    of_layer = {
        "output_units": 6,
        "recurrent_initializer": keras.initializers.RandomNormal(stddev=0.5),
    }
    for name in OF_LAYER & arguments.keys():
        of_layer[name] = arguments.pop(name)
    of_layer.setdefault("dtype", arguments.get("dtype"))
    return TrellisLM(11, TrellisLayer(8, 3, **of_layer), embedding_units=6, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"weight_normalization": True},
        {"weight_normalization": True, "groups": 2},
        {"dropout": 0.5, "embedding_dropout": 0.5, "recurrent_dropout": 0.5, "seed": 1},
        {"head": heads.MixtureOfSoftmaxes(3, epsilon=1e-3), "output_units": 5},
        {"head": heads.AdaptiveSoftmax((4, 7)), "gate": "gru"},
        {"dtype": "float64"},
    ],
    ids=str,
)
def test_it_gives_the_answers_of_the_model(arguments):
    model = language_model(**dict(arguments))
    for variable in model.trainable_variables:
        if "scale" in variable.path:
            variable.assign(variable * 1.3)
    copy = inference_model(model)
    assert copy.compute_dtype == "float32"
    assert copy.trellis.weight_normalization == ("groups" in arguments)
    assert_allclose(copy(IDS), model(IDS), atol=1e-5)


def test_it_computes_in_float32_where_the_model_does_not():
    model = language_model(dtype="mixed_bfloat16")
    exact = language_model()
    exact.set_weights(model.get_weights())
    assert_allclose(inference_model(model)(IDS), exact(IDS), atol=1e-5)


def test_a_classifier():
    layer = TrellisLayer(8, 3, output_units=4, weight_normalization=True)
    model = TrellisClassifier(4, layer, permutation=[3, 1, 0, 2], dropout=0.5)
    sequences = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    expected = model(sequences)
    copy = inference_model(model)
    assert_allclose(copy(sequences), expected, atol=1e-5)
    assert copy.permutation == (3, 1, 0, 2)


@pytest.mark.usefixtures("quiet_library")
def test_what_has_been_trained_does_not_warn_of_its_receptive_field():
    model = TrellisClassifier(4, TrellisLayer(8, 3))
    model.build((None, None, 3))
    inference_model(model)(np.zeros((2, 9, 3)))


def test_layers_of_keras_too():
    lstm = keras.layers.LSTM(6, dropout=0.5, recurrent_dropout=0.5, dtype="float64")
    model = TrellisLM(
        11, [lstm, keras.layers.GRU(6, dtype="float64")], embedding_units=6
    )
    copy = inference_model(model)
    assert {each.dtype for each in copy.weights} == {"float32"}
    assert_allclose(copy(IDS, training=True), model(IDS), atol=1e-5)


def test_the_model_stays_as_it_is():
    model = language_model(weight_normalization=True)
    before = [np.array(each) for each in model.get_weights()]
    inference_model(model, "int8")
    for weight, value in zip(model.get_weights(), before, strict=True):
        assert_array_equal(weight, value)


def test_float16_rounds_kernels_and_word_vectors_alone():
    model = language_model()
    copy = inference_model(model, "float16")
    for rounded, variable in zip(copy.weights, model.weights, strict=True):
        value = np.asarray(variable)
        expected = (
            value.astype("float16").astype("float32") if value.ndim > 1 else value
        )
        assert_array_equal(rounded, expected)


def test_int8_has_a_scale_for_each_output_channel_and_each_word():
    model = language_model()
    model.embedding.embeddings.assign(
        model.embedding.embeddings * np.linspace(0, 9, 11)[:, None]
    )
    copy = inference_model(model, "int8")
    for rounded, variable in zip(copy.weights, model.weights, strict=True):
        value, rounded = np.asarray(variable), np.asarray(rounded)
        if value.ndim < 2:
            assert_array_equal(rounded, value)
            continue
        axes = (1,) if variable.name == "embeddings" else tuple(range(value.ndim - 1))
        step = np.abs(value).max(axes, keepdims=True) / 127
        assert np.all(np.abs(rounded - value) <= step / 2 + 1e-7)
        assert np.any(rounded != value)


@pytest.mark.parametrize(
    "precision, dtype", [("float16", tf.float16), ("int8", tf.int8)]
)
def test_what_is_kept_is_what_the_model_has(precision, dtype):
    copy = inference_model(language_model(), precision)
    weights = Weights(copy, precision)
    kept = {each.dtype for module in weights.stored for each in module.variables}
    assert kept == {dtype, tf.float32}
    for variable, stored in zip(copy.weights, weights.stored, strict=True):
        assert_allclose(stored.read(), variable, rtol=1e-6)
    copied = weights.call(lambda: copy(IDS))
    assert_allclose(copied, copy(IDS), rtol=1e-5)


@pytest.fixture(scope="module", params=["float16", "int8"])
def saved(request, tmp_path_factory):
    """A SavedModel of a model's embedding alone, in less precision, and the embedding."""
    copy = inference_model(language_model(), request.param)
    weights, module = Weights(copy, request.param), tf.Module()
    module.weights = weights.stored
    function = tf.function(lambda ids: {"found": weights.call(copy.embedding, ids)})
    signature = function.get_concrete_function(tf.TensorSpec([None], tf.int32, "ids"))
    folder = str(tmp_path_factory.mktemp("saved"))
    tf.saved_model.save(module, folder, signatures={"serving_default": signature})
    return folder, copy.embedding


def test_weights_are_decoded_as_a_saved_model_is_loaded(saved):
    folder, embedding = saved
    ids = np.arange(11, dtype="int32")
    # Each with variables of its own.
    loaded = [tf.saved_model.load(folder) for _ in range(2)]
    for each in loaded:
        found = each.signatures["serving_default"](ids=tf.constant(ids))["found"]
        assert_allclose(found, embedding(ids), rtol=1e-6)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # as a server does
        signature = tf.compat.v1.saved_model.load(
            session, ["serve"], folder
        ).signature_def
        ends = signature["serving_default"]
        found = session.run(ends.outputs["found"].name, {ends.inputs["ids"].name: ids})
    assert_allclose(found, embedding(ids), rtol=1e-6)


def test_no_call_decodes_weights(saved):
    function = tf.saved_model.load(saved[0]).signatures["serving_default"]
    library = function.graph.as_graph_def().library.function
    names = {node.op for each in library for node in each.node_def}
    assert "ReadVariableOp" in names and "Cast" not in names


def test_an_unknown_precision():
    with refuses("`precision` must be one of float32, float16, int8"):
        inference_model(language_model(), "int4")
