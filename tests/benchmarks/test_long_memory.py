"""Long memory: what the contenders are given, what is measured, and what stays in the CSV."""

import math
import pickle

import numpy as np
import pytest

from benchmarks import long_memory
from benchmarks.contenders import OURS
from benchmarks.long_memory import Point, Setting
from benchmarks.workers import Result
from trainers.sequences import models
from trainers.tasks import config as configs
from trainers.tasks import sequences
from trainers.training import loop, runs


def tiny(task="adding"):
    config = configs.load(task, "small")
    config.data.update(steps=4, batch_size=8, train=67, validation=9, test=1)
    config.model.update(units=12, depth=2)
    return config


def point(name="lstm", rate=1e-2, seed=1, seconds=1.0, loss=0.1, task="adding", budget=2.0):
    return Point(task, name, 3, 40, rate, seed, budget, seconds, 110, loss)


def parameters(name, units, inputs, outputs):
    """Returns how many a contender has, by its equations."""
    layer = {
        "lstm": 4 * units * (units + inputs + 1),
        "gru": 3 * units * (units + inputs + 2),
        # Sixteen convolutions of eight taps, and one of one tap around the first two.
        "tcn": units * (8 * inputs + 15 * 8 * units + 16 + inputs + 1),
    }[name]
    return layer + (units + 1) * outputs


@pytest.mark.parametrize(
    "name, task, inputs, outputs",
    [
        *(("lstm", "copy_memory", 1, 10), ("gru", "copy_memory", 1, 10)),
        *(("lstm", "adding", 2, 1), ("tcn", "adding", 2, 1)),
    ],
)
def test_no_other_number_of_units_is_nearer_in_parameters(name, task, inputs, outputs):
    if name == "tcn":
        pytest.importorskip("tcn")
    data = sequences.load(tiny(task))
    wanted = runs.parameters(models.build(tiny(task), data))
    units, model = long_memory.sized(name, tiny(task), data)
    assert runs.parameters(model) == parameters(name, units, inputs, outputs)
    differences = {n: abs(parameters(name, n, inputs, outputs) - wanted) for n in range(1, 99)}
    assert differences[units] == min(differences.values())
    assert model.output_shape == ((None, 4 + 20, 10) if task == "copy_memory" else (None, 1))


def test_ours_is_the_preset_s():
    data = sequences.load(tiny())
    units, model = long_memory.sized(OURS, tiny(), data)
    assert units == 12 and models.layer_of(model).depth == 2


def test_a_training_by_the_clock_has_whole_batches_of_the_seed():
    config = long_memory.for_time(tiny(), 5)
    assert (config.seed, config.data.train, config.data.validation) == (5, 64, 9)
    assert config.is_locked and tiny().data.train == 67


def test_a_training_learns_until_its_seconds_are_over(monkeypatch):
    monkeypatch.setattr(loop, "make_deterministic", lambda seed: None)  # it is for good
    setting = Setting(tiny(), OURS, 1e-2, 1, 0.3)
    training = long_memory.contender(pickle.loads(pickle.dumps(setting)))
    training.step()
    seconds, steps, losses = map(np.array, zip(*training.learn()["curve"], strict=True))
    assert len(seconds) == 1 + long_memory.EVALUATIONS
    assert seconds[0] == 0 and seconds[-1] >= 0.3 and np.all(np.diff(seconds) >= 0)
    assert steps[0] == long_memory.CALL and np.all(np.diff(steps) % long_memory.CALL == 0)
    assert steps[-1] > steps[0] and min(losses[1:]) < losses[0]
    assert training.facts["units"] == 12 and training.facts["parameters"] > 12 * 12


def test_the_csv_gives_back_what_was_written(tmp_path):
    path = tmp_path / "points.csv"
    assert long_memory.read(path) == []
    facts = {"units": 3, "parameters": 40, "curve": [(0.0, 10, 0.25), (1.5, 110, math.nan)]}
    setting = Setting(tiny(), "gru", 1e-2, 4, 2.0)
    for _ in range(2):
        long_memory.append(path, setting, facts)
    first, second, *rest = long_memory.read(path)
    assert first == Point("adding", "gru", 3, 40, 0.01, 4, 2.0, 0.0, 10, 0.25)
    assert second[:-1] == ("adding", "gru", 3, 40, 0.01, 4, 2.0, 1.5, 110)
    assert math.isnan(second.loss) and len(rest) == 2


def test_what_is_in_the_csv_is_not_trained_again(tmp_path, monkeypatch):
    trained = []
    losses = {("lstm", 1e-3): 0.5, ("lstm", 1e-2): 0.2, ("gru", 1e-3): 0.1, ("gru", 1e-2): math.nan}

    def measure(builds, setting, **_):
        trained.append((setting.name, setting.rate, setting.seed))
        if setting.name == "tcn":
            return {}, {"tcn": "not installed"}
        loss = losses.get((setting.name, setting.rate), 0.3)
        facts = {"units": 3, "parameters": 40, "curve": [(0.0, 10, 0.6), (2.0, 110, loss)]}
        return {setting.name: Result(facts, [])}, {}

    monkeypatch.setattr(long_memory.workers, "measure", measure)

    def run(seeds, budget=2.0):
        return long_memory.measure(
            tiny(), budget=budget, rates=[1e-3, 1e-2], seeds=seeds, threads=1, path=path
        )

    path = tmp_path / "points.csv"
    points, left_out = run(1)
    assert left_out == {"tcn": "not installed"}
    assert trained[2:] == [("lstm", 1e-3, 1), ("lstm", 1e-2, 1), *trained[4:6], ("tcn", 1e-3, 1)]
    trained.clear()
    run(2)
    # Another seed, at each one's best rate; who could not run is tried again.
    assert trained == [("tcn", 1e-3, 1), (OURS, 1e-3, 2), ("lstm", 1e-2, 2), ("gru", 1e-3, 2)]
    trained.clear()
    more, _ = run(1, budget=3.0)
    assert len(trained) == 7 and {each.budget for each in more} == {3.0}


def test_a_row_is_of_the_best_rate():
    points = [
        *(point(seconds=0.0, loss=0.2), point(seconds=2.0, loss=9e-4), point(seconds=3.0)),
        *(point(seed=2, seconds=0.0), point(seed=2, seconds=4.0, loss=0.05)),
        *(point(rate=1e-3, loss=0.01), point(name="gru", loss=1e-5)),
    ]
    found = long_memory.row("lstm", long_memory.chosen(points, "lstm"))
    assert found["losses"] == [9e-4, 0.05] and found["solved"] == [2.0, None]
    assert found["rate"] == 1e-2 and (found["units"], found["parameters"]) == (3, 40)
    assert found["steps_per_second"] == pytest.approx((100 / 3 + 100 / 4) / 2)
    text = long_memory.table({"rows": [found]})
    assert "| keras.layers.LSTM | 3 | 40 | 0.01 | 29.2 |" in text and "| 1 of 2 | 2 |" in text


@pytest.mark.parametrize(
    "task, expected", [("adding", 1 / 6), ("copy_memory", 10 * math.log(8) / 24)]
)
def test_who_has_no_memory_is_drawn(task, expected, tmp_path):
    assert long_memory.memoryless(tiny(task)) == pytest.approx(expected)
    points = [point(task=task, seed=seed, seconds=at) for seed in (1, 2) for at in (0.0, 2.0)]
    long_memory.draw([*points, point(task="adding", name="gru")], tmp_path / "a" / "plot.png")
    assert (tmp_path / "a" / "plot.png").stat().st_size > 1_000
