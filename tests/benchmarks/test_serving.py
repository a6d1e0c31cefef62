"""The benchmark of generation from an export, at a tiny size."""

import functools

import keras
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

import keras_trellis
from benchmarks import serving, workers
from benchmarks.workers import Reading, Result
from tests.benchmarks.commands import measured


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("exports"))
    setting = serving.Setting(
        11, 8, 6, 3, (1,), batch_size=2, new_tokens=4, folder=folder
    )
    with pytest.MonkeyPatch.context() as patch:  # building and loading take seconds
        patch.setattr(serving, "model", functools.cache(serving.model))
        patch.setattr(tf.saved_model, "load", functools.cache(tf.saved_model.load))
        for layer in ("trellis", "lstm"):
            serving.export(layer, setting)
        yield setting


OURS = ("step", "generate", "runtime_step", "runtime_generate")


@pytest.mark.parametrize("name", [*OURS, "lstm", "lstm_generate"])
def test_each_continues_as_the_keras_model_does(name, setting):
    built = serving.model("lstm" if "lstm" in name else "trellis", setting)
    prompts = setting.prompts()
    length = prompts.shape[1] + 4
    expected = built.generate(prompts, length, temperature=0.0, strip_prompt=True)
    contender = serving.CONTENDERS[name][1](setting)
    assert_array_equal(contender.step(), expected)
    assert_array_equal(contender.step(), expected)  # each round begins alike
    facts = {"tokens": 4}
    if "runtime" not in name:
        facts["parameters"] = built.count_params()
    assert contender.facts == facts
    # Loaded anew before each step: the first answer of a server.
    if name in ("generate", "lstm_generate"):
        kind = name.replace("generate", "first_generate")
        first = serving.STARTS["first_generate"][kind][1](setting)
        for _ in range(2):
            first.prepare()
            assert_array_equal(first.step(), expected)


@pytest.mark.parametrize("layer", ["trellis", "lstm"])
def test_a_start_loads_the_export(layer, setting, monkeypatch):
    loads = []
    monkeypatch.setattr(serving, "_loaded", lambda *given: loads.append(given))
    serving.load(layer, setting).step()
    assert loads == [(layer, setting)]


def test_the_runtime_starts_in_a_process_of_its_own(setting):
    before = workers._processor_time()
    done = serving.start("runtime", setting).step()
    assert done.stdout.startswith(b"[[")
    assert workers._processor_time() > before  # that of the child too


def test_torch_has_as_many_parameters(setting):
    pytest.importorskip("torch")
    contender = serving.torch_lstm(setting)
    assert contender.step().shape == (2, 4)
    wanted = serving.model("lstm", setting).count_params()
    assert abs(contender.facts["parameters"] - wanted) < 0.1 * wanted


def test_sizes_of_the_default_model():
    """A stack of two LSTMs has as many parameters as the two that it is compared with."""
    sizes = serving.SIZES["default"]
    setting = serving.Setting(
        **sizes, dilation_rate=(1,), batch_size=1, new_tokens=1, folder=""
    )
    ours, lstm = (serving.model(each, setting) for each in ("trellis", "lstm"))
    assert abs(ours.count_params() / lstm.count_params() - 1) < 0.01


def test_a_percentile():
    assert serving.percentile(list(range(1, 201)), 99) == 198
    assert serving.percentile([3.0], 99) == 3.0


def test_a_window_gives_the_next_token(setting):
    built, prompts = serving.model("trellis", setting), setting.prompts()
    expected = built.generate(
        prompts, prompts.shape[1] + 1, temperature=0.0, strip_prompt=True
    )
    found = serving.CONTENDERS["window"][1](setting).step()
    assert_array_equal(found, expected[:, 0])
    assert prompts.shape == (2, built.receptive_field)


def test_no_lstm_comes_nearer_to_the_parameters(setting):
    wanted = serving.model("trellis", setting).count_params()

    def distance(units):
        layers = [keras.layers.LSTM(width) for width in (units, 6)]
        network = keras_trellis.TrellisLM(11, layers, embedding_units=6)
        network.build((None, None))
        return abs(network.count_params() - wanted)

    units = setting.lstm_units()
    assert distance(units) <= min(distance(units - 1), distance(units + 1))


def test_times_are_those_of_a_token():
    results = {
        "step": Result({"tokens": 4}, [Reading(2.0, 1.0, None), Reading(6.0, 4.0, 7)])
    }
    (found,) = serving.a_token(results).values()
    assert found.readings == [Reading(0.5, 0.25, None), Reading(1.5, 1.0, 7)]


def test_the_command(tmp_path, forks):
    sizes = ("--units=8", "--depth=3", "--embedding_units=6", "--vocabulary_size=11")
    flags = ("--batch_size=2", "--rounds=1", "--warmup=0", "--threads=1")
    flags += ("--only=step", "--only=lstm_load")
    found, text = measured(forks, tmp_path, "serving", *sizes, *flags)
    (row,) = found["rows"]
    assert (row["name"], row["batch_size"], row["parameters"]) == ("step", 2, 1_005)
    assert "| `step_v2` | 2 | " in text
    ours, lstm = found["starts"]
    assert (ours["name"], lstm["name"]) == ("load", "lstm_load")
    assert ours["processor_to_ours"]["median"] == 1 != lstm["processor_to_ours"]
    assert "| keras.layers.LSTM | `load` | " in text
