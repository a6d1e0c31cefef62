"""The Grid LSTM against NumPy, in the layer that runs Keras's cells."""

import keras
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import RecurrentLayer
from tests.numpy_reference import sigmoid
from trainers.baselines.grid_lstm import GridLSTMCell

B, T, P, UNITS, DEPTH = 2, 4, 3, 2, 3


def lstm(both, memory, kernel, bias):
    i, f, a, o = np.split(both @ kernel + bias, 4, -1)
    memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(a)
    return np.tanh(sigmoid(o) * memory), memory


def grid(w, x):
    """H along depth of the highest block, at each step."""
    hidden, memory = np.zeros([2, DEPTH, len(x), UNITS])
    outputs = []
    for now in np.moveaxis(x, 1, 0):
        entering = now @ w["input_kernel"] + w["input_bias"]
        above, above_memory = np.split(entering, 2, -1)
        for block in range(DEPTH):
            both = np.concatenate([hidden[block], above], -1)
            hidden[block], memory[block] = lstm(
                both, memory[block], w["time_kernel"], w["time_bias"]
            )
            above, above_memory = lstm(
                both, above_memory, w["depth_kernel"], w["depth_bias"]
            )
        outputs.append(above)
    return np.stack(outputs, 1)


def test_the_equations_chunks_and_a_mask():
    cell = GridLSTMCell(UNITS, DEPTH, dtype="float64")
    layer = RecurrentLayer(
        [keras.layers.RNN(cell, dtype="float64")], return_sequences=True
    )
    rng = np.random.default_rng(0)
    layer.build((B, T, P))
    for variable in cell.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    weights = {v.name: v.numpy() for v in cell.trainable_variables}
    x = rng.normal(size=(B, T, P))
    expected = grid(weights, x)
    assert_allclose(layer(x), expected, rtol=1e-12)
    cache, pieces = layer.get_initial_cache(B), []
    for chunk in np.split(x, [1, 3], axis=1):
        piece, cache = layer.stream(chunk, cache)
        pieces.append(piece)
    assert_allclose(np.concatenate(pieces, 1), expected, rtol=1e-12)
    mask = np.array([[True, False, True, True]] * B)
    padded = np.where(mask[..., None], x, np.nan)
    masked = np.asarray(layer(padded, mask=mask))[:, [0, 2, 3]]
    assert_allclose(masked, grid(weights, x[:, [0, 2, 3]]), rtol=1e-12)
    copy = GridLSTMCell.from_config(cell.get_config())
    assert (copy.units, copy.depth) == (UNITS, DEPTH)


def test_its_forget_gates_begin_open():
    cell = GridLSTMCell(UNITS, DEPTH)
    cell.build((None, P))
    for bias in (cell.time_bias, cell.depth_bias):
        assert_array_equal(bias, np.repeat([0, 1, 0, 0], UNITS))
