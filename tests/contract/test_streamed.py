"""Whole models, streamed: chunks equal one pass over the whole, as Keras runs it."""

import io

import hypothesis
import keras
import numpy as np
import pytest
from hypothesis import strategies as st
from keras import layers, ops

from keras_trellis import StreamedModel, TrellisLM
from keras_trellis.models.streamed import rules
from tests.contract import tensors
from tests.contract.blocks import (
    BLOCKS,
    CHANNELS,
    ENDS,
    KINDS,
    MERGES,
    ROWS,
    drawn_steps,
    with_random_weights,
)

ON_JAX = tensors.BACKEND == "jax"

# Keras on JAX would run its recurrent layers in float32 all the same.
if ON_JAX and tensors.FLOAT == "float64":
    pytest.skip("done in float32", allow_module_level=True)

# Of a model that is called with a mask and drops it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Layer .* does not support masking"),
    tensors.not_in_float64_on_jax,
]

# JAX compiles for seconds: there one of each rule.
OF_EACH_RULE = (
    "own",
    "linear attention",
    "reshape",
    "padded strided pool",
    "strided conv",
    "last of an rnn",
    "classifier",
    "mean",
    "largest",
)
TRIED = OF_EACH_RULE if ON_JAX else KINDS


def compiled(function):
    """Returns a function as it is, or on JAX, which is slow eagerly, a compiled one."""
    return tensors.compiled(function) if ON_JAX else function


def array(tensor):
    return np.asarray(ops.convert_to_numpy(tensor))


def whole(model, x, mask):
    valid = None if mask is None else ops.convert_to_tensor(mask)

    def run(x):
        # Keras's cells advance their seeds, which is nothing for `jit`.
        with keras.StatelessScope():
            return model(x, mask=valid)

    outputs = compiled(run)(ops.convert_to_tensor(x))
    return list(map(array, keras.tree.flatten(outputs)))


def through_a_file(cache):
    file = io.BytesIO()
    np.savez(file, **{name: array(tensor) for name, tensor in cache.items()})
    file.seek(0)
    return dict(np.load(file))


def streamed(model, x, mask, cuts, between=through_a_file):
    """Returns the outputs over chunks that end at the cuts, joined where they have steps.

    Args:
        model: the model.
        x: its inputs.
        mask: their mask, or None.
        cuts: where chunks end.
        between: what is done to each cache.
    """
    stream = StreamedModel(model)
    run = compiled(stream.stream)
    cache = stream.get_initial_cache(len(x))
    chunks, first = [], 0
    for cut in cuts:
        valid = None if mask is None else mask[:, first:cut]
        outputs, cache = run(x[:, first:cut], between(cache), valid)
        chunks.append(list(map(array, keras.tree.flatten(outputs))))
        first = cut
    return joined_in_time(model, chunks)


def joined_in_time(model, chunks):
    """Returns the outputs over chunks, joined where they have steps, else the last."""
    parts = zip(*chunks, strict=True)
    return [
        np.concatenate(part, axis=1) if has_time(tensor) else part[-1]
        for part, tensor in zip(parts, model.outputs, strict=True)
    ]


def in_place(stream, x, cuts, again=None, row=None):
    """Returns the outputs of a running stream, in which a row may begin again at a cut."""
    running = stream.start(len(x))
    chunks, first = [], 0
    for number, cut in enumerate(cuts):
        if number == again:
            running.reset(np.arange(len(x)) == row)
        outputs = running.advance(x[:, first:cut])
        chunks.append(list(map(array, keras.tree.flatten(outputs))))
        first = cut
    return joined_in_time(stream.model, chunks)


def has_time(tensor):
    return len(tensor.shape) == 3 and tensor.shape[1] is None


def assert_close(actual, expected):
    for pair in zip(actual, expected, strict=True):
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", TRIED)
def test_a_layer_streams(kind):
    inputs = keras.Input((None, CHANNELS))
    model = with_random_weights(keras.Model(inputs, KINDS[kind]()(inputs)))
    x, mask = drawn_steps(8)
    for valid in [mask] if ON_JAX else [mask, None]:
        assert_close(streamed(model, x, valid, [2, 4, 8]), whole(model, x, valid))
    assert_close(in_place(StreamedModel(model), x, [2, 4, 8]), whole(model, x, None))


