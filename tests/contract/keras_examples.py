"""Seventeen of Keras's official examples, small and on made data: the layer is the only change.

Each builds, trains and uses its model as the example of this name at https://keras.io/examples
does, and gives the layer the arguments that the example gives to its LSTM or GRU.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer, recurrent

Make = Callable[..., keras.layers.Layer]
"""Makes a layer of its units and the arguments of a `keras.layers.LSTM`."""

LAYERS: dict[str, Make] = {
    "LSTM": layers.LSTM,
    # Its outputs see 16 steps, which no series here is longer than.
    "TrellisLayer": functools.partial(
        TrellisLayer, depth=4, dilation_rate=[1, 2, 4, 8]
    ),
    "groups": functools.partial(
        EquilibriumTrellisLayer, groups=2, inject_groups=True, unit_forget_bias=True
    ),
    "StackedLSTM": recurrent.StackedLSTM,
    "IHCLSTM": recurrent.IHCLSTM,
    "TLSTM": recurrent.TLSTM,
}

RIGHT = "yes"
LIMITS = {
    "no `relu`": "has no argument `activation`.*activation='relu'",
    "no `tanh`": "has no argument `activation`.*activation='tanh'",
    "no cell": "no cell for `keras.layers.RNN`",
    "inexact": "step by step it writes something else",
    # Keras multiplies a loss for each of 32 rows by a mask of 16 steps; each backend says so.
    "masked loss": r"\b32\b.{1,50}\b16\b",
    "in place": "modified by an inplace operation",
}
"""What else a cell of the table says: a pattern of the error that says it."""


def cell(example: str, layer: str) -> str:
    """Runs an example with a layer.

    Args:
        example: a key of `EXAMPLES`.
        layer: a key of `LAYERS`.

    Returns:
        `RIGHT`, or the key of `LIMITS` that says what is in the way.

    Raises:
        Exception: of the example, none of those in `LIMITS`.
    """
    keras.utils.set_random_seed(0)
    try:
        EXAMPLES[example](LAYERS[layer], np.random.default_rng(0))
    except Exception as error:
        for text, pattern in LIMITS.items():
            if re.search(pattern, str(error), re.DOTALL):
                return text
        raise
    return RIGHT


# Texts


def addition_rnn(make: Make, rng: np.random.Generator) -> None:
    """Sums of two numbers: an encoder, its output repeated, a decoder."""
    questions, answers = _one_hot(rng, 64, 7, 12), _one_hot(rng, 64, 4, 12)
    model = keras.Sequential(
        [
            keras.Input((7, 12)),
            make(16),
            layers.RepeatVector(4),
            make(16, return_sequences=True),
            layers.Dense(12, activation="softmax"),
        ]
    )
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    _fit(model, questions, answers)
    _predict(model, questions[:1])


def lstm_seq2seq(make: Make, rng: np.random.Generator) -> None:
    """An encoder's states begin a decoder, which a second model then runs step by step."""
    read, written = _one_hot(rng, 64, 5, 12), _one_hot(rng, 64, 8, 12)
    encoder_inputs = keras.Input((None, 12))
    _, *states = make(16, return_state=True)(encoder_inputs)
    decoder_inputs = keras.Input((None, 12))
    decoder = make(16, return_sequences=True, return_state=True)
    hidden, *_ = decoder(decoder_inputs, initial_state=states)
    dense = layers.Dense(12, activation="softmax")
    model = keras.Model([encoder_inputs, decoder_inputs], dense(hidden))
    model.compile("rmsprop", "categorical_crossentropy")
    _fit(model, [read, written], np.roll(written, -1, axis=1))

    encoder = keras.Model(encoder_inputs, states)
    given = [keras.Input(state.shape[1:]) for state in states]
    hidden, *after = decoder(decoder_inputs, initial_state=given)
    step = keras.Model([decoder_inputs, *given], [dense(hidden), *after])
    read, written = read[:2], written[:2]
    whole = _predict(model, [read, written])
    values = keras.tree.flatten(_predict(encoder, read))
    steps = []
    for number in range(written.shape[1]):
        now = written[:, number : number + 1]
        outputs, *values = _predict(step, [now, *values])
        steps.append(outputs)
    if not np.allclose(np.concatenate(steps, axis=1), whole, atol=1e-5):
        raise AssertionError("step by step it writes something else")


