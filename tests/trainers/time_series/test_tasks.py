"""Tasks on recordings: who is in which split, and what training knows of the others."""

import csv

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.refusals import refuses
from tests.trainers.time_series import series_files
from trainers.data import watch
from trainers.data.sequences import SPLITS
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.time_series import simpler, tasks
from trainers.training import schedules


@pytest.fixture
def recorded(monkeypatch):
    """The watch's data in small, in the place of the package's."""
    content = series_files.watch_pickle()
    made = watch.parse("f", content, series_files.checksum(content))
    monkeypatch.setattr(watch, "read", lambda data_dir: made)
    return made


def load(task, **data):
    config = configs.load(task, "small")
    config.data.update(window=16, hop=8, **({"ahead": 3} if task == "anomaly" else {}))
    config.data.update(data)
    config.seed = 7
    return registry.get(task).load(config, None)


@pytest.mark.parametrize("task", ["watch", "anomaly"])
@pytest.mark.parametrize("fold", [0, 4, None])
def test_no_person_is_in_two_splits(recorded, task, fold):
    data = load(task, fold=fold)
    people = watch.people(7 % 5 if fold is None else fold)
    for split in SPLITS:
        names = [recording.name for recording in data.recordings[split]]
        assert {int(name.split("-")[0]) for name in names} == set(people[split])
        # A window is of one recording of its split.
        inputs, owners = getattr(data, split).inputs, data.owners[split]
        assert set(owners) == set(range(len(names)))
        for values, owner in zip(inputs, owners, strict=True):
            steps = data.recordings[split][owner].values
            starts = [
                np.array_equal(steps[s : s + 16], values) for s in range(len(steps))
            ]
            assert sum(starts) == 1


def test_training_people_alone_determine_the_scaling(recorded, monkeypatch):
    facts = load("watch", fold=2).facts
    train = watch.people(2)["train"]
    changed = [
        each if each.person in train else each._replace(values=each.values * 9 + 100)
        for each in recorded
    ]
    monkeypatch.setattr(watch, "read", lambda data_dir: changed)
    assert load("watch", fold=2).facts == facts
    steps = np.concatenate([e.values for e in recorded if e.person in train])
    assert_allclose(facts.mean, steps.mean(0, dtype="float64"))
    assert_allclose(facts.deviation, steps.std(0, dtype="float64"))


def test_anomalies_are_no_training_recordings(recorded):
    data = load("anomaly", normal="PEN,ROW", fold=1)
    for split in SPLITS:
        for recording in data.recordings[split]:
            exercise = recording.name.split("-")[1]
            assert recording.target == (exercise not in ("PEN", "ROW"))
    assert {int(r.target) for r in data.recordings["train"]} == {0}
    assert {int(r.target) for r in data.recordings["test"]} == {0, 1}


def test_what_is_predicted_lies_in_a_window(recorded):
    message = "`config.data.ahead` must be below 16, .* Received: config.data.ahead=16"
    with refuses(message):
        load("anomaly", ahead=16)


@pytest.mark.parametrize(
    "normal, message",
    [
        ("PEN,ROWS", "unknown exercise 'ROWS'; did you mean 'ROW'?"),
        ("", "must have some of the exercises, and not all: PEN, .*normal=''"),
        (",".join(watch.EXERCISES), "must have some of the exercises, and not all"),
    ],
)
def test_some_exercises_are_normal(recorded, normal, message):
    with refuses(message):
        load("anomaly", normal=normal)


def columns(folder, **changes):
    """Rewrites a column of all files by a function of the file's number."""
    for number, path in enumerate(sorted(folder.glob("*.csv"))):
        with path.open() as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            row.update({name: change(number, row) for name, change in changes.items()})
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def tables(folder, task="csv", **data):
    config = configs.load(task, "small")
    config.data.update(channels="a,b", time="t", label="kind")
    config.data.update(data)
    return registry.get(task).load(config, str(folder))


