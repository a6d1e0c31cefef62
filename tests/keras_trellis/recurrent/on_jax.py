"""The recurrent layers on JAX: `python -m tests.keras_trellis.recurrent.on_jax FOLDER`.

It loads `model.keras` and `data.npz`, which `test_on_jax` has written on TensorFlow. It writes what
the model gives here into `results.npz`, and a model that it has trained into `trained.keras`.
"""

import pathlib
import sys
import types

import jax
import keras
import numpy as np
from jax import numpy as jnp
from numpy.testing import assert_allclose

# Only this part of the library, without what its `__init__` imports.
package = types.ModuleType("keras_trellis")
package.__path__ = ["keras_trellis"]
sys.modules["keras_trellis"] = package

from keras_trellis import recurrent  # noqa: E402
from tests.keras_trellis.recurrent.models import weighed  # noqa: E402


def gradients(model, x, mask):
    """Outputs and gradients of a training call, by the inputs and by the weights."""
    others = [variable.value for variable in model.non_trainable_variables]

    def loss(x, weights):
        outputs, _ = model.stateless_call(weights, others, [x, mask], training=True)
        return weighed(outputs), outputs

    weights = [variable.value for variable in model.trainable_variables]
    run = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    (by_x, by_weights), outputs = run(x, weights)
    return outputs, [by_x, *by_weights]


def check_streams(layers, x, mask):
    """Chunks of 1, 0 and the other steps are one pass."""

    def in_chunks(layer, x):
        cache = layer.get_initial_cache(len(x))
        outputs = []
        for piece in (slice(1), slice(1, 1), slice(1, None)):
            output, cache = layer.stream(x[:, piece], cache, mask[:, piece])
            outputs.append(output)
        return jnp.concatenate(outputs, axis=1)

    def run(x):
        return [(in_chunks(each, x), each(x, mask=mask)[0]) for each in layers]

    for chunks, whole in jax.jit(run)(x):
        assert_allclose(chunks, whole, atol=1e-5)


def check_stateful(x):
    """Two batches of `predict` are one pass, and a reset forgets."""
    rows, steps, channels = x.shape
    kinds = [recurrent.IRCLSTM, recurrent.TLSTM, recurrent.StackedLSTM]
    inputs = keras.Input((steps // 2, channels), batch_size=rows)
    layers = [kind(4, return_sequences=True, stateful=True) for kind in kinds]
    model = keras.Model(inputs, [layer(inputs) for layer in layers])
    plain = [kind(4, return_sequences=True) for kind in kinds]
    for layer, other in zip(layers, plain, strict=True):
        other.build(x.shape)
        other.set_weights(layer.get_weights())
    whole = jax.jit(lambda x: [layer(x) for layer in plain])(x)
    halves = np.concatenate(np.split(x, 2, axis=1))
    for _ in range(2):
        results = model.predict(halves, batch_size=rows, verbose=0)
        for layer, result, expected in zip(layers, results, whole, strict=True):
            result = np.concatenate(np.split(result, 2), axis=1)
            assert_allclose(result, expected, atol=1e-5)
            layer.reset_state()


def check_compilation(layer, x):
    """The program does not grow with the number of steps."""
    sizes = set()
    for steps in (20, 200):
        longer = jnp.zeros((1, steps, x.shape[-1]))
        program = jax.make_jaxpr(lambda x: layer(x, training=True))(longer)
        sizes.add(str(program).count("="))
    assert len(sizes) == 1, sizes


def check_recomputation(channels):
    """`recompute` keeps less for the gradient."""

    def saved(recompute):
        layer = recurrent.TensorizedLSTM(4, 3, recompute=recompute)
        layer.build((None, None, channels))
        _, gradient = jax.eval_shape(
            lambda x: jax.vjp(lambda x: layer(x, training=True), x),
            jnp.zeros((8, 200, channels)),
        )
        return sum(tensor.size for tensor in jax.tree.leaves(gradient))

    assert saved(True) < saved(False) / 4


def train(x, path):
    """Trains with dropout, saves the model, and returns what it gives."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            recurrent.StackedLSTM(4, layers=1, dropout=0.1, return_sequences=True),
            recurrent.IRCGRU(4, recurrent_dropout=0.1, weight_dropout=0.1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.3), "mse")
    # Without dropout, whose masks can outweigh what a few steps of training gain.
    before = model.evaluate(x, x[:, -1], verbose=0)
    model.fit(x, x[:, -1], epochs=20, verbose=0)
    after = model.evaluate(x, x[:, -1], verbose=0)
    assert after < 0.97 * before, (before, after)
    model.save(path)
    return model.predict(x, verbose=0)


def main(folder):
    """Writes `results.npz` and `trained.keras`."""
    data = np.load(folder / "data.npz")
    x, mask = data["x"], data["mask"]
    model = keras.models.load_model(folder / "model.keras")
    outputs, by = gradients(model, x, mask)
    filled = np.nan_to_num(x)
    trained = train(filled, folder / "trained.keras")
    np.savez(folder / "results.npz", *outputs, *by, trained)
    kinds = (recurrent.IRCGRU, recurrent.TLSTM, recurrent.StackedLSTM)
    layers = [layer for layer in model.layers if isinstance(layer, kinds)]
    check_streams(layers, x, mask)
    check_stateful(filled)
    check_compilation(layers[0], x)
    check_recomputation(x.shape[-1])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
