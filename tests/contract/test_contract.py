"""The contract: what every public layer and model of the registry promises."""

import functools
import inspect
import json
import pathlib
import subprocess
import sys

import filelock
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_trellis
import keras_trellis.heads
import keras_trellis.recurrent
from tests.contract import saved
from tests.contract.registry import REGISTRY, WITHOUT_CONTRACT, Outputs

BATCH, STEPS = 3, 7
# Padding on the right, on the left, holes; the last row is whole.
MASK = np.array(
    [
        [True, True, True, True, False, False, False],
        [False, False, True, False, True, True, False],
        [True, True, True, True, True, True, True],
    ]
)


@pytest.fixture(scope="module", params=REGISTRY)
def name(request):
    return request.param


def only(condition):
    """Marks a test that means nothing for the other entries."""
    names = [name for name, entry in REGISTRY.items() if condition(entry)]
    return pytest.mark.parametrize("name", names, indirect=True, scope="module")


# The others treat each step by itself: they carry no cache and take no mask.
with_cache = only(lambda entry: entry.stream is not None)
# In graphs, and under XLA, others run for the rest.
with_graphs = only(lambda entry: not entry.graphs)
streams_in_a_graph = only(lambda entry: entry.stream is not None and not entry.streams)
# The others are saved as parts of a model.
models = only(lambda entry: entry.as_model is not None)


@pytest.fixture(scope="module")
def entry(name):
    return REGISTRY[name]


@pytest.fixture(scope="module")
def built(entry):
    return entry.built()


@pytest.fixture(scope="module")
def drawn(entry):
    return entry.draw(np.random.default_rng(1), BATCH, STEPS)


@pytest.fixture(scope="module")
def passes(entry, built, drawn):
    """Returns the outputs of one pass over the inputs, masked or not."""
    return functools.cache(
        lambda masked: entry.run(built, drawn, MASK if masked else None)
    )


@pytest.fixture(scope="module")
def differentiated(entry, built, drawn):
    """`run_with_gradients`, eagerly, where padding is spoiled."""
    inputs, mask = tf.constant(spoil(entry, drawn, MASK)), tf.constant(MASK)
    return run_with_gradients(entry, built, inputs, mask)


@pytest.fixture(scope="module")
def exact(entry, built, drawn, differentiated):
    """The same of inputs as float32 has them; ids are what they are."""
    if not np.issubdtype(drawn.dtype, np.floating):
        return differentiated
    drawn = drawn.astype("float32").astype("float64")
    inputs, mask = tf.constant(spoil(entry, drawn, MASK)), tf.constant(MASK)
    return run_with_gradients(entry, built, inputs, mask)


@pytest.fixture(scope="module")
def graph(entry, built):
    """`run_with_gradients` as a graph, which several tests use."""
    return tf.function(
        lambda inputs, mask: run_with_gradients(entry, built, inputs, mask)
    )


@pytest.fixture
def inputs(drawn):
    return drawn.copy()


def spoil(entry, inputs, mask):
    """The inputs with what padding may hold at the masked steps, if masks mean anything to it."""
    if entry.stream is None:
        return inputs
    spoiled = inputs.copy()
    spoiled[~mask] = entry.padding
    return spoiled


def assert_close(actual, expected, tolerance=1e-10):
    actual, expected = tf.nest.flatten(actual), tf.nest.flatten(expected)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        a, e = (np.asarray(tf.cast(v, tf.float64)) for v in (a, e))
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


def valid_steps(outputs, mask):
    return [np.asarray(each)[mask] for each in outputs.steps]


def run_with_gradients(entry, obj, inputs, mask):
    """Outputs, a scalar that weighs them all at valid steps, and its gradients.

    The gradients of the variables, and of the inputs where they are numbers and not ids.
    """
    variables = [v.value for v in obj.trainable_variables]
    if inputs.dtype.is_floating:
        variables.append(inputs)
    with tf.GradientTape() as tape:
        tape.watch(variables)
        outputs = entry.run(obj, inputs, mask)
        total = 0.0
        for seed, each in enumerate(outputs.steps):
            if mask is not None:
                valid = mask[(..., *[None] * (each.shape.rank - 2))]
                each = tf.where(valid, each, tf.zeros_like(each))
            total += weighted_sum(each, seed)
        for seed, each in enumerate(outputs.rows):
            total += weighted_sum(each, 10 + seed)
    gradients = [tf.convert_to_tensor(g) for g in tape.gradient(total, variables)]
    return outputs, total, gradients


