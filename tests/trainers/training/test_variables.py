"""Variables by name: the same names for every model of a kind, and 0.1's numbers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainers import optimizers
from trainers.training import checkpoints, variables, workdir


def model():
    """Layers that Keras numbers through the process, a nested one, and a generator."""
    layers = [keras.layers.LSTM(2, return_sequences=True) for _ in range(2)]
    dense, dropout = keras.layers.Dense(1, name="head"), keras.layers.Dropout(0.5)
    return keras.Sequential([keras.Input((3, 2)), *layers, dropout, dense])


NAMES = [
    *(
        f"model/lstm/lstm_cell/{name}"
        for name in ("kernel", "recurrent_kernel", "bias")
    ),
    *(
        f"model/lstm_1/lstm_cell/{name}"
        for name in ("kernel", "recurrent_kernel", "bias")
    ),
    "model/head/kernel",
    "model/head/bias",
]


def test_every_model_of_a_process_has_the_same_names():
    for _ in range(2):
        found = variables.model_variables(model())
        weights = [name for name in found if "seed_generator" not in name]
        assert weights == NAMES
        generators = {name for name in found if "seed_generator" in name}
        assert generators == {
            f"model/seed_generator{number}/seed_generator_state"
            for number in ("", "_1", "_2")
        }


@pytest.mark.parametrize(
    ("make", "own", "slots"),
    [
        (lambda: optimizers.Adam(0.1), [], ["mean", "square"]),
        (
            lambda: optimizers.Adam(0.1, averages=True),
            ["averaged_from"],
            ["mean", "square", "average"],
        ),
        (lambda: optimizers.SGD(0.1, averages=True), ["averaged_from"], ["average"]),
        (lambda: optimizers.SGD(0.1), ["averaged_from"], []),
    ],
)
def test_an_optimizer_s_variables_are_named_after_the_model_s(make, own, slots):
    model()
    one, optimizer = model(), make()
    optimizer.build(one.trainable_variables)
    found = variables.optimizer_variables(optimizer, one)
    expected = {f"optimizer/{name}" for name in ("iteration", "learning_rate", *own)}
    expected |= {
        f"{name.replace('model', 'optimizer', 1)}/{s}" for name in NAMES for s in slots
    }
    assert set(found) == expected
    assert len(found) == len(optimizer.variables)


def test_variables_of_one_path_have_names_of_their_own():
    class Twins(keras.Model):
        def __init__(self):
            super().__init__()
            self.twins = [self.add_weight(shape=(1,), name="twin") for _ in range(2)]

    assert list(variables.model_variables(Twins())) == ["model/twin", "model/twin_1"]


def named(*values):
    return {f"model/a/{i}": value for i, value in enumerate(values)}


def zeros(*shape):
    return keras.Variable(np.zeros(shape))


def test_variables_come_back_bit_for_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 2))
    saved = [
        keras.Variable(values, dtype=dtype)
        for dtype in ("float32", "float64", "bfloat16")
    ]
    saved.append(keras.random.SeedGenerator(7).state)
    store = checkpoints.Checkpoints(tmp_path)
    store.save(1, variables.arrays(named(*saved)))
    _, restored = store.restore()
    loaded = [keras.Variable(tf.zeros_like(v), dtype=v.dtype) for v in saved]
    variables.assign(named(*loaded), restored)
    for a, b in zip(saved, loaded, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_numbers_of_0_1_are_read_in_the_order_of_the_variables():
    found = named(zeros(3), zeros(2, 1))
    arrays = {
        "model/0": np.ones(3),
        "model/1": np.full((2, 1), 2.0),
        "step": np.array(3),
    }
    variables.assign(found, arrays)
    for variable, array in zip(found.values(), arrays.values(), strict=False):
        np.testing.assert_array_equal(variable.numpy(), array)


def test_the_generator_that_an_lstm_of_0_1_begins_with_may_have_no_place():
    found = named(zeros(3), zeros(2, 1))
    weights = {"model/1": np.ones(3), "model/2": np.full((2, 1), 2.0)}
    variables.assign(found, {"model/0": np.array([7, 0]), **weights})
    for variable, array in zip(found.values(), weights.values(), strict=True):
        np.testing.assert_array_equal(variable.numpy(), array)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"model/a/0": np.zeros(2)}, r"model/a/0 has shape \(2,\) .* expected \(3,\)"),
        ({"model/0": np.zeros(2)}, r"model/a/0 has shape \(2,\) .* expected \(3,\)"),
        (
            {"model/0": np.zeros(3), "model/1": np.zeros(3)},
            "2 arrays under `model`.* 1 variable",
        ),
        ({"model/7": np.zeros(3)}, "it lacks model/a/0 and has the unknown model/7"),
        ({"optimizer/a/0": np.zeros(3)}, "it lacks model/a/0$"),
        (
            {"model/a/0": np.zeros(3), "model/b/kernel": np.zeros(3)},
            "it has the unknown model/b/kernel$",
        ),
    ],
)
def test_arrays_of_another_model_are_refused_with_their_names(arrays, message):
    found = named(zeros(3))
    with pytest.raises(ValueError, match=message):
        variables.assign(found, arrays)


def test_weights_of_another_model_are_refused_with_their_file(tmp_path):
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    store.save_best({"model/a/kernel": np.zeros(3)})
    with pytest.raises(
        workdir.WorkdirError, match=r"best.npz .*lacks model/lstm/lstm_cell/kernel"
    ):
        checkpoints.load_best(tmp_path, model())
