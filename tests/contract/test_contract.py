"""The contract: what every public layer and model of the registry promises."""

import inspect
import json
import math

import keras
import numpy as np
import pytest
from keras import ops

import keras_trellis
import keras_trellis.heads
import keras_trellis.recurrent
from keras_trellis import RecurrentLayer, testing
from keras_trellis.recurrent.gated import GatedRNN
from tests.contract import tensors
from tests.contract.registry import ENTRIES, REGISTRY, WITHOUT_CONTRACT

BATCH, STEPS = 3, 7
# Padding on the right, on the left, holes; the last row is whole.
MASK = np.array(
    [
        [True, True, True, True, False, False, False],
        [False, False, True, False, True, True, False],
        [True, True, True, True, True, True, True],
    ]
)


@pytest.fixture(scope="module", params=ENTRIES)
def name(request):
    return request.param


def only(condition):
    """Marks a test that means nothing for the other entries."""
    names = [name for name, entry in ENTRIES.items() if condition(entry)]
    return pytest.mark.parametrize("name", names, indirect=True, scope="module")


# The others treat each step by itself: they carry no cache and take no mask.
with_cache = only(lambda entry: entry.stream is not None)
# In graphs, and under XLA, others run for the rest.
with_graphs = only(lambda entry: not entry.graphs)
streams_in_a_graph = only(lambda entry: entry.stream is not None and not entry.streams)
# XLA, and graphs of unknown sizes, are not what another backend runs.
on_tensorflow = pytest.mark.skipif(
    tensors.BACKEND != "tensorflow", reason="graphs of TensorFlow"
)
# JAX compiles whatever a new layer runs, its initializers included, for seconds.
not_on_jax = pytest.mark.skipif(tensors.BACKEND == "jax", reason="JAX is slow to begin")
# The others are saved as parts of a model.
models = only(lambda entry: entry.as_model is not None)


@pytest.fixture(scope="module")
def entry(name):
    return ENTRIES[name]


@pytest.fixture(scope="module")
def built(entry):
    return entry.built()


@pytest.fixture(scope="module")
def drawn(entry):
    return entry.draw(np.random.default_rng(1), BATCH, STEPS)


@pytest.fixture(scope="module")
def verifier(entry):
    return testing.Verifier(entry, BATCH, STEPS, tensors.FLOAT, tensors.PRECISION)


@pytest.fixture(scope="module")
def differentiate(entry, built, graph):
    """From inputs and a mask to what `run_with_gradients` returns."""
    if tensors.BACKEND == "jax":
        return graph  # which would be compiled once more
    return tensors.with_gradients(weighed(entry, built), built)


@pytest.fixture(scope="module")
def differentiated(entry, drawn, differentiate):
    """Outputs and gradients where padding is spoiled."""
    return differentiate(*spoiled(entry, drawn))


@pytest.fixture(scope="module")
def exact(entry, drawn, differentiate, differentiated):
    """The same of inputs as float32 has them; ids are what they are."""
    if not np.issubdtype(drawn.dtype, np.floating):
        return differentiated
    drawn = drawn.astype("float32").astype("float64")
    return differentiate(*spoiled(entry, drawn))


@pytest.fixture(scope="module")
def graph(entry, built):
    """`run_with_gradients`, compiled for known sizes, which several tests use."""
    return tensors.graph(weighed(entry, built), built)


@pytest.fixture
def inputs(drawn):
    return drawn.copy()


def spoil(entry, inputs, mask):
    """The inputs with what padding may hold at the masked steps, if masks mean anything to it."""
    if entry.stream is None:
        return inputs
    result = inputs.copy()
    result[~mask] = entry.padding
    return result


def spoiled(entry, inputs):
    """Returns spoiled inputs and their mask as tensors."""
    values = spoil(entry, inputs, MASK)
    return ops.convert_to_tensor(values), ops.convert_to_tensor(MASK)


def assert_close(actual, expected, tolerance=tensors.PRECISION):
    actual, expected = tensors.arrays(actual), tensors.arrays(expected)
    assert len(actual) == len(expected)
    for pair in zip(actual, expected, strict=True):
        np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance)


def valid_steps(outputs, mask):
    return [each[mask] for each in tensors.arrays(outputs.steps)]


def run_with_gradients(entry, obj, inputs, mask):
    """Outputs, a scalar that weighs them all at valid steps, and its gradients."""
    return tensors.with_gradients(weighed(entry, obj), obj)(inputs, mask)


def weighed(entry, obj):
    """From inputs and a mask to the outputs, and a scalar that weighs them all at valid steps."""

    def run(inputs, mask):
        outputs = entry.run(obj, inputs, mask)
        total = 0.0
        for seed, each in enumerate(outputs.steps):
            if mask is not None:
                valid = ops.reshape(mask, (*ops.shape(mask), *[1] * (each.ndim - 2)))
                each = ops.where(valid, each, ops.zeros_like(each))
            total += weighted_sum(each, seed)
        for seed, each in enumerate(outputs.rows):
            total += weighted_sum(each, 10 + seed)
        return outputs, total

    return run


