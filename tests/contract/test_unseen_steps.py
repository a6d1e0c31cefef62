"""A trellis network that is asked for one answer to more steps than it sees says so, once."""

import warnings

import keras
import numpy as np
import pytest

import keras_trellis
from keras_trellis import EquilibriumTrellisLayer, TrellisClassifier, TrellisLayer
from tests.contract import tensors

pytestmark = tensors.not_in_float64_on_jax
ROWS, STEPS = 4, 30
X = np.random.default_rng(0).normal(size=(ROWS, STEPS, 1)).astype("float32")
SEEN = "sees 9 of 30 time steps"


def short(**arguments):
    """A layer that sees 9 steps."""
    return TrellisLayer(3, depth=8, **arguments)


def warned(run):
    """Returns the warnings of this library while something runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    texts = [str(warning.message) for warning in caught]
    places = [place for place, text in enumerate(texts) if "time steps" in text]
    assert all(caught[place].category is UserWarning for place in places)
    return [caught[place] for place in places]


def texts(run):
    return [str(warning.message) for warning in warned(run)]


def functional(layer, steps=STEPS):
    inputs = keras.Input((steps, 1))
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    model.compile("sgd", "mse")
    return model


def fit(model):
    model.fit(X, np.zeros((ROWS, 1)), batch_size=2, epochs=2, verbose=0)


RUNS = {
    "called": lambda layer: layer(X),
    "called in training": lambda layer: layer(X, training=True),
    "called with a mask": lambda layer: layer(X, mask=np.ones((ROWS, STEPS), bool)),
    "traced": lambda layer: tensors.traced(built(layer))(X),
    "fitted": lambda layer: fit(functional(layer)),
    "fitted without a length": lambda layer: fit(functional(layer, None)),
    "fitted in a Sequential": lambda layer: fit_sequential(layer),
    "predicted": lambda layer: functional(layer).predict(X, verbose=0),
    "of each channel": lambda layer: keras.layers.TimeDistributed(layer)(X[:, None]),
}


def fit_sequential(layer):
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    fit(model)


@pytest.mark.parametrize("how", RUNS)
def test_it_warns_once(how):
    layer = short(name="trellis")
    (warning,) = warned(lambda: RUNS[how](layer))
    assert f"'trellis' {SEEN}" in str(warning.message)
    assert "Received: depth=8, dilation_rate=[1]" in str(warning.message)
    assert warning.filename == __file__
    assert not warned(lambda: layer(X[:2]))
    assert not warned(lambda: layer(X, training=True))


def test_after_training_on_what_it_sees_it_warns_in_training_alone():
    """As where a model of windows reads a whole recording, beside its stream."""
    layer = short()
    model = functional(layer, None)
    model.fit(X[:, :9], np.zeros((ROWS, 1)), verbose=0)
    assert not warned(lambda: model(X))
    assert len(warned(lambda: model(X, training=True))) == 1


def test_both_directions_warn():
    wrapped = keras.layers.Bidirectional(short(name="levels"))
    said = texts(lambda: fit(functional(wrapped)))
    assert len(said) == 2
    for direction, text in zip(("forward", "backward"), said, strict=True):
        assert f"'{direction}_levels' {SEEN}" in text


def test_a_classifier_warns():
    model = TrellisClassifier(2, short())
    (said,) = texts(lambda: [model(X), model.predict(X, verbose=0)])
    assert SEEN in said


QUIET = {
    "it sees all": lambda: TrellisLayer(3, 8, dilation_rate=[1, 2, 4, 8])(X),
    "as many as it sees": lambda: short()(X[:, :9]),
    "all outputs": lambda: short(return_sequences=True)(X),
    "all outputs but some": lambda: short(return_sequences=True)(X, discard=29),
    "stateful": lambda: short(stateful=True)(X),
    "whole sequences": lambda: built(short()).propagate(X),
    "some outputs": lambda: built(short()).propagate(X, discard=2),
    "an equilibrium": lambda: EquilibriumTrellisLayer(3, groups=3)(X),
    "streamed": lambda: stream(short()),
    "a model of chunks": lambda: stream_model(short()),
    "symbols": lambda: functional(short()),
}


def built(layer):
    layer.build((None, None, 1))
    return layer


def stream(layer):
    layer = built(layer)
    return layer.stream(X, layer.get_initial_cache(ROWS))


def stream_model(layer):
    model = keras_trellis.StreamedModel(functional(layer, None))
    return model.stream(X, model.get_initial_cache(ROWS))


@pytest.mark.parametrize("how", QUIET)
def test_what_can_see_its_steps_or_is_not_asked_is_quiet(how):
    assert not warned(QUIET[how])


@pytest.mark.skipif(tensors.BACKEND != "tensorflow", reason="a graph of TensorFlow")
def test_a_graph_of_unknown_lengths_is_quiet():
    import tensorflow as tf

    layer = built(short())
    run = tf.function(layer, input_signature=[tf.TensorSpec([None, None, 1])])
    assert not warned(lambda: run(X))


def test_a_loaded_model_is_quiet(tmp_path):
    """Whoever trained it has been told."""
    model, path = functional(short()), tmp_path / "model.keras"
    model.save(path)
    loaded = []
    assert not warned(lambda: loaded.append(keras.models.load_model(path)))
    assert not warned(lambda: loaded[0].predict(X, verbose=0))
    copy = keras.models.clone_model(model)
    assert len(warned(lambda: copy(X))) == 1


def test_a_layer_that_must_not_warn_does_not():
    layer = short()
    layer.warns_unseen_steps = False
    assert not warned(lambda: layer(X))