def weighted_sum(values, seed):
    """A sum in which every number has a weight of its own, whatever the shape."""
    values = values if values.dtype == tf.float64 else tf.cast(values, tf.float32)
    flat = tf.reshape(values, [-1])
    places = tf.cast(tf.range(tf.size(flat)), flat.dtype)
    return tf.reduce_sum(flat * tf.sin(places + (1.0 + seed)))


@only(lambda entry: entry.plain is not None)
@pytest.mark.parametrize("masked", [False, True])
def test_the_fast_form_is_the_plain_one(entry, built, inputs, masked):
    mask = tf.constant(MASK) if masked else None
    inputs = tf.constant(spoil(entry, inputs, MASK) if masked else inputs)
    assert_close(entry.run(built, inputs, mask), entry.plain(built, inputs, mask))


@with_graphs
def test_eager_and_graphs_of_known_sizes_agree(entry, graph, inputs, differentiated):
    inputs, mask = tf.constant(spoil(entry, inputs, MASK)), tf.constant(MASK)
    assert_close(graph(inputs, mask), differentiated)


@with_graphs
def test_eager_and_xla_agree(entry, graph, inputs, differentiated):
    inputs, mask = tf.constant(spoil(entry, inputs, MASK)), tf.constant(MASK)
    compiled = tf.function(graph.python_function, jit_compile=True)
    assert_close(compiled(inputs, mask), differentiated)


@streams_in_a_graph
def test_streaming_eagerly_and_under_xla_agree(entry, built, inputs):
    inputs, mask = tf.constant(spoil(entry, inputs, MASK)), tf.constant(MASK)
    _, cache = entry.stream(
        built, inputs[:, :4], entry.get_initial_cache(built, BATCH), mask[:, :4]
    )
    compiled = tf.function(
        lambda x, cache, mask: entry.stream(built, x, cache, mask), jit_compile=True
    )
    rest = inputs[:, 4:], cache, mask[:, 4:]
    assert_close(compiled(*rest), entry.stream(built, *rest))


@with_graphs
def test_eager_and_graphs_of_unknown_sizes_agree(entry, built, inputs):
    shape = [None, None, *inputs.shape[2:]]
    specs = [tf.TensorSpec(shape, inputs.dtype), tf.TensorSpec([None, None], tf.bool)]
    run = tf.function(
        lambda x, m: run_with_gradients(entry, built, x, m), input_signature=specs
    )
    plain = tf.function(lambda x: entry.run(built, x, None), input_signature=specs[:1])
    for batch, steps in [(BATCH, STEPS), (2, 1), (1, 0), (entry.least_batch, 3)]:
        x = entry.draw(np.random.default_rng(2), batch, steps)
        mask = np.random.default_rng(3).random((batch, steps)) < 0.7
        assert_close(plain(x), entry.run(built, tf.constant(x), None))
        got = run(x, mask)
        assert_close(
            got, run_with_gradients(entry, built, tf.constant(x), tf.constant(mask))
        )
        assert all(each.shape[:2] == (batch, steps) for each in got[0].steps)
    assert run.experimental_get_tracing_count() == 1