def weighted_sum(values, seed):
    """A sum in which every number has a weight of its own, whatever the shape."""
    dtype = keras.backend.standardize_dtype(values.dtype)
    flat = ops.reshape(values, [-1])
    flat = flat if dtype == "float64" else ops.cast(flat, "float32")
    places = ops.cast(ops.cumsum(ops.ones_like(flat)) - 1, flat.dtype)
    return ops.sum(flat * ops.sin(places + (1.0 + seed)))


def is_kept_here(entry, promise):
    """Returns whether an entry promises something, and this run looks."""
    # A RecurrentLayer cannot be; what streams by another's code is stateful by it.
    if promise == "stateful" and (entry.streams or entry.cls is RecurrentLayer):
        return False
    # The others have a test of each variable by itself.
    if promise == "gradients" and not entry.graphs:
        return False
    on_jax = tensors.BACKEND == "jax" and tensors.FLOAT == "float64"
    return promise in entry.promises[: 4 if on_jax else None]


KEPT = [
    pytest.param(name, promise, id=f"{name}-{promise}")
    for name, entry in ENTRIES.items()
    for promise in testing.PROMISES
    if is_kept_here(entry, promise)
]


@pytest.mark.parametrize(("name", "promise"), KEPT, indirect=["name"], scope="module")
def test_a_promise_is_kept(verifier, promise):
    verifier.check(promise)


@only(lambda entry: entry.plain is not None)
@pytest.mark.parametrize("masked", [False, True])
def test_the_fast_form_is_the_plain_one(entry, built, inputs, masked):
    mask = ops.convert_to_tensor(MASK) if masked else None
    inputs = ops.convert_to_tensor(spoil(entry, inputs, MASK) if masked else inputs)
    assert_close(entry.run(built, inputs, mask), entry.plain(built, inputs, mask))


@with_graphs
def test_eager_and_compiled_agree(entry, built, graph, inputs, differentiated):
    inputs, mask = spoiled(entry, inputs)
    if tensors.BACKEND == "jax":
        assert_close(graph(inputs, mask)[0], entry.run(built, inputs, mask))
    else:
        assert_close(graph(inputs, mask), differentiated)


@streams_in_a_graph
def test_streaming_eagerly_and_under_xla_agree(entry, built, inputs):
    inputs, mask = spoiled(entry, inputs)
    _, cache = entry.stream(
        built, inputs[:, :4], entry.get_initial_cache(built, BATCH), mask[:, :4]
    )
    compiled = tensors.compiled(
        lambda x, cache, mask: entry.stream(built, x, cache, mask)
    )
    rest = inputs[:, 4:], cache, mask[:, 4:]
    assert_close(compiled(*rest), entry.stream(built, *rest))


@on_tensorflow
@with_graphs
def test_eager_and_graphs_of_unknown_sizes_agree(entry, built, inputs):
    import tensorflow as tf

    shape = [None, None, *inputs.shape[2:]]
    specs = [tf.TensorSpec(shape, inputs.dtype), tf.TensorSpec([None, None], tf.bool)]
    run = tf.function(
        lambda x, m: run_with_gradients(entry, built, x, m),
        input_signature=specs,
        autograph=False,
    )
    plain = tf.function(
        lambda x: entry.run(built, x, None),
        input_signature=specs[:1],
        autograph=False,
    )
    for batch, steps in [(BATCH, STEPS), (2, 1), (1, 0), (entry.least_batch, 3)]:
        x = entry.draw(np.random.default_rng(2), batch, steps)
        mask = np.random.default_rng(3).random((batch, steps)) < 0.7
        assert_close(plain(x), entry.run(built, ops.convert_to_tensor(x), None))
        got = run(x, mask)
        assert_close(
            got,
            run_with_gradients(
                entry, built, ops.convert_to_tensor(x), ops.convert_to_tensor(mask)
            ),
        )
        assert all(each.shape[:2] == (batch, steps) for each in got[0].steps)
    assert run.experimental_get_tracing_count() == 1


@with_cache
def test_padding_reaches_no_gradient(inputs, differentiate, differentiated):
    mask = ops.convert_to_tensor(MASK)
    _, *expected = differentiate(ops.convert_to_tensor(inputs), mask)
    _, *got = differentiated
    assert_close(got, expected)
    gradients = tensors.arrays(got[1])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    if np.issubdtype(inputs.dtype, np.floating):
        assert not gradients[-1][~MASK].any()