def bidirectional_lstm_imdb(make: Make, rng: np.random.Generator) -> None:
    """Reviews: two bidirectional layers over word vectors."""
    words, labels = rng.integers(0, 50, (32, 12)), rng.integers(0, 2, 32)
    inputs = keras.Input((None,), dtype="int32")
    hidden = layers.Embedding(50, 8)(inputs)
    hidden = layers.Bidirectional(make(8, return_sequences=True))(hidden)
    hidden = layers.Bidirectional(make(8))(hidden)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(hidden))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    _fit(model, words, labels)


def active_learning_review(make: Make, rng: np.random.Generator) -> None:
    """Padded reviews: masked, pooled; the best model is saved and loaded."""
    words, labels = _padded(rng, 32, 12, 50), rng.integers(0, 2, 32)
    model = keras.Sequential(
        [
            keras.Input((12,)),
            layers.Embedding(50, 8, mask_zero=True),
            layers.Bidirectional(make(8, return_sequences=True)),
            layers.GlobalMaxPool1D(),
            layers.Dense(8, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    metrics = ["binary_accuracy", keras.metrics.FalseNegatives()]
    model.compile("rmsprop", "binary_crossentropy", metrics=metrics)
    stop = keras.callbacks.EarlyStopping(patience=4)
    _fit_and_load(model, words, labels, stop)


def lstm_character_level(make: Make, rng: np.random.Generator) -> None:
    """The next character of a text."""
    text = rng.integers(0, 30, 80)
    windows = np.lib.stride_tricks.sliding_window_view(text, 17)
    characters = np.eye(30, dtype=bool)
    inputs, targets = characters[windows[:, :-1]], characters[windows[:, -1]]
    model = keras.Sequential(
        [
            keras.Input((16, 30)),
            make(16),
            layers.Dense(30, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.RMSprop(0.01), "categorical_crossentropy")
    _fit(model, inputs, targets)
    _predict(model, inputs[:1])


def ner_time_distributed(make: Make, rng: np.random.Generator) -> None:
    """A tag for each word of padded sentences."""
    words, tags = _padded(rng, 32, 12, 50), rng.integers(0, 4, (32, 12))
    inputs = keras.Input((12,))
    hidden = layers.Embedding(50, 8, mask_zero=True)(inputs)
    hidden = layers.SpatialDropout1D(0.1)(hidden)
    layer = make(8, return_sequences=True, recurrent_dropout=0.1)
    hidden = layers.Bidirectional(layer)(hidden)
    tag = layers.TimeDistributed(layers.Dense(4, activation="softmax"))
    model = keras.Model(inputs, tag(hidden))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    _fit(model, words, tags)


def nmt_attention(make: Make, rng: np.random.Generator) -> None:
    """Translation: a decoder attends to an encoder, both padded."""
    read, written = _padded(rng, 32, 8, 30), _padded(rng, 32, 8, 30)
    inputs = [keras.Input((None,), dtype="int64") for _ in range(2)]
    vectors = [layers.Embedding(30, 8, mask_zero=True)(words) for words in inputs]
    encoder = layers.Bidirectional(make(8, return_sequences=True), merge_mode="sum")
    decoder = make(8, return_sequences=True, return_state=True)
    hidden, *_ = decoder(vectors[1])
    attended = layers.MultiHeadAttention(1, 8)(hidden, encoder(vectors[0]))
    hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
    model = keras.Model(inputs, layers.Dense(30)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    _fit(model, [read, written], np.roll(written, -1, axis=1))


# Pictures and sounds


def captcha_ocr(make: Make, rng: np.random.Generator) -> None:
    """The characters of a picture, column by column, by CTC."""
    pictures, labels = rng.normal(size=(32, 24, 8, 1)), rng.integers(1, 11, (32, 4))
    inputs = keras.Input((24, 8, 1))
    hidden = layers.Conv2D(4, 3, activation="relu", padding="same")(inputs)
    hidden = layers.MaxPooling2D(2)(hidden)
    hidden = layers.Reshape((12, 16))(hidden)
    hidden = layers.Dropout(0.2)(layers.Dense(16, activation="relu")(hidden))
    for units in (16, 8):
        layer = make(units, return_sequences=True, dropout=0.25)
        hidden = layers.Bidirectional(layer)(hidden)
    model = keras.Model(inputs, layers.Dense(11, name="symbols")(hidden))
    model.compile("adam", keras.losses.CTC())
    _fit(model, pictures, labels)
    reader = keras.Model(model.input, model.get_layer("symbols").output)
    outputs = _predict(reader, pictures[:4])
    ops.ctc_decode(outputs, np.full(4, 12), strategy="greedy", mask_index=0)


def handwriting_masked_ctc(make: Make, rng: np.random.Generator) -> None:
    """CTC over padded sequences."""
    strokes, labels = _padded(rng, 32, 16, 20), rng.integers(1, 6, (32, 4))
    model = keras.Sequential(
        [
            keras.Input((16,)),
            layers.Embedding(20, 8, mask_zero=True),
            layers.Bidirectional(make(8, return_sequences=True)),
            layers.Dense(7),
        ]
    )
    model.compile("adam", keras.losses.CTC())
    _fit(model, strokes, labels)


def ctc_asr(make: Make, rng: np.random.Generator) -> None:
    """Speech by CTC: recurrent layers with all of their defaults given."""
    sounds, labels = rng.normal(size=(32, 32, 13)), rng.integers(1, 9, (32, 5))
    inputs = keras.Input((None, 13))
    hidden = layers.Reshape((-1, 13, 1))(inputs)
    convolution = layers.Conv2D(
        4, [11, 5], strides=[2, 2], padding="same", use_bias=False
    )
    hidden = layers.ReLU()(layers.BatchNormalization()(convolution(hidden)))
    hidden = layers.Reshape((-1, hidden.shape[-2] * hidden.shape[-1]))(hidden)
    for number in range(2):
        layer = make(
            8,
            activation="tanh",
            recurrent_activation="sigmoid",
            use_bias=True,
            return_sequences=True,
            name=f"gru_{number}",
        )
        hidden = layers.Bidirectional(layer, merge_mode="concat")(hidden)
        hidden = layers.Dropout(0.5)(hidden)
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(hidden))
    model.compile(keras.optimizers.Adam(1e-4), keras.losses.CTC())
    _fit(model, sounds, labels)


def video_classification(make: Make, rng: np.random.Generator) -> None:
    """Videos of several lengths: the mask is an input; the best weights are loaded."""
    frames, labels = rng.normal(size=(32, 12, 16)), rng.integers(0, 5, 32)
    lengths = rng.integers(6, 13, 32)
    mask = np.arange(12) < lengths[:, None]
    frame_inputs = keras.Input((12, 16))
    mask_inputs = keras.Input((12,), dtype="bool")
    hidden = make(8, return_sequences=True)(frame_inputs, mask=mask_inputs)
    hidden = layers.Dropout(0.4)(make(8)(hidden))
    hidden = layers.Dense(8, activation="relu")(hidden)
    outputs = layers.Dense(5, activation="softmax")(hidden)
    model = keras.Model([frame_inputs, mask_inputs], outputs)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    _fit_and_load_weights(model, [frames, mask], labels)


# Time series


def lstm_vs_cnn_classification(make: Make, rng: np.random.Generator) -> None:
    """Series: both dropouts, the callbacks of a long training, a model loaded."""
    series, labels = rng.normal(size=(32, 16, 1)), rng.integers(0, 2, 32)
    dropouts = {"dropout": 0.3, "recurrent_dropout": 0.3}
    model = keras.Sequential(
        [
            keras.Input((16, 1)),
            make(8, return_sequences=True, **dropouts),
            make(8, **dropouts),
            layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    stop = keras.callbacks.EarlyStopping(restore_best_weights=True)
    _fit_and_load(model, series, labels, stop, keras.callbacks.ReduceLROnPlateau())


def weather_forecasting(make: Make, rng: np.random.Generator) -> None:
    """A value some steps ahead; the weights are saved and loaded."""
    series, targets = rng.normal(size=(64, 16, 7)), rng.normal(size=(64, 1))
    inputs = keras.Input((16, 7))
    model = keras.Model(inputs, layers.Dense(1)(make(16)(inputs)))
    model.compile(keras.optimizers.Adam(0.001), "mse")
    _fit_and_load_weights(model, series, targets)


def traffic_forecasting(make: Make, rng: np.random.Generator) -> None:
    """Roads: inside a layer of one's own, with another activation."""

    class Roads(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = make(8, activation="relu")
            self.dense = layers.Dense(9)

        def call(self, series: Any) -> Any:
            series = ops.transpose(series, [2, 0, 1, 3])
            roads, rows, steps, channels = ops.shape(series)
            each = ops.reshape(series, [roads * rows, steps, channels])
            forecast = ops.reshape(self.dense(self.lstm(each)), [roads, rows, 9])
            return ops.transpose(forecast, [1, 2, 0])

    inputs = keras.Input((12, 4, 1))
    model = keras.Model(inputs, Roads()(inputs))
    model.compile(keras.optimizers.RMSprop(2e-4), "mse")
    _fit(model, rng.normal(size=(32, 12, 4, 1)), rng.normal(size=(32, 9, 4)))


def multivariate_stock(make: Make, rng: np.random.Generator) -> None:
    """Prices: three layers, batches from a `PyDataset`."""
    prices = rng.normal(size=(112, 5)).astype("float32")

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            starts = 32 * index + np.arange(32)
            return prices[starts[:, None] + np.arange(16)], prices[starts + 16, 0]

    model = keras.Sequential([keras.Input((16, 5))])
    for _ in range(2):
        model.add(make(8, return_sequences=True))
        model.add(layers.LeakyReLU(negative_slope=0.5))
    model.add(layers.Dropout(0.3))
    model.add(make(8))
    model.add(layers.Dense(1))
    model.compile("adam", "mse", metrics=["mae"])
    _fit(model, Batches(), shuffle=False)


def stateful_example(make: Make, rng: np.random.Generator) -> None:
    """One step a batch: the states go on, and are reset after each pass."""
    series = rng.normal(size=(32, 1, 1)).astype("float32")
    layer = make(8, stateful=True)
    model = keras.Sequential(
        [keras.Input(batch_shape=(8, 1, 1)), layer, layers.Dense(1)]
    )
    model.compile("adam", "mse")
    for _ in range(2):
        _fit(model, series, series[:, 0], batch_size=8, shuffle=False)
        layer.reset_states()
    _predict(model, series, batch_size=8)


# Guides


def rnn_guide_subclass_cell(make: Make, rng: np.random.Generator) -> None:
    """`keras.layers.RNN` over two cells of the layer, saved and loaded."""
    layer = make(8)
    name = f"{type(layer).__name__}Cell"
    cell_class = getattr(recurrent, name, None) or getattr(layers, name, None)
    if cell_class is None:
        raise NotImplementedError("no cell for `keras.layers.RNN`")
    cells = layers.StackedRNNCells([cell_class(8), cell_class(8)])
    model = keras.Sequential([keras.Input((6, 8)), layers.RNN(cells), layers.Dense(1)])
    model.compile("adam", "mse")
    _fit_and_load(model, rng.normal(size=(32, 6, 8)), rng.normal(size=(32, 1)))


EXAMPLES = {
    example.__name__: example
    for example in (
        addition_rnn,
        lstm_seq2seq,
        bidirectional_lstm_imdb,
        active_learning_review,
        lstm_character_level,
        ner_time_distributed,
        nmt_attention,
        captcha_ocr,
        handwriting_masked_ctc,
        ctc_asr,
        video_classification,
        lstm_vs_cnn_classification,
        weather_forecasting,
        traffic_forecasting,
        multivariate_stock,
        stateful_example,
        rnn_guide_subclass_cell,
    )
}
"""The examples by name, in the order of the table."""


# What they share


def _one_hot(rng: np.random.Generator, *shape: int) -> np.ndarray:
    *places, symbols = shape
    return np.eye(symbols, dtype="float32")[rng.integers(0, symbols, places)]


def _padded(
    rng: np.random.Generator, rows: int, steps: int, symbols: int
) -> np.ndarray:
    """Returns symbols from 1 on, and zeros after the end of each row."""
    lengths = rng.integers(steps // 2, steps + 1, (rows, 1))
    return rng.integers(1, symbols, (rows, steps)) * (np.arange(steps) < lengths)


def _fit(model: keras.Model, *data: Any, **options: Any) -> None:
    """Trains for an epoch; what it reports must be finite."""
    history = model.fit(*data, epochs=1, verbose=0, **options).history
    for name, values in history.items():
        if not np.all(np.isfinite(values)):
            raise AssertionError(f"{name} of {model.name} became {values}")


def _fit_and_load(
    model: keras.Model, inputs: Any, targets: Any, *callbacks: Any
) -> None:
    """Trains, and evaluates the best model, which it loads from its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "best.keras"
        best = keras.callbacks.ModelCheckpoint(path, save_best_only=True)
        options = {"validation_split": 0.2, "callbacks": [best, *callbacks]}
        _fit(model, inputs, targets, **options)
        loaded = keras.models.load_model(path)
    loaded.evaluate(inputs, targets, verbose=0)


def _fit_and_load_weights(model: keras.Model, inputs: Any, targets: Any) -> None:
    """Trains, and evaluates the best weights, which it loads from their file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "best.weights.h5"
        best = keras.callbacks.ModelCheckpoint(
            path, save_weights_only=True, save_best_only=True
        )
        _fit(model, inputs, targets, validation_split=0.3, callbacks=[best])
        model.load_weights(path)
    model.evaluate(inputs, targets, verbose=0)


def _predict(model: keras.Model, inputs: Any, **options: Any) -> Any:
    return model.predict(inputs, verbose=0, **options)
