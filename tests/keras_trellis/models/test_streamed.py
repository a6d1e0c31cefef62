"""Streamed models: what is refused, what is kept, what stays as it is."""

import io
import math

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers, ops
from numpy.testing import assert_allclose, assert_array_equal

import keras_trellis
from keras_trellis import (
    EquilibriumTrellisLayer,
    StreamedModel,
    TensorizedLSTM,
    TrellisClassifier,
    TrellisLayer,
    TrellisLM,
    recurrent,
)
from keras_trellis.core import lines
from keras_trellis.models.streamed import formats, rules, running
from tests import ROOT
from tests.refusals import refuses

pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not support masking")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 8, 4)).astype("float32")
ALL = {"return_sequences": True}


def model_of(call, steps=None, channels=4, **how):
    inputs = keras.Input((steps, channels), name="x", **how)
    return keras.Model(inputs, call(inputs))


def chunks(stream, x, size=2, mask=None):
    """Returns the outputs of the last model output, chunk after chunk."""
    cache = stream.get_initial_cache(len(x))
    results = []
    for first in range(0, x.shape[1], size):
        part = np.s_[:, first : first + size]
        valid = None if mask is None else mask[part]
        outputs, cache = stream.stream(x[part], cache, valid)
        results.append(np.asarray(outputs, "float64"))
    return results


def lstm(**how):
    return layers.LSTM(3, **how)


REFUSED = [
    ("reads sequences from their end too", lambda x: layers.Bidirectional(lstm())(x)),
    (r"\(go_backwards=True\)", lambda x: lstm(go_backwards=True)(x)),
    ("attends to steps to come", lambda x: layers.MultiHeadAttention(1, 2)(x, x)),
    ("its layer 'encoder/attention'", lambda x: model_of_attention()(x)),
    ("over the time steps too", lambda x: layers.GroupNormalization(2)(x)),
    ("its function may mix time steps", lambda x: layers.Lambda(lambda y: y)(x)),
    ("makes one row", lambda x: layers.Flatten()(lstm(**ALL)(x))),
    ("more steps than it reads", lambda x: layers.UpSampling1D()(x)),
    ("by its `get_initial_cache", lambda x: layers.Cropping1D()(x)),
    ("of no class that is known", lambda x: Unknown()(x)),
    ("half of a window", lambda x: layers.Conv1D(3, 3, padding="same")(x)),
    (r"overlap by 2, .*g1D\(\(2, 0\)\)", lambda x: layers.MaxPooling1D(3, 1)(x)),
    ("whole windows of padding", lambda x: layers.Conv1D(3, 2)(padded(x, (2, 0)))),
    ("pads the end", lambda x: layers.Conv1D(3, 3)(padded(x, 1))),
    ("reads what a ZeroPadding1D", lambda x: lstm()(padded(x, (1, 0)))),
    (
        "data_format='channels_last'",
        lambda x: layers.MaxPooling1D(2, data_format="channels_first")(x),
    ),
    ("along the time axis", lambda x: layers.LayerNormalization(axis=[1, 2])(x)),
    ("along the time axis", lambda x: layers.Concatenate(axis=1)([x, x])),
    ("along the time axis", lambda x: ops.expand_dims(x, -3)),
    ("along the time axis", lambda x: layers.Dense(3)(x[..., 0])),
    ("along the time axis", lambda x: layers.PReLU()(x)),
    ("along the time axis", lambda x: ops.sum(x)),
    ("leave the time axis", lambda x: layers.Reshape((-1, 2))(x)),
    ("different ranks", lambda x: layers.Add()([x, layers.Reshape((8, 1, 4))(x)])),
    (
        r"different strides, \[2, 4\]",
        lambda x: layers.Average()(
            [layers.MaxPooling1D(2)(x), layers.MaxPooling1D(4)(x)]
        ),
    ),
    ("an answer", lambda x: lstm(**ALL)(x, initial_state=[lstm()(x)] * 2)),
    ("an answer", lambda x: layers.Add()([x, layers.RepeatVector(8)(encoded(x))])),
    ("training=True", lambda x: layers.Dropout(0.5)(x, training=True)),
    ("and a mask: discard", lambda x: TrellisLayer(4, 2, **ALL)(x, discard=2)),
    (
        "another order",
        lambda x: TrellisClassifier(2, TrellisLayer(4, 2), permutation=range(8))(x),
    ),
    ("a constant for each", lambda x: x * np.ones([8, 4], "float32")),
    ("not known whether", lambda x: ops.flip(x, axis=1)),
    ("may have to wait", lambda x: x[:, 2:]),
]


