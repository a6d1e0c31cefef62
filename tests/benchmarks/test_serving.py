"""The benchmark of generation from an export, at a tiny size."""

import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_trellis
from benchmarks import authors, lstm, serving
from benchmarks.workers import Reading, Result
from tests.benchmarks.commands import measured


@pytest.fixture(scope="module")
def setting(model):
    return serving.Setting(model, batch_size=2, new_tokens=4, windows=4, reference_dir=None)


def continued(contender):
    contender.step()
    return contender.learn()["ids"]


@pytest.fixture(scope="module")
def expected(setting):
    prompts = setting.prompts()
    length = prompts.shape[1] + setting.new_tokens
    ids = setting.model.build().generate(prompts, length, temperature=0.0, strip_prompt=True)
    return ids.numpy().tolist()


@pytest.mark.parametrize("name", ["step", "generate", "window", "window_last"])
def test_each_continues_as_the_keras_model_does(name, setting, expected):
    contender = serving.CONTENDERS[name][1](setting)
    assert continued(contender) == expected and contender.facts["tokens"] == 4
    assert continued(contender) == expected  # the next round begins where this one did


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_authors_window_is_the_receptive_field(setting, monkeypatch):
    import torch

    windows = []

    class Successor:
        """The most probable token is the last one's successor."""

        def __call__(self, ids, hidden, decode):
            windows.append(ids.shape[1])
            return (None, torch.nn.functional.one_hot((ids + 1) % 11, 11).float(), None), None, None

        def init_hidden(self, batch_size):
            return None

        def decoder(self, features):
            return features

    monkeypatch.setattr(authors, "language_model", lambda *_: Successor())
    last = setting.prompts()[:, -1].tolist()
    found = continued(serving.CONTENDERS["authors"][1](setting))
    assert found == [[(each + step) % 11 for step in range(1, 5)] for each in last]
    assert windows == [4] * 4


def test_no_lstm_comes_nearer_to_the_parameters(setting):
    contender = serving.CONTENDERS["lstm"][1](setting)
    ids = continued(contender)
    assert len(ids) == 2 and all(0 <= each < 11 for row in ids for each in row)
    facts, model = contender.facts, setting.model

    def distance(units):
        layers = [keras.layers.LSTM(width) for width in (units, 6)]
        network = keras_trellis.TrellisLM(11, layers, embedding_units=6)
        network.build((None, None))
        return abs(network.count_params() - model.parameters)

    nearest = abs(facts["parameters"] - model.parameters)
    assert nearest == distance(facts["units"])
    assert all(nearest <= distance(facts["units"] + change) for change in (-1, 1))


def test_a_token_reads_one_tap_at_each_level_above_the_first(setting):
    present, past = 2 * 8 * 32, 8 * 32  # two levels above the first; one product for all
    assert setting.weights_read() == present + past + 2 * 6 * 32 + 11 * 6 + 11


def test_reading_is_counted(setting, monkeypatch):
    monkeypatch.setattr(serving, "MATRIX", (4, 8))
    monkeypatch.setattr(serving, "MATRICES", 3)
    monkeypatch.setattr(serving, "PASSES", 2)
    sums, products = (serving.CONTENDERS[name][1](setting) for name in serving.READS)
    assert sums.facts == products.facts == {"bytes": 2 * 3 * 4 * 8 * 4}
    assert sums.step() == [3 * 4 * 8] * 2  # of ones
    assert [each.tolist() for each in products.step()] == [[[3 * 4] * 8]] * 2


def test_products_are_those_of_a_token(setting):
    shapes = [each.shape for each in serving.products(setting).step()]
    assert shapes == [(2 * 2, 32), (2, 32), (2, 11)]


def test_rows_set_times_of_a_token_beside_the_limits(setting):
    def result(ids, *seconds, **facts):
        return Result({"ids": ids, **facts}, [Reading(each, None) for each in seconds])

    needed = 4 * setting.weights_read()
    results = {
        "step": result([[1, 2, 3, 4]], 4.0, 8.0, tokens=4),
        "window": result([[1]], 9.0, 12.0, tokens=1),
        "lstm": result([[5, 5, 5, 5]], 2.0, 2.0, tokens=4, parameters=7),
        "products": Result({"tokens": 1}, [Reading(0.5, None)] * 2),
        "read_sums": Result({"bytes": needed}, [Reading(0.5, None), Reading(2.0, None)]),
        "read_products": Result({"bytes": 2 * needed}, [Reading(1.4, None), Reading(2.0, None)]),
    }
    found = {each["name"]: each for each in serving.rows(setting, results)}
    assert list(found) == ["step", "window", "lstm", "products", "limit"]
    assert found["step"]["seconds_a_token"] == [1.0, 2.0]
    assert found["limit"]["seconds_a_token"] == [0.5, 1.0]  # the better of the two, by round
    assert found["step"]["of_limit"] == 0.5
    assert found["lstm"]["of_limit"] is None  # it reads other weights
    assert found["window"]["time_to_ours"] == {"min": 6.0, "median": 7.5, "max": 9.0}
    assert [each["same"] for each in found.values()] == [1.0, 1.0, None, None, None]
    parameters = [each["parameters"] for each in found.values()]
    assert parameters == [setting.model.parameters] * 2 + [7, None, None]
    assert serving.rows(setting, {"lstm": results["lstm"]}) == []


def test_the_loop_of_an_lstm_writes_what_its_steps_do(setting):
    network, ids = lstm.network(setting.model), tf.constant([3, 4])
    cache, expected = network.get_initial_cache(2), [ids]
    for _ in range(4):
        scores, cache = network.step(expected[-1], cache)
        expected.append(tf.argmax(scores, -1, tf.int32))
    found = lstm.continued(network, ids, network.get_initial_cache(2), 4)
    np.testing.assert_array_equal(found, tf.stack(expected[1:], axis=1))


def test_each_way_is_set_beside_the_lstm_that_goes_it():
    def result(*seconds, tokens):
        return Result({"tokens": tokens}, [Reading(each, None) for each in seconds])

    results = {
        "step": result(4.0, 8.0, tokens=4),
        "generate": result(6.0, 6.0, tokens=4),
        "lstm": result(1.0, 4.0, tokens=2),
    }
    (found,) = serving.beside_lstms(32, results)
    assert found == {"title": "batch 32: `step`", "min": 1.0, "median": 1.5, "max": 2.0}


def test_the_command(tmp_path):
    sizes = ("--units=8", "--depth=3", "--embedding_units=6", "--vocabulary_size=11")
    flags = ("--batch_size=2", "--rounds=1", "--warmup=0", "--only=step", "--threads=1")
    found, text = measured(tmp_path, "serving", *sizes, *flags)
    (row,) = found["rows"]
    assert (row["name"], row["batch_size"], row["same"]) == ("step", 2, 1.0)
    assert "| `step` | 2 | " in text
