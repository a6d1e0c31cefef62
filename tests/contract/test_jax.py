"""What JAX's users do with a layer: `jit`, `vmap`, `grad` of `grad`, and many levels."""

import functools

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer
from keras_trellis.backend import current as backend
from keras_trellis.recurrent import IRCGRU, TensorizedLSTM
from tests.contract import tensors

if keras.backend.backend() != "jax":
    pytest.skip("Keras runs on another backend", allow_module_level=True)
jax = pytest.importorskip("jax")
pytestmark = tensors.not_in_float64_on_jax

X = np.random.default_rng(0).normal(size=(3, 6, 2)).astype("float32")


def built(make, *arguments, **named):
    layer = make(4, *arguments, return_sequences=True, **named)
    layer.build(X.shape)
    return layer


def loss_of(layer, x=X):
    """A function of the layer's weights."""

    def loss(values):
        scope = list(zip(layer.trainable_variables, values, strict=True))
        with keras.StatelessScope(scope):
            return ops.sum(ops.square(layer(x, training=True)))

    return loss


def weights(layer):
    return [variable.value for variable in layer.trainable_variables]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    calls=st.integers(1, 3),
    name=st.text(max_size=5),
    rate=st.floats(0.01, 0.99),
    shape=st.lists(st.integers(1, 9), max_size=3),
)
def test_masks_are_tensorflows(seed, calls, name, rate, shape):
    tf = pytest.importorskip("tensorflow")
    from keras_trellis.backend import tensorflow as other

    generator = keras.random.SeedGenerator(seed)
    for _ in range(calls):
        drawn = backend.next_seed(generator)
    number = tf.cast(tf.constant([seed, calls - 1], "int64"), "int32")
    expected = other.dropout_mask(number, name, rate, shape, "float32")
    found = jax.jit(backend.dropout_mask, static_argnums=(1, 2, 3, 4))(
        drawn, name, rate, tuple(shape), "float32"
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "layer",
    [(TrellisLayer, 3), (EquilibriumTrellisLayer,), (IRCGRU,)],
    ids=lambda layer: layer[0].__name__,
)
def test_vmap_over_rows_is_a_batch(layer):
    layer = built(*layer)
    rows = jax.vmap(lambda row: layer(row[None])[0])(X)
    np.testing.assert_allclose(rows, layer(X), atol=1e-5)


def test_a_program_does_not_grow_with_depth():
    def program(depth):
        layer = built(TrellisLayer, depth, dilation_rate=(1, 2))
        return str(jax.make_jaxpr(jax.grad(loss_of(layer)))(weights(layer)))

    shallow, deep = program(8), program(64)
    assert deep.count("dot_general") == shallow.count("dot_general")
    assert deep.count("\n") == shallow.count("\n")


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(TrellisLayer, depth=8),
        functools.partial(TensorizedLSTM, size=2),
    ],
    ids=["TrellisLayer", "TensorizedLSTM"],
)
def test_recomputing_changes_no_gradient(make):
    layer, other = (built(make, recompute=flag) for flag in (False, True))
    other.set_weights(layer.get_weights())
    pairs = zip(
        jax.jit(jax.grad(loss_of(layer)))(weights(layer)),
        jax.jit(jax.grad(loss_of(other)))(weights(layer)),
        strict=True,
    )
    for expected, actual in pairs:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [TrellisLayer, IRCGRU])
def test_a_gradient_has_a_gradient(make):
    layer = built(make, *([3] if make is TrellisLayer else []))
    rng = np.random.default_rng(1)
    values = weights(layer)
    along = [rng.normal(size=value.shape).astype("float32") for value in values]

    def slope(values):
        gradients = jax.grad(loss_of(layer))(values)
        return sum(ops.sum(g * v) for g, v in zip(gradients, along, strict=True))

    second = jax.jit(jax.grad(slope))(values)
    curvature = sum(float(ops.sum(g * v)) for g, v in zip(second, along, strict=True))
    step = 1e-2
    moved = [
        float(
            jax.jit(slope)(
                [v + s * step * d for v, d in zip(values, along, strict=True)]
            )
        )
        for s in (1, -1)
    ]
    difference = (moved[0] - moved[1]) / (2 * step)
    np.testing.assert_allclose(curvature, difference, rtol=2e-2)


def test_an_equilibrium_refuses_a_gradient_of_its_gradient():
    layer = built(EquilibriumTrellisLayer)

    def slope(values):
        return ops.sum(jax.grad(loss_of(layer))(values)[0])

    with pytest.raises(NotImplementedError, match="first gradients alone"):
        jax.grad(slope)(weights(layer))


def test_a_built_layer_without_a_generator_takes_no_dropout():
    for layer in (built(TrellisLayer, 3), built(IRCGRU)):
        with pytest.raises(ValueError, match="`dropout` must be 0 where Keras runs on"):
            layer.dropout = 0.5
        layer.dropout = 0
    layer = TrellisLayer(4, 3, return_sequences=True, seed=1)
    layer.dropout = 0.5
    model = keras.Sequential([keras.Input(X.shape[1:]), layer])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    losses = [model.train_on_batch(X, np.ones([3, 6, 4])) for _ in range(4)]
    assert len({float(loss) for loss in losses}) > 1, "one mask again and again"


def test_layers_of_tensorflow_alone_say_so():
    with pytest.raises(ImportError, match="with KERAS_BACKEND=tensorflow"):
        import keras_trellis.export  # noqa: F401