def language_model():
    return TrellisLM(9, TrellisLayer(4, 2), embedding_units=4)


def padded(x, zeros):
    return layers.ZeroPadding1D(zeros)(x)


class Unknown(layers.Layer):
    """A layer of a user's own, without a word of what it does."""

    def call(self, x):
        return x


class WithCall(keras.Model):
    """A functional model that does something else."""

    def call(self, x):
        return super().call(x[:, ::-1])


def encoded(x):
    return layers.Dense(4)(lstm()(x))


def model_of_attention():
    inputs = keras.Input((None, 4))
    attended = layers.Attention(name="attention")([inputs, inputs])
    return keras.Model(inputs, attended, name="encoder")


@pytest.mark.parametrize("reason, call", REFUSED)
def test_a_layer_that_may_look_ahead_is_refused_by_name(reason, call):
    model = model_of(call, steps=None if "strides" in reason else 8)
    with refuses("cannot be streamed: its layer '.*, ") as error:
        StreamedModel(model)
    assert error.match(reason)


def with_call():
    inputs = keras.Input((None, 4))
    return WithCall(inputs, layers.Dense(2)(inputs))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: layers.LSTM(3), "must be a functional or Sequential model"),
        (lambda: TrellisClassifier(2, TrellisLayer(4, 2)), "keras.Model.inputs, layer"),
        (with_call, "must be a functional or Sequential model"),
        (lambda: keras.Sequential([layers.LSTM(3)]), "must be built"),
        (lambda: model_of(lstm(stateful=True), batch_size=2), "is stateful"),
        (
            lambda: keras.Model(*[keras.Input(()) for _ in "a"] * 2),
            r"inputs of shape \[B, T, ...\]",
        ),
    ],
)
def test_a_model_of_another_kind_is_refused(make, message):
    with refuses(message):
        StreamedModel(make())


@pytest.fixture(scope="module")
def strided():
    """Two inputs, two outputs, stride 2."""
    one = keras.Input((None, 4), name="a")
    other = keras.Input((None,), name="b", dtype="int32")
    joined = layers.Concatenate()([one, layers.Embedding(5, 2)(other)])
    steps = layers.Conv1D(3, 4, strides=2, padding="causal", name="conv")(joined)
    answer = layers.LSTM(3, name="lstm")(steps)
    return StreamedModel(keras.Model([one, other], {"steps": steps, "answer": answer}))


IDS = RNG.integers(0, 5, (2, 8))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"chunk": [X[:, :3], IDS[:, :3]]}, "a multiple of 2 time steps.*: 3"),
        ({"chunk": [X[:, :0], IDS[:, :0]]}, "a multiple of 2 time steps.*: 0"),
        ({"chunk": X}, r"one tensor for each of the inputs \['a', 'b'\].*1 tensors"),
        ({"chunk": {"a": X, "c": IDS}}, "must have the input 'b'"),
        ({"chunk": [X[..., 0], IDS]}, r"`chunk\['a'\]` must be of shape \[B, n, 4\]"),
        ({"chunk": [X[..., :2], IDS]}, r"`chunk\['a'\]` must be of shape \[B, n, 4\]"),
        ({"chunk": [X, IDS[:, :4]]}, r"`chunk\['b'\]` must be of shape \[2, 8\]"),
        ({"chunk": [X, IDS + 0.5]}, r"`chunk\['b'\]` must be integers"),
        ({"chunk": [X + 1j, IDS]}, r"`chunk\['a'\]` must be real numbers"),
        ({"chunk": [tf.ragged.constant([[[1.0]]]), IDS]}, "must be padded"),
        ({"mask": [np.ones([2, 8], bool)]}, "one mask, or None, for each of 2 inputs"),
        ({"mask": [np.ones([2, 7], bool), None]}, r"`mask` must be of shape \[2, 8\]"),
        ({"cache": {}}, r"with the names \['conv_past', 'lstm_0', 'lstm_1'\]"),
        ({"cache": None}, "must be what `get_initial_cache`.*NoneType"),
        (
            {"rows": 3},
            r"`cache\['conv_past'\]` must be of shape \[2, 3, 6\].*\(3, 3, 6\)",
        ),
        ({"part": np.zeros([2, 3])}, r"`cache\['lstm_0'\]`|conv_past.*\[2, 3, 6\]"),
        ({"part": np.zeros([2, 3, 6], "complex64")}, "must be real numbers"),
    ],
)
def test_what_does_not_fit_is_refused(strided, changes, message):
    arguments = {"chunk": [X, IDS], "mask": None, "rows": 2} | changes
    cache = strided.get_initial_cache(arguments["rows"])
    if "part" in changes:
        cache["conv_past"] = changes["part"]
    cache = changes.get("cache", cache)
    with refuses(message):
        strided.stream(arguments["chunk"], cache, arguments["mask"])