@with_cache
@pytest.mark.parametrize("cuts", [(1, 2, 3, 4, 5, 6), (0, 5, 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_chunks_are_one_pass(entry, built, inputs, passes, cuts, masked):
    mask = MASK if masked else np.ones_like(MASK)
    expected = passes(masked)
    inputs, cache, chunks = (
        spoil(entry, inputs, mask),
        entry.get_initial_cache(built, BATCH),
        [],
    )
    for start, end in zip((0, *cuts), (*cuts, STEPS), strict=True):
        chunk_mask = mask[:, start:end] if masked else None
        chunk, cache = entry.stream(built, inputs[:, start:end], cache, chunk_mask)
        chunks.append(chunk)
    for pieces, whole in zip(zip(*chunks, strict=True), expected.steps, strict=False):
        assert_close(np.concatenate(pieces, axis=1), whole)


def test_a_row_does_not_depend_on_others(entry, built, inputs, passes):
    together = passes(True)
    for row in range(BATCH):
        alone = entry.run(built, inputs[row : row + 1], MASK[row : row + 1])
        assert_close(alone, tf.nest.map_structure(lambda v: v[row : row + 1], together))  # noqa: B023


@with_cache
def test_padding_is_nothing(entry, built, inputs):
    """Each row equals itself alone without its masked steps, whatever they hold."""
    padded = entry.run(built, spoil(entry, inputs, MASK), MASK)
    for row, valid in enumerate(MASK):
        alone = entry.run(built, inputs[row : row + 1, valid], None)
        assert_close(
            [np.asarray(each)[row, valid] for each in padded.steps],
            [each[0] for each in alone.steps],
        )
        assert_close(
            [each[row] for each in padded.rows], [each[0] for each in alone.rows]
        )


@with_cache
def test_padding_reaches_no_gradient(entry, built, inputs, differentiated):
    mask = tf.constant(MASK)
    _, *expected = run_with_gradients(entry, built, tf.constant(inputs), mask)
    _, *got = differentiated
    assert_close(got, expected)
    assert all(np.isfinite(each).all() for each in got[1])
    if np.issubdtype(inputs.dtype, np.floating):
        assert not np.asarray(got[1][-1])[~MASK].any()


@with_graphs
def test_gradients_are_finite_differences(built, graph, inputs):
    inputs, mask = tf.constant(inputs), tf.constant(MASK)
    *_, gradients = graph(inputs, mask)
    before = [v.numpy() for v in built.trainable_variables]
    rng, step = np.random.default_rng(4), 1e-6
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
        assert_close(np.sum(gradient * directions[index]), slope, 1e-6)
    moved(None, 0)
    assert_close([v.value for v in built.trainable_variables], before)


@pytest.mark.parametrize("at", [0, 3, STEPS - 1])
def test_the_future_reaches_nothing(entry, built, inputs, passes, at):
    expected = passes(False)
    changed = inputs.copy()
    if np.issubdtype(inputs.dtype, np.floating):
        changed[:, at:] = np.nan
    else:
        changed[:, at:] = (changed[:, at:] + 1) % changed.max()
    got = entry.run(built, changed, None)
    for each, whole in zip(got.steps, expected.steps, strict=True):
        assert_close(each[:, :at], whole[:, :at])
        assert not np.array_equal(each[:, at], whole[:, at])


@pytest.mark.parametrize(
    "policy, compute, tolerance",
    [
        ("float32", "float32", 1e-4),
        ("mixed_bfloat16", "bfloat16", 0.15),
        ("mixed_float16", "float16", 0.02),
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
    x, mask = tf.constant(spoil(entry, inputs, MASK)), tf.constant(MASK)
    got, loss, gradients = run_with_gradients(entry, obj, x, mask)
    expected, _, exact_gradients = exact
    assert {each.dtype.name for each in tf.nest.flatten(got)} <= {compute, "float32"}
    assert_close(valid_steps(got, MASK), valid_steps(expected, MASK), tolerance)
    assert_close(got.rows, expected.rows, tolerance)
    assert np.isfinite(loss)
    for gradient, exact in zip(gradients, exact_gradients, strict=True):
        assert np.isfinite(np.asarray(tf.cast(gradient, tf.float32))).all()
        size = np.abs(np.asarray(exact)[np.isfinite(exact)]).max() + 1e-3
        difference = np.asarray(tf.cast(gradient, tf.float64)) - np.asarray(exact)
        assert np.nanmax(np.abs(difference)) < 3 * tolerance * size


def test_configuration_is_json_and_goes_round(entry, built):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(built)))
    assert config["registered_name"].startswith("keras_trellis>")
    copy = keras.saving.deserialize_keras_object(config)
    assert type(copy) is entry.cls
    assert json.loads(json.dumps(keras.saving.serialize_keras_object(copy))) == config


# One fresh process, which imports only the package, loads the files of this and earlier releases.

LOADING = """
import pathlib, sys
import numpy as np
import keras
import keras_trellis

for path in map(pathlib.Path, sys.argv[1:]):
    arrays = np.load(path.with_suffix(".npz"))
    try:
        model = keras.models.load_model(path)
        difference = np.abs(model(arrays["inputs"]) - arrays["outputs"]).max()
        predicted = model.predict(arrays["inputs"], verbose=0)
        difference = max(difference, np.abs(predicted - arrays["outputs"]).max())
        print(path.name, "differs by", difference, flush=True)
    except Exception as error:
        print(path.name, "fails:", str(error).replace(chr(10), " "), flush=True)
"""
RELEASED = [
    path
    for path in sorted(pathlib.Path(__file__).parent.glob("testdata/*"))
    if path.suffix == ".keras"
]


@pytest.fixture(scope="module")
def loaded(shared_folder):
    """The name of each file -> what the fresh process said of it, once in a run of the tests."""
    folder = shared_folder / "contract"
    said = folder / "said.txt"
    with filelock.FileLock(shared_folder / "contract.lock"):
        if not said.exists():
            folder.mkdir(exist_ok=True)
            saved.save(folder)
            files = [*folder.glob("*.keras"), *RELEASED]
            command = [sys.executable, "-c", LOADING, *files]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert ".keras " in done.stdout, done.stderr[-2000:]
            said.write_text(done.stdout)
    lines = said.read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines if ".keras " in line)


def assert_loaded(said):
    assert said.startswith("differs by") and float(said.split()[-1]) < 1e-6, said


@models
def test_a_fresh_process_loads_it(name, loaded):
    assert_loaded(loaded[f"{saved.stem(name)}.keras"])


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_a_fresh_process_loads_what_a_release_wrote(path, loaded):
    assert_loaded(loaded[path.name])


def test_every_release_has_written_its_files():
    written = {path.name.partition("-")[0] for path in RELEASED}
    assert saved.VERSION in written, "run `python -m tests.contract.saved`"


@models
def test_a_copy_learns_alone(entry, built):
    """Cloning shares no variable."""
    model = entry.as_model(built)
    clone = type(model).from_config(model.get_config())
    inputs = entry.draw(np.random.default_rng(1), 1, 3)
    clone(inputs)  # builds it
    clone.set_weights(model.get_weights())
    expected = np.asarray(model(inputs))
    for variable in clone.trainable_variables:
        variable.assign(variable + 1)
    assert np.array_equal(model(inputs), expected)
    assert not np.allclose(clone(inputs), expected)


def test_the_registry_is_complete():
    registered = {entry.cls for entry in REGISTRY.values()} | set(WITHOUT_CONTRACT)
    registered |= {entry.holds for entry in REGISTRY.values() if entry.holds}
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
        # A model stands for one over another layer, and that layer for itself.
        assert {entry.cls, entry.holds} & {REGISTRY[o].cls for o in entry.graphs} or (
            not entry.graphs
        )
        assert entry.streams is None or REGISTRY[entry.streams].streams is None


def test_the_contract_can_fail():
    """It finds a network that looks one step ahead, and one that adds up its rows."""
    x = np.random.default_rng(1).normal(size=(BATCH, STEPS, 2))

    class Entry:
        run = staticmethod(lambda obj, x, mask: Outputs([obj(x)]))

    def ahead(x):
        return np.roll(x, -1, axis=1)

    def summed(x):
        return x + x.sum(0, keepdims=True)

    def passes(obj):
        return lambda masked: Entry.run(obj, x, None)

    with pytest.raises(AssertionError):
        test_the_future_reaches_nothing(Entry, ahead, x, passes(ahead), 3)
    with pytest.raises(AssertionError):
        test_a_row_does_not_depend_on_others(Entry, summed, x, passes(summed))
