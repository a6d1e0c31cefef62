"""Streamed models as C: compiled with every warning, run under sanitizers, equal to Keras."""

import shutil
import subprocess

import keras
import numpy as np
import pytest

from keras_trellis import StreamedModel, TrellisLayer
from tests.formats import runtimes
from tests.formats.test_streamed import kinds_in, model_of

pytestmark = [
    pytest.mark.skipif(
        runtimes.BACKEND != "TensorFlow", reason="StreamedModel exports from it alone"
    ),
    pytest.mark.skipif(
        bool(runtimes.missing(["ONNX"])) or not shutil.which("cc"),
        reason="it needs tf2onnx and a compiler",
    ),
    pytest.mark.filterwarnings("ignore"),  # the converter warns of much
]

STRICT = "-O1 -Wall -Wextra -Werror -pedantic -fsanitize=address,undefined"


def make(folder, *arguments):
    return subprocess.run(
        ["make", "-C", folder, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("steps", [2, 6])
def test_layers_in_c(tmp_path, steps):
    model_of(kinds_in("onnx")).export(tmp_path / "layers", "c", steps=steps)
    checked = make(tmp_path / "layers", "check", f"CFLAGS={STRICT}")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert float(checked.stdout.split("Keras ")[1].split()[0]) < 1e-5


def test_the_program_streams_a_recording_of_ones_own(tmp_path):
    layers = [
        keras.Input([None, 3]),
        keras.layers.Conv1D(8, 4, strides=2, padding="causal", activation="relu"),
        TrellisLayer(4, 3, kernel_size=3, dilation_rate=[1, 3, 9]),
        keras.layers.Dense(2, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    StreamedModel(model).export(tmp_path / "my-model", "c")
    assert make(tmp_path / "my-model").returncode == 0
    signal = np.random.default_rng(1).normal(size=(1, 40, 3)).astype("float32")
    np.savetxt(tmp_path / "own.csv", signal[0], delimiter=",")
    program = tmp_path / "my-model" / "main"
    answer = subprocess.run(
        [program, tmp_path / "own.csv"], capture_output=True, text=True, check=True
    )
    rows = [line.split(",") for line in answer.stdout.splitlines()]
    assert len(rows) == 20
    for steps in (2, 20, 40):
        expected = model.predict(signal[:, :steps], verbose=0)[0]
        row = np.array(rows[steps // 2 - 1], "float32")
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_other_numbers_than_keras_answered_are_an_error(tmp_path):
    inputs = keras.Input([None, 2])
    model = keras.Model(inputs, keras.layers.LSTM(3)(inputs))
    StreamedModel(model).export(tmp_path / "lstm", "c")
    expected = tmp_path / "lstm" / "expected.csv"
    first, *others = expected.read_text().splitlines()
    expected.write_text("\n".join([first.replace("0.", "0.9", 1), *others]))
    checked = make(tmp_path / "lstm", "check")
    assert checked.returncode != 0 and "largest difference" in checked.stdout


def test_what_c_cannot_hold_is_refused_by_name(tmp_path):
    inputs = keras.Input([None], dtype="int32")
    words = keras.layers.Embedding(5, 2)(inputs)
    model = StreamedModel(keras.Model(inputs, keras.layers.LSTM(3)(words)))
    with pytest.raises(ValueError, match="'c' cannot hold this model, of .*Embedding"):
        model.export(tmp_path / "words", "c")
    with pytest.raises(ValueError, match=r"`batch_size` must be 1 in format='c'"):
        model.export(tmp_path / "words", "c", batch_size=2)
    assert not [*tmp_path.iterdir()]