def test_rows_that_begin_anew_are_booleans(strided):
    cache = strided.get_initial_cache(2)
    for rows, message in ([0], "bool"), ([True], r"of shape \[B\]"):
        with refuses(f"`rows` must be .*{message}"):
            strided.reset(cache, np.array(rows))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"format": "tflite"}, "one of .*litert"),
        ({"steps": 3}, "a multiple of the model's stride, 2"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer"),
        ({"path": ROOT}, "`path` must not be there yet"),
    ],
)
def test_an_export_that_cannot_be_is_refused(strided, tmp_path, arguments, message):
    with refuses(message):
        strided.export(**{"path": tmp_path / "model"} | arguments)
    assert not [*tmp_path.iterdir()]


def test_a_format_that_cannot_hold_a_layer_says_so(tmp_path):
    inside = TrellisClassifier(2, EquilibriumTrellisLayer(2), name="settling")
    settling = StreamedModel(model_of(inside))
    with refuses("'onnx' cannot hold 'settling.*'litert'"):
        settling.export(tmp_path / "model", "onnx")
    half = StreamedModel(model_of(layers.GRU(2, name="gru", dtype="mixed_bfloat16")))
    with refuses("in float32 alone.*layer 'gru' in bfloat16"):
        half.export(tmp_path / "model", "litert")
    grouped = StreamedModel(model_of(layers.Conv1D(4, 1, groups=2)))
    with refuses("'onnx' cannot hold this model, of .* Conv1D"):
        grouped.export(tmp_path / "model", "onnx")
    assert not [*tmp_path.iterdir()]


def test_the_model_stays_as_it_is_and_is_followed():
    layer = layers.LSTM(3, return_state=True, name="layer", dropout=0.5)
    model = model_of(lambda x: layer(x)[0])
    model.compile("sgd", loss=lambda y, outputs: ops.mean(outputs), metrics=["mse"])
    before = model.get_config()
    stream = StreamedModel(model)
    assert model.get_config() == before
    assert layer.output[0].shape == (None, 3)  # it has been called once
    assert not layer.return_sequences
    (seed,) = [variable for variable in layer.variables if "seed" in variable.path]
    drawn = np.array(seed)
    answer = chunks(stream, X)[-1]
    assert_array_equal(seed, drawn)
    assert_allclose(answer, model(X), atol=1e-6)
    model.fit(X, np.zeros([2, 3]), verbose=0)
    assert_allclose(chunks(stream, X)[-1], model(X), atol=1e-6)


@pytest.mark.parametrize(
    "policy, precision", [("float64", 1e-12), ("mixed_bfloat16", 2e-2)]
)
def test_other_precisions_pass_through_a_file(policy, precision):
    how = {"dtype": policy}
    model = model_of(
        lambda x: layers.GlobalAveragePooling1D(**how)(
            TrellisLayer(4, 2, **ALL, **how)(
                layers.LSTM(4, **ALL, **how)(
                    layers.Conv1D(4, 3, padding="causal", **how)(x)
                )
            )
        ),
        dtype="float64" if policy == "float64" else "float32",
    )
    stream = StreamedModel(model)
    cache = stream.get_initial_cache(2)
    for first in range(0, 8, 2):
        file = io.BytesIO()
        np.savez(file, **{name: np.asarray(value) for name, value in cache.items()})
        file.seek(0)
        answer, cache = stream.stream(X[:, first : first + 2], np.load(file))
    expected = np.asarray(model(X), "float64")
    assert_allclose(np.asarray(answer, "float64"), expected, atol=precision)
    kinds = {value.dtype.name for name, value in cache.items() if "lstm" in name}
    assert kinds == {policy.removeprefix("mixed_")}


