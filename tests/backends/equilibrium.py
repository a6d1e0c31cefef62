"""Computes what an equilibrium layer promises, on the backend that Keras runs on.

`python -m tests.backends.equilibrium FOLDER` writes the numbers to FOLDER/BACKEND.npz, and a model
in float32 to FOLDER/BACKEND.keras.
"""

import itertools
import sys
import types
from pathlib import Path

import keras
import numpy as np
from keras import ops

from tests.contract import tensors

BACKEND = keras.backend.backend()
if BACKEND != "tensorflow":
    sys.modules["tensorflow"] = None  # as where it is not installed
    # The package's own `__init__` imports all public names, for whatever module of it.
    package = types.ModuleType("keras_trellis")
    package.__path__ = ["keras_trellis"]
    sys.modules["keras_trellis"] = package

from keras_trellis.layers.equilibrium import EquilibriumTrellisLayer  # noqa: E402
from keras_trellis.layers.trellis import TrellisLayer  # noqa: E402

P, UNITS, ROWS, STEPS = 3, 6, 2, 8
CASES = {
    "levels": dict(dilation_rate=(1, 2), inject_every=2, weight_normalization=True),
    "stack": dict(groups=2, inject_groups=True, unit_forget_bias=True, output_units=3),
}
MASK = np.ones((ROWS, STEPS), bool)
MASK[1, [0, 3, 7]] = False


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def make(case):
    """A trained layer continued without end: `from_layer` keeps arguments and weights."""
    # JAX would compile the other initializers.
    zeros = dict.fromkeys(["kernel_initializer", "recurrent_initializer"], "zeros")
    trained = TrellisLayer(UNITS, 2, dtype="float64", **zeros, **CASES[case])
    trained.build((None, None, P))
    values = []
    for seed, variable in enumerate(trained.weights):
        value = 0.3 * draw(seed, *variable.shape)
        is_scale = variable.path.endswith("_scale")
        values.append(np.abs(value) + 0.3 if is_scale else value)
    trained.set_weights(values)
    return EquilibriumTrellisLayer.from_layer(
        trained, tolerance=1e-12, return_sequences=True
    )


def settled(layer, sequences, initial):
    """All results of whole sequences, in training; then the gradients."""

    def weighed(sequences, initial):
        outputs, state, convergence = layer.propagate(
            sequences, initial_state=initial, mask=MASK, training=True
        )
        parts = [
            ops.sum(one * ops.convert_to_tensor(draw(seed, *one.shape)))
            for seed, one in enumerate([outputs, *state])
        ]
        return (outputs, state, convergence), sum(parts)

    # TensorFlow traces a graph longer than it computes.
    differentiated = tensors.graph if BACKEND == "jax" else tensors.with_gradients
    results, _, gradients = differentiated(weighed, layer)(sequences, initial)
    return results, gradients


def streamed(layer, sequences, initial):
    """The outputs of chunks, and the cache after them; a loop over time has an empty one too."""
    cache = layer.get_initial_cache(ROWS, initial_state=initial)
    outputs = []
    ends = [0, 4, 8] if layer.groups == 1 else [0, 4, 4, 8]
    for begin, end in itertools.pairwise(ends):
        mask = MASK[:, begin:end]
        hidden, cache = layer.stream(sequences[:, begin:end], cache, mask)
        outputs.append(hidden)
    return ops.concatenate(outputs, axis=1), cache


def numbers():
    """The arrays of all cases by name, in their own dtypes."""
    arrays = {}
    for case in CASES:
        layer = make(case)
        sequences = ops.convert_to_tensor(draw(20, ROWS, STEPS, P))
        initial = [ops.convert_to_tensor(draw(21 + i, ROWS, UNITS)) for i in range(2)]
        results, gradients = settled(layer, sequences, initial)
        chunks = streamed(layer, sequences, initial)
        parts = {"settled": results, "gradient": gradients, "streamed": chunks}
        for part, nest in parts.items():
            for place, value in enumerate(keras.tree.flatten(nest)):
                arrays[f"{case}_{part}_{place}"] = ops.convert_to_numpy(value)
    return arrays


def model():
    """A model in float32, its weights drawn from its seed."""
    keras.utils.set_random_seed(3)
    layer = EquilibriumTrellisLayer(UNITS, dilation_rate=(1, 2), gate="gru")
    return keras.Sequential([keras.Input((STEPS, P)), layer])


def check_dropout():
    layer = EquilibriumTrellisLayer(
        UNITS, dropout=0.5, recurrent_dropout=0.5, weight_dropout=0.5
    )
    sequences = draw(20, ROWS, STEPS, P).astype("float32")
    first, second = (layer(sequences, training=True) for _ in range(2))
    assert np.all(np.isfinite(first)) and not np.allclose(first, second)


def check_second_gradients():
    import jax

    layer = EquilibriumTrellisLayer(UNITS)
    layer.build((None, None, P))
    gradient = jax.grad(lambda x: layer(x).sum())
    try:
        jax.make_jaxpr(jax.grad(lambda x: gradient(x).sum()))(draw(20, ROWS, STEPS, P))
    except NotImplementedError as error:
        assert "has first gradients alone" in str(error)
    else:
        raise AssertionError("a second gradient is not refused")


def main(folder):
    np.savez(Path(folder) / f"{BACKEND}.npz", **numbers())
    saved = Path(folder) / f"{BACKEND}.keras"
    one = model()
    one.save(saved)
    np.save(Path(folder) / "answers.npy", one.predict(inputs(), verbose=0))
    check_dropout()
    if BACKEND == "jax":
        check_second_gradients()


def inputs():
    """What the model of `model` reads."""
    return draw(20, ROWS, STEPS, P).astype("float32")


if __name__ == "__main__":
    main(sys.argv[1])