def test_a_column_says_the_split(tmp_path):
    series_files.write_tables(tmp_path)
    columns(tmp_path, part=lambda n, row: SPLITS[n // 2 % 3])
    data = tables(tmp_path, split="column", split_column="part")
    for place, split in enumerate(SPLITS):
        names = [recording.name for recording in data.recordings[split]]
        assert names == [f"s{n:02}" for n in range(12) if n // 2 % 3 == place]
    assert data.classes == ("high", "low") and data.facts.channels == ("a", "b")
    assert data.facts.period == 0.5 and data.facts.gaps


def test_numbers_of_steps_split_by_time(tmp_path):
    series_files.write_tables(tmp_path)
    columns(tmp_path, level=lambda n, row: f"{float(row['t']) + n}")
    data = tables(
        tmp_path, "csv_numbers", label="level", answer="step", split="time", window=4
    )
    times = [
        [float(t) for recording in data.recordings[split] for t in recording.times]
        for split in SPLITS
    ]
    assert max(times[0]) < min(times[1]) and max(times[1]) < min(times[2])
    for split in SPLITS:
        for recording in data.recordings[split]:
            number = int(recording.name[1:])
            expected = np.array(recording.times, float) + number
            assert_allclose(recording.target, expected)
    targets = np.concatenate([r.target for r in data.recordings["train"]])
    assert_allclose(data.facts.offset, targets.mean(), rtol=1e-6)
    assert_allclose(data.facts.scale, targets.std(), rtol=1e-6)


def test_names_of_the_config():
    assert tasks.names(" ax, ay ,az,") == ("ax", "ay", "az")


def test_a_stem_needs_one_answer_for_a_series_and_whole_convolutions():
    stem = {"filters": (4,), "kernel_size": (4,), "strides": (2,)}
    by_step = {"answer": "step", "crop": 0.0}
    for task, data in (("anomaly", {}), ("forecast", {}), ("csv", by_step)):
        config = configs.load(task)
        config.model.stem.update(stem)
        config.data.update(data)
        with pytest.raises(ValueError, match=r"stem.strides` must be \(\) where each"):
            configs.check(config.to_dict())
    config = configs.load("csv", "stem")
    config.model.stem.strides = (2, 2)
    with pytest.raises(ValueError, match="strides` must be as many numbers as"):
        configs.check(config.to_dict())


def few(folder, per_class=8, steps=90):
    """Writes series of three classes whose pulses are 5, 7 or 9 rows apart, at any phase."""
    generator = np.random.default_rng(0)
    lines = ["id,a,kind"]
    for number in range(3 * per_class):
        period = 5 + 2 * (number % 3)
        pulses = (np.arange(steps) + generator.integers(period)) % period == 0
        values = pulses + generator.normal(0, 0.2, steps)
        lines += [f"s{number},{value:.4f},period {period}" for value in values]
    (folder / "series.csv").write_text("\n".join(lines))
    return tables(folder, channels="a", time="")


def test_simpler_models_answer_beside_the_network(tmp_path):
    data = few(tmp_path)
    targets = data.test.targets
    found = simpler.answers(data, "test")
    assert [*found] == ["majority", "neighbour", "ridge"]
    assert len({*found["majority"]}) == 1
    assert np.mean(found["ridge"] == targets) == 1.0  # of correlations


def test_warped_series_are_near():
    pulse = np.zeros((2, 20, 1))
    pulse[0, 8], pulse[1, 9] = 1.0, 1.0
    other = np.zeros((1, 20, 1))
    np.testing.assert_allclose(simpler.distances(pulse, pulse), np.zeros((2, 2)))
    np.testing.assert_allclose(simpler.distances(pulse, other), [[1.0], [1.0]])


def test_few_series_are_validated_after_enough_steps(tmp_path):
    """An epoch of two steps ended runs before they had learned anything."""
    data, config = few(tmp_path), configs.load("csv", "small")
    a_pass = -(-data.count // config.data.batch_size)
    assert a_pass == 1
    assert schedules.length(config.training, a_pass) >= 50 * config.training.epochs
    rule = schedules.make_schedule(config)
    assert rule.resets and rule.patience == 3