@with_graphs
def test_gradients_are_finite_differences(built, graph, inputs):
    inputs, mask = ops.convert_to_tensor(inputs), ops.convert_to_tensor(MASK)
    *_, gradients = graph(inputs, mask)
    gradients = tensors.arrays(gradients)
    before = [np.array(ops.convert_to_numpy(v)) for v in built.trainable_variables]
    step, tolerance = tensors.DIFFERENCE
    rng = np.random.default_rng(4)
    directions = [rng.normal(size=g.shape) for g in gradients]

    def moved(index, sign):
        for i, (variable, value) in enumerate(
            zip(built.trainable_variables, before, strict=True)
        ):
            variable.assign(
                value + sign * step * directions[i] if i == index else value
            )
        x = inputs + sign * step * directions[index] if index == len(before) else inputs
        return float(graph(x, mask)[1])

    for index, gradient in enumerate(gradients):
        slope = (moved(index, 1) - moved(index, -1)) / (2 * step)
        assert_close(np.sum(gradient * directions[index]), slope, tolerance)
    moved(None, 0)
    assert_close([v.value for v in built.trainable_variables], before)


@tensors.not_in_float64_on_jax
@pytest.mark.parametrize(
    "policy, compute, tolerance",
    [
        pytest.param("float32", "float32", 1e-4, marks=not_on_jax),
        ("mixed_bfloat16", "bfloat16", 0.15),
        pytest.param("mixed_float16", "float16", 0.02, marks=not_on_jax),
    ],
)
def test_number_formats(entry, built, inputs, exact, policy, compute, tolerance):
    obj = entry.built(policy)
    assert obj.compute_dtype == compute
    assert {v.dtype for v in obj.trainable_variables} == {"float32"}
    assert_close(
        [v.value for v in obj.trainable_variables], [v.value for v in built.trainable_variables],
        1e-6,
    )  # fmt: skip
    if np.issubdtype(inputs.dtype, np.floating):
        inputs = inputs.astype("float32")
    x, mask = spoiled(entry, inputs)
    got, loss, gradients = run_with_gradients(entry, obj, x, mask)
    expected, _, exact_gradients = exact
    dtypes = {keras.backend.standardize_dtype(t.dtype) for t in keras.tree.flatten(got)}
    assert dtypes <= {compute, "float32"}
    assert_close(valid_steps(got, MASK), valid_steps(expected, MASK), tolerance)
    assert_close(got.rows, expected.rows, tolerance)
    assert math.isfinite(loss)
    for gradient, exact in zip(gradients, exact_gradients, strict=True):
        gradient, exact = tensors.arrays([gradient, exact])
        assert np.isfinite(gradient).all()
        size = np.abs(exact[np.isfinite(exact)]).max() + 1e-3
        difference = gradient - exact
        assert np.nanmax(np.abs(difference)) < 3 * tolerance * size


@not_on_jax  # a config is the same on every backend
def test_configuration_is_json_and_goes_round(entry, built):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(built)))
    assert config["registered_name"].startswith("keras_trellis>")
    copy = keras.saving.deserialize_keras_object(config)
    assert type(copy) is entry.cls
    assert json.loads(json.dumps(keras.saving.serialize_keras_object(copy))) == config


@not_on_jax  # what Keras prints is the same on every backend
@models
def test_keras_prints_what_it_is_made_of(entry, built):
    lines = []
    entry.as_model(built).summary(
        expand_nested=True, print_fn=lambda line, **_: lines.append(line)
    )
    assert f"Total params: {built.count_params():,} (" in "".join(lines)


@tensors.not_in_float64_on_jax
@models
def test_a_copy_learns_alone(entry, built):
    """Cloning shares no variable."""
    model = entry.as_model(built)
    clone = type(model).from_config(model.get_config())
    inputs = entry.draw(np.random.default_rng(1), 1, 3)
    clone(inputs)  # builds it
    clone.set_weights(model.get_weights())
    (expected,) = tensors.arrays(model(inputs))
    for variable in clone.trainable_variables:
        variable.assign(variable + 1)
    (got,), (changed,) = map(tensors.arrays, (model(inputs), clone(inputs)))
    assert np.array_equal(got, expected)
    assert not np.allclose(changed, expected)


def test_the_registry_is_complete():
    registered = {entry.cls for entry in REGISTRY.values()} | set(WITHOUT_CONTRACT)
    public = {
        value
        for module in (keras_trellis, keras_trellis.heads, keras_trellis.recurrent)
        for name in module.__all__
        if inspect.isclass(value := getattr(module, name))
        and issubclass(value, keras.layers.Layer)
    }
    assert public - registered == set()
    assert registered - public == set(), "registered, but not public"


def test_what_stands_for_an_entry_in_graphs_is_tested_in_them():
    for entry in REGISTRY.values():
        assert not any(REGISTRY[other].graphs for other in entry.graphs)
        # A model stands for one over another layer, and a gated layer for one of another cell.
        kind = GatedRNN if issubclass(entry.cls, GatedRNN) else entry.cls
        others = [REGISTRY[other].cls for other in entry.graphs]
        assert not others or any(issubclass(other, kind) for other in others)
        assert entry.streams is None or REGISTRY[entry.streams].streams is None
