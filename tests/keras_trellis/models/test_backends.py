"""Models on JAX against the same models on TensorFlow, from the files that TensorFlow saves."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_trellis
from keras_trellis import TrellisClassifier, TrellisLayer, TrellisLM

V, E, B, T, CLASSES = 11, 4, 3, 6, 3
HEADS = {
    "tied": keras_trellis.heads.TiedSoftmax,
    "mixture": lambda: keras_trellis.heads.MixtureOfSoftmaxes(2, epsilon=1e-6),
    "adaptive": lambda: keras_trellis.heads.AdaptiveSoftmax((4, 7)),
}

PROGRAM = """
import sys, keras, numpy as np
import keras_trellis
from keras import ops
from keras_trellis.heads import blockwise

blockwise.WORDS, blockwise.BLOCK = 3, 6  # many tiles, the last of them not full
assert keras.backend.backend() == "jax" and "tensorflow" not in sys.modules
V = 11
given = np.load("given.npz")
ids, targets = given["ids"], given["targets"]
rows, _ = ids.shape

def close(value, name):
    np.testing.assert_allclose(ops.convert_to_numpy(value), given[name], atol=2e-5, rtol=2e-5)

def refused(call, message):
    try:
        call()
    except (ValueError, ImportError) as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)

# Eagerly JAX compiles each operation, so that what follows is done for one head alone.
model = keras.models.load_model("tied.keras")
nll, cache = model.score(ids[:, :2], targets[:, :2], cache=model.get_initial_cache(rows))
close(nll, "tied.chunk")
close(ops.stack(model.loss_terms(ids, targets)[0]), "tied.terms")

def continued(ids, **sampling):
    return model.generate(ids, 16, stop_token_ids=[1], forbidden_ids=[2], **sampling)

np.testing.assert_array_equal(continued(ids, temperature=0), given["tied.greedy"])
# A row's text follows the seed and no neighbour, and the weights as they are now.
sampling = {"temperature": 1.5, "top_k": 9, "top_p": 0.95}
text = continued(ids, seed=4, **sampling)
np.testing.assert_array_equal(text, given["tied.drawn"])  # as TensorFlow draws
np.testing.assert_array_equal(continued(ids[:1], seed=4, **sampling), text[:1])
assert np.any(continued(ids, seed=5, **sampling) != text)
assert np.any(continued(ids, **sampling) != continued(ids, **sampling))
table = model.embedding.embeddings.value
model.embedding.embeddings.assign(-table)
assert np.any(continued(ids, seed=4, **sampling) != text)

heads = []
for head in ("tied", "mixture", "adaptive"):
    model = keras.models.load_model(f"{head}.keras")
    close(model.predict(ids, verbose=0), f"{head}.logits")
    model.compile(keras.optimizers.SGD(0.5))
    history = model.fit(ids, targets, epochs=3, shuffle=False, verbose=0).history
    close(history["loss"], f"{head}.losses")
    assert history["loss"][-1] < history["loss"][0]
    close(model.embedding.embeddings, f"{head}.table")
    heads.append(model.head)

refused(lambda: __import__("keras_trellis.export"), "with KERAS_BACKEND=tensorflow")

# What is no word is an error where it is seen, and never another word.
for wrong in (V, -1, 2**32):
    spoiled = ids.copy()
    spoiled[0, 1] = wrong
    for call in (
        lambda: model(spoiled),
        lambda: model.score(spoiled, targets),
        lambda: model.score(ids, spoiled),
        lambda: model.generate(spoiled, 16),
    ):
        refused(call, "must be")
for wrong in (V, -1):
    spoiled = ids.copy()
    spoiled[0, 1] = wrong
    assert np.isnan(model.evaluate(spoiled, targets, verbose=0))
    assert np.isnan(model.evaluate(ids, spoiled, verbose=0))
    features = ops.ones((*ids.shape, 4))
    for head in heads:
        nll = head.nll(features, spoiled, model.embedding.embeddings)
        np.testing.assert_array_equal(np.isnan(nll), spoiled == wrong)

model = keras.models.load_model("classifier.keras")
close(model(given["sequences"]), "classifier.logits")
model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
history = model.fit(
    given["sequences"], given["labels"], epochs=2, shuffle=False, verbose=0
).history
close(history["loss"], "classifier.losses")
close(model.predict(given["sequences"], verbose=0), "classifier.predicted")
labels = given["labels"].copy()
labels[0] = -1
assert np.isnan(model.evaluate(given["sequences"], labels, verbose=0)[0])
model.save("back.keras")
"""


def language_model(head):
    depth = 3 if head == "tied" else 1
    dilations = (1, 2)[:depth]
    layer = TrellisLayer(5, depth, output_units=E, dilation_rate=dilations)
    model = TrellisLM(
        V,
        layer,
        embedding_units=E,
        head=HEADS[head](),
        auxiliary_every=min(depth, 2),
        auxiliary_weight=0.3,
        activation_weight=2.0,
        temporal_weight=1.0,
    )
    return randomized(model)


def randomized(model):
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(0.5 * rng.normal(size=variable.shape))
    return model


def language_answers(model, head, ids, targets):
    """Returns what the program looks at, and trains the model."""
    before = {"logits": model(ids)}
    if head == "tied":
        ends = {"stop_token_ids": [1], "forbidden_ids": [2]}
        sampling = {"temperature": 1.5, "top_k": 9, "top_p": 0.95}
        before |= {
            "chunk": model.score(ids[:, :2], targets[:, :2])[0],
            "terms": np.stack(model.loss_terms(ids, targets)[0]),
            "greedy": model.generate(ids, 16, temperature=0, **ends),
            "drawn": model.generate(ids, 16, seed=4, **sampling, **ends),
        }
    model.compile(keras.optimizers.SGD(0.5))
    history = model.fit(ids, targets, epochs=3, shuffle=False, verbose=0).history
    after = {"losses": history["loss"], "table": model.embedding.embeddings.numpy()}
    return {f"{head}.{name}": value for name, value in (before | after).items()}


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs JAX")
def test_models_of_tensorflow_answer_and_train_alike_on_jax(tmp_path):
    rng = np.random.default_rng(1)
    text = rng.integers(0, V, (B, T + 1))
    given = {"ids": text[:, :-1], "targets": text[:, 1:]}
    for head in HEADS:
        model = language_model(head)
        model.save(tmp_path / f"{head}.keras")
        given |= language_answers(model, head, given["ids"], given["targets"])

    layer = TrellisLayer(5, 2, output_units=CLASSES)
    model = TrellisClassifier(CLASSES, layer, permutation=rng.permutation(T))
    sequences = rng.normal(size=(4, T, 2)).astype("float32")
    labels = rng.integers(0, CLASSES, 4)
    model.build((None, None, 2))
    randomized(model).save(tmp_path / "classifier.keras")
    given |= {"sequences": sequences, "labels": labels}
    given["classifier.logits"] = model(sequences)
    model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    history = model.fit(sequences, labels, epochs=2, shuffle=False, verbose=0).history
    given["classifier.losses"] = history["loss"]
    given["classifier.predicted"] = model.predict(sequences, verbose=0)

    np.savez(tmp_path / "given.npz", **given)
    environment = os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    back = keras.models.load_model(tmp_path / "back.keras")
    np.testing.assert_allclose(
        back(sequences), given["classifier.predicted"], atol=2e-5, rtol=2e-5
    )