def test_a_model_of_known_steps_streams_other_numbers_of_them():
    model = model_of(
        lambda x: layers.Reshape((8, 4))(layers.Reshape((8, 2, 2))(lstm_of_four(x))),
        steps=8,
    )
    stream = StreamedModel(model)
    for size in (1, 4, 8):
        joined = np.concatenate(chunks(stream, X, size), axis=1)
        assert_allclose(joined, model(X), atol=1e-6)


def lstm_of_four(x):
    return layers.LSTM(4, **ALL)(x)


def test_in_a_graph_of_unknown_sizes(strided):
    cache = strided.get_initial_cache(2)
    specs = {
        name: tf.TensorSpec([None, *t.shape[1:]], t.dtype) for name, t in cache.items()
    }
    sequences = [tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, None], tf.int32)]
    graph = tf.function(strided.stream, input_signature=[sequences, specs])
    whole = strided.model([X, IDS])
    for first in range(0, 8, 4):
        part = np.s_[:, first : first + 4]
        outputs, cache = graph([X[part], tf.constant(IDS[part], tf.int32)], cache)
        steps = whole["steps"][:, first // 2 : first // 2 + 2]
        assert_allclose(outputs["steps"], steps, atol=1e-6)
    assert_allclose(outputs["answer"], whole["answer"], atol=1e-6)
    with refuses("a multiple of 2 time steps", tf.errors.InvalidArgumentError):
        graph([X[:, :3], tf.constant(IDS[:, :3], tf.int32)], cache)


def test_a_layer_that_is_called_twice_keeps_two_caches():
    shared = layers.GRU(4, name="shared", **ALL)
    inside = keras.Input((None, 4), name="y")
    nested = keras.Model({"y": inside}, shared(inside), name="nested")
    model = model_of(lambda x: nested({"y": nested({"y": shared(shared(x))})}))
    stream = StreamedModel(model)
    names = ["nested_shared_0", "nested_shared_0_call2", "shared_0", "shared_0_call2"]
    assert sorted(stream.get_initial_cache(1)) == names
    joined = np.concatenate(chunks(stream, X), axis=1)
    assert_allclose(joined, model(X), atol=1e-6)


def test_masks_that_layers_make_or_that_are_inputs():
    ids = keras.Input((None,), name="ids")
    valid = keras.Input((None,), dtype="bool", name="valid")
    embedded = layers.Embedding(5, 4, mask_zero=True)(ids)
    joined = layers.Concatenate()([embedded, layers.Masking()(embedded)])
    nested = keras.Sequential([keras.Input((None, 8)), layers.LSTM(4, **ALL)])
    both = layers.Multiply()([lstm_of_four(joined), nested(joined)])
    answer = TrellisLayer(3, 2)(both, mask=valid)
    model = keras.Model({"ids": ids, "valid": valid}, answer)
    stream = StreamedModel(model)
    x = {"ids": IDS, "valid": RNG.random((2, 8)) < 0.5}
    cache = stream.get_initial_cache(2)
    for first in range(8):
        part = {name: value[:, first : first + 1] for name, value in x.items()}
        answer, cache = stream.stream(part, cache)
    assert_allclose(answer, model(x), atol=1e-6)


def test_what_reads_answers_is_run_as_keras_runs_it():
    """A decoder may look wherever it likes: it has all that there is so far."""
    model = model_of(
        lambda x: layers.Bidirectional(lstm())(layers.RepeatVector(3)(2.0 * encoded(x)))
    )
    for size in (1, 4):
        results = chunks(StreamedModel(model), X, size)
        assert_allclose(results[-1], model(X), atol=1e-6)
        assert_allclose(results[0], model(X[:, :size]), atol=1e-6)


def test_a_mask_of_time_steps_is_nothing_for_a_softmax():
    stream = StreamedModel(model_of(lambda x: layers.Softmax()(x)))
    mask = np.ones([2, 8], bool)
    assert_allclose(np.sum(chunks(stream, X), axis=-1), 1, rtol=1e-5)
    with refuses("No mask may reach the layer 'softmax"):
        chunks(stream, X, mask=mask)


def test_operations_of_keras():
    def call(x):
        y = ops.relu(x[..., 1:]) - x[:, :, :3] * np.float32([1, 2, 3])
        y = ops.concatenate([y, ops.max(x, axis=-1, keepdims=True)], axis=-1)
        return ops.where(x > 0, y, -y / 2)[:, -1]

    model = model_of(call)
    assert_allclose(chunks(StreamedModel(model), X)[-1], model(X), atol=1e-6)


@pytest.mark.parametrize("cache", ["graph", "host"])
def test_a_language_model_streams_as_any_other(cache, tmp_path):
    model = TrellisLM(9, TrellisLayer(4, 3, dilation_rate=(1, 2)), embedding_units=4)
    ids = np.random.default_rng(0).integers(0, 9, [2, 8])
    symbols = keras.Input((None,), dtype="int32", name="ids")
    stream = StreamedModel(keras.Model(symbols, model(symbols)))
    whole = np.asarray(model(ids))
    assert_allclose(np.concatenate(chunks(stream, ids), axis=1), whole, atol=1e-6)
    running, past = stream.start(2), model.get_initial_cache(2)
    for step in range(8):
        found = running.advance(ids[:, step : step + 1])[:, 0]
        log_probs, past = model.step(ids[:, step], past)
        assert_allclose(ops.log_softmax(found), log_probs, atol=1e-6)
    *_, count = stream.summary().splitlines()[-1].split()
    assert int(count.replace(",", "")) == products(stream)
    path = str(tmp_path / "model.onnx")
    stream.export(path, "onnx", cache=cache, batch_size=2)
    begun = {name: np.asarray(v) for name, v in stream.get_initial_cache(2).items()}
    session = onnxruntime.InferenceSession(path)
    given = {"ids": ids[:, :1].astype("int32"), **begun}
    if cache == "host":
        sizes = {value.name: value.shape for value in session.get_inputs()}
        given |= {
            name: np.zeros(sizes[name], "float32") for name in sizes.keys() - {"ids"}
        }
        given = {name: given[name] for name in sizes}
    (outputs,) = session.run(["outputs"], given)
    assert_allclose(outputs[:, 0], whole[:, 0], atol=1e-6)


def test_the_summary_counts_bytes_and_the_products_of_a_graph():
    def call(x):
        x = layers.Conv1D(4, 3, strides=2, padding="causal", name="conv")(x)
        x = layers.LSTM(4, name="lstm", **ALL)(x) + layers.GRU(4, **ALL)(x)
        x = TrellisLayer(4, 7, dilation_rate=(1, 2), kernel_size=3, **ALL)(x)
        x = TrellisLayer(4, 3, groups=2, inject_every=2, **ALL)(x)
        x = EquilibriumTrellisLayer(4, groups=2, inject_groups=True, **ALL)(x)
        x = keras_trellis.RecurrentLayer(TensorizedLSTM(4, 3), **ALL)(x)
        x = layers.TimeDistributed(layers.Dense(4))(recurrent.IHCLSTM(4, **ALL)(x))
        return TrellisClassifier(3, recurrent.StackedLSTM(4))(x)

    stream = StreamedModel(model_of(call))
    *_, total, note = stream.summary().splitlines()
    assert note == "A chunk has a multiple of 2 time steps."
    numbers = [float(number.replace(",", "")) for number in total.split()[1:]]
    table = running.line_table(stream._plan, 2)
    begun = [table.initial(pool) for pool in table.pools]
    kept = sum(entries.nbytes for entries in begun)
    moved = sum(
        entries[:1].nbytes * (len(pool.read.line) + len(pool.written.line))
        for entries, pool in zip(begun, table.pools, strict=True)
    )
    assert numbers == [kept, moved / 2, products(stream) / 2]
    first, *_ = stream.summary().splitlines()[1:]
    assert first.split() == (
        "conv (Conv1D) the last 2 steps of its input 32 32 24".split()
    )


def test_a_chunk_of_any_number_of_rows_begins_from_parts_of_no_size():
    """A layer with one tap keeps none of its inputs."""
    layer = TrellisLayer(3, 2, kernel_size=1, **ALL)
    stream = StreamedModel(model_of(layer))
    cache = stream.get_initial_cache(len(X))
    expected, after = stream.stream(X[:, :2], cache)
    chunk = formats.Chunk(stream, stream._plan, 2)
    found = chunk.function(None)(tf.constant(X[:, :2]), *cache.values())
    for name, value in after.items():
        assert_allclose(found.pop(name), value, atol=1e-6)
    (outputs,) = found.values()
    assert_allclose(outputs, expected, atol=1e-6)


def test_a_mask_that_a_model_inside_is_called_with_is_an_input_of_the_stream():
    inner = model_of(layers.LSTM(3, **ALL))
    x, mask = keras.Input((None, 4)), keras.Input((None,), dtype="bool")
    outer = keras.Model([x, mask], inner(x, mask=mask))
    valid = np.random.default_rng(1).random(X.shape[:2]) > 0.5
    stream = StreamedModel(outer)
    cache = stream.get_initial_cache(len(X))
    found = []
    for first in range(0, X.shape[1], 2):
        part = np.s_[:, first : first + 2]
        outputs, cache = stream.stream([X[part], valid[part]], cache)
        found.append(outputs)
    expected = outer([X, valid])
    assert_allclose(np.concatenate(found, axis=1), expected, atol=1e-5)


def products(stream):
    """Returns the multiply-adds of the products with weights in the graph of one chunk."""
    chunk = formats.Chunk(stream, stream._plan.stepwise(), stream.stride)
    graph = chunk.function(1).get_concrete_function().graph
    total = 0
    for op in graph.get_operations():
        if op.type == "MatMul":
            depth = op.inputs[0].shape[0 if op.get_attr("transpose_a") else 1]
            total += depth * op.outputs[0].shape.num_elements()
        elif op.type == "Conv2D":
            kernel = op.inputs[1].shape
            total += math.prod(kernel[:3]) * op.outputs[0].shape.num_elements()
    return total


def test_the_page_names_each_kind_of_layer():
    page = (ROOT / "docs/reference/streamed_layers.md").read_text(encoding="utf-8")
    for cls in {*rules.LAYERS, *rules.REFUSED}:
        assert f"`{cls.__name__}`" in page, cls


class Echo(keras.layers.Layer):
    """Adds what was five steps before, of which a step reads one and no more."""

    line = lines.Line((4,), (5,), "float32")

    def call(self, x):
        return x + ops.pad(x, [[0, 0], [5, 0], [0, 0]])[:, :-5]

    def delay_lines(self):
        return {"past": self.line}

    def advance(self, chunk, past):
        before = lines.read(self.line, past["past"], chunk, [[5]])
        return chunk + before, {"past": chunk}


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_layer_of_ones_own_declares_what_it_reads(size):
    model = model_of(Echo())
    stream = StreamedModel(model)
    running, cache = stream.start(len(X)), stream.get_initial_cache(len(X))
    for first in range(0, 8, size):
        chunk = X[:, first : first + size]
        expected = model(X)[:, first : first + size]
        assert_allclose(running.advance(chunk), expected, atol=1e-6)
        outputs, cache = stream.stream(chunk, cache)
        assert_allclose(outputs, expected, atol=1e-6)
    with refuses("No mask may reach the layer 'echo"):
        stream.stream(chunk, cache, np.ones(chunk.shape[:2], bool))


def test_a_running_stream_follows_the_weights_and_refuses_other_rows(strided):
    model = model_of(layers.LSTM(3, **ALL))
    stream = StreamedModel(model)
    running, other = stream.start(2), stream.start(2)
    first = np.asarray(running.advance(X[:, :1]))
    model.set_weights([weight + 0.1 for weight in model.get_weights()])
    running.reset()
    again = np.asarray(running.advance(X[:, :1]))
    assert_allclose(again, model(X)[:, :1], atol=1e-6)
    assert_allclose(other.advance(X[:, :1]), again, atol=1e-6)
    assert np.abs(again - first).max() > 1e-3
    with refuses("must have 2 rows. Received: 1 rows"):
        running.advance(X[:1, :1])
    with refuses("have a multiple of"):
        strided.start().advance([X[:1, :1], IDS[:1, :1]])


def test_a_mask_does_not_reach_a_line():
    def call(x):
        x = layers.Masking()(x)
        return TrellisLayer(3, 2, **ALL)(x)

    running = StreamedModel(model_of(call)).start(len(X))
    with refuses("No mask may reach 'trellis_layer.*stream"):
        running.advance(X[:, :1])