def test_layers_over_several_tensors_stream():
    inputs = [keras.Input((None, CHANNELS), name=name) for name in "ab"]
    joined = [merge()(inputs) for merge in MERGES]
    model = keras.Model(inputs, layers.LSTM(3)(layers.Concatenate()(joined)))
    with_random_weights(model)
    stream = StreamedModel(model)
    (a, mask), (b, other) = drawn_steps(6), drawn_steps(6, seed=1)
    for masks in ([mask, other],) if ON_JAX else ([mask, other], [None, other], None):
        expected = compiled(lambda a, b: model([a, b], mask=masks))(a, b)  # noqa: B023
        cache = stream.get_initial_cache(ROWS)
        for part in (slice(0, 3), slice(3, 6)):
            valid = masks and [None if m is None else m[:, part] for m in masks]
            chunk = {"b": b[:, part], "a": a[:, part]}
            answer, cache = compiled(stream.stream)(chunk, cache, valid)
        assert_close([array(answer)], [array(expected)])


def test_every_rule_is_tried():
    made = [make() for make in KINDS.values()]
    nested = [layer.layers for layer in made if isinstance(layer, keras.Sequential)]
    made += sum(nested, [])
    kinds = {*map(type, made), *MERGES}
    # tests/keras_trellis/models has these.
    assert {*rules.LAYERS} - kinds == {layers.Embedding, layers.Softmax, TrellisLM}


@pytest.mark.skipif(tensors.BACKEND == "tensorflow", reason="TensorFlow exports")
def test_an_export_says_which_backend_it_needs(tmp_path):
    model = keras.Sequential([keras.Input((None, CHANNELS)), layers.Dense(2)])
    with pytest.raises(RuntimeError, match="KERAS_BACKEND=tensorflow"):
        StreamedModel(model).export(tmp_path / "model")


STRIDED = ("strided", "patches", "narrow", "separable", "depthwise", "max", "average")
JOINS = ("plain", "added", "concatenated", "twice", "nested")


def drawn_model(blocks, end, only_end):
    """Returns a model of some blocks, and its stride."""
    inputs = keras.Input((None, CHANNELS), name="x")
    sequences = inputs
    stride = 1
    for name, how in blocks:
        block = BLOCKS[name]()
        if name.startswith(STRIDED) or name == "padded strided pool":
            stride *= 2
            sequences = block(sequences)
        else:
            sequences = joined(block, sequences, how)
    outputs = [sequences]
    if end is not None:
        outputs += keras.tree.flatten(ENDS[end]()(sequences))
    model = keras.Model(inputs, outputs[-1] if only_end else outputs)
    return with_random_weights(model), stride


def joined(block, sequences, how):
    if how == "added":
        return 0.5 * block(sequences) + sequences
    if how == "concatenated":
        both = layers.Concatenate()([sequences, block(sequences)])
        return layers.Dense(CHANNELS)(both)
    if how == "twice":
        return block(block(sequences))
    if how == "nested":
        inside = keras.Input((None, CHANNELS))
        model = keras.Model(inside, [block(inside), inside])
        return ops.maximum(*model(sequences))
    return block(sequences)


@hypothesis.settings(max_examples=4 if ON_JAX else 25)
@hypothesis.given(
    blocks=st.lists(
        st.tuples(st.sampled_from([*BLOCKS]), st.sampled_from(JOINS)),
        min_size=1,
        max_size=3 if ON_JAX else 4,
    ),
    end=st.sampled_from([None, *ENDS]),
    only_end=st.booleans(),
    chunks=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    masked=st.booleans(),
    row=st.integers(0, ROWS - 1),
    again=st.integers(1, 3),
)
def test_drawn_models_stream(blocks, end, only_end, chunks, masked, row, again):
    """One row begins anew in between."""
    model, stride = drawn_model(blocks, end, only_end)
    if ON_JAX:
        chunks = [2] * len(chunks)
    cuts = [stride * int(cut) for cut in np.cumsum(chunks)]
    x, mask = drawn_steps(max(cuts[-1], 3))
    x, mask = x[:, : cuts[-1]], mask[:, : cuts[-1]] if masked else None
    stream = StreamedModel(model)
    assert stream.stride == stride
    again = min(again, len(cuts) - 1)
    caches = iter(range(len(cuts)))

    def between(cache):
        cache = through_a_file(cache)
        begins = np.arange(ROWS) == row
        return stream.reset(cache, begins) if next(caches) == again else cache

    results = streamed(model, x, mask, cuts, between)
    expected = whole(model, x, mask)
    first = cuts[again - 1]
    anew = whole(model, x[:, first:], None if mask is None else mask[:, first:])
    for result, part, tensor in zip(expected, anew, model.outputs, strict=True):
        begin = np.s_[row, first // stride :] if has_time(tensor) else row
        result[begin] = part[row]
    assert_close(results, expected)
    if not masked:
        assert_close(in_place(stream, x, cuts, again, row), expected)
