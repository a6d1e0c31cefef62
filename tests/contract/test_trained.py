"""`fit`, `predict`, `generate` and stateful layers on JAX and torch."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisClassifier, TrellisLayer, TrellisLM
from keras_trellis.recurrent import IRCLSTM
from tests import ROOT
from tests.contract import tensors

pytestmark = [
    pytest.mark.skipif(
        tensors.BACKEND == "tensorflow", reason="tests/keras_trellis has them"
    ),
    tensors.not_in_float64_on_jax,
]
V, ROWS, STEPS = 7, 4, 6
RNG = np.random.default_rng(0)
TEXT = np.cumsum(RNG.integers(1, 3, (32, STEPS + 1)), axis=1) % V
IDS, TARGETS = TEXT[:, :-1], TEXT[:, 1:]
X = RNG.normal(size=(ROWS, STEPS, 3)).astype("float32")


def test_the_library_does_not_import_tensorflow():
    program = "import keras_trellis, sys; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


@pytest.fixture(scope="module")
def language_model():
    keras.utils.set_random_seed(1)
    layer = TrellisLayer(8, 3, output_units=6, dropout=0.1, recurrent_dropout=0.1)
    model = TrellisLM(V, layer, embedding_units=6, output_dropout=0.1)
    model.compile(keras.optimizers.Adam(0.02))
    return model


def test_a_language_model_learns_and_writes(language_model):
    model = language_model
    before = model.evaluate(IDS, TARGETS, verbose=0)
    model.fit(IDS, TARGETS, epochs=15, batch_size=8, verbose=0)
    assert model.evaluate(IDS, TARGETS, verbose=0) < 0.8 * before
    written = np.asarray(model.generate(IDS[:2], 10, temperature=0))
    for length in range(IDS.shape[1], written.shape[1]):
        logits = model.predict(written[:, :length], verbose=0)
        assert_array_equal(written[:, length], logits[:, -1].argmax(-1))
    drawn = [np.asarray(model.generate(IDS[:2], 15, seed=seed)) for seed in (3, 3, 4)]
    assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize("wrong", [V, -1])
def test_an_id_outside_of_the_vocabulary_is_never_another_word(language_model, wrong):
    ids = IDS.copy()
    ids[0, 0] = wrong
    with pytest.raises(ValueError, match="must be"):
        language_model.score(ids, TARGETS)
    if tensors.BACKEND == "jax":
        assert np.isnan(language_model.evaluate(ids, TARGETS, verbose=0))
    else:
        with pytest.raises(ValueError, match="must be"):
            language_model.evaluate(ids, TARGETS, verbose=0)


def test_a_classifier_learns_and_comes_back(tmp_path):
    labels = RNG.integers(0, 2, 32)
    x = (RNG.normal(size=(32, STEPS, 2)) + 2 * labels[:, None, None]).astype("float32")
    model = TrellisClassifier(2, TrellisLayer(6, 2))
    model.compile(keras.optimizers.Adam(0.03), metrics=["accuracy"])
    model.fit(x, labels, epochs=15, batch_size=8, verbose=0)
    _, accuracy = model.evaluate(x, labels, verbose=0)
    assert accuracy > 0.9
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_allclose(again.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6)


@pytest.mark.skipif(tensors.BACKEND == "jax", reason="JAX refuses it, test_jax.py")
@pytest.mark.parametrize(
    "layer",
    [TrellisLayer(4, 3, seed=1), IRCLSTM(4, seed=1)],
    ids=["TrellisLayer", "IRCLSTM"],
)
def test_dropout_that_is_set_once_a_layer_is_built_acts_in_fit(layer):
    model = keras.Sequential([keras.Input((STEPS, 3)), layer])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    losses = []
    for rate in (0.0, 0.0, 0.5, 0.5):
        layer.dropout = rate
        losses.append(model.train_on_batch(X, np.ones((ROWS, 4))))
    assert losses[0] == losses[1] != losses[2] != losses[3]
