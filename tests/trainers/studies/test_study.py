"""Studies: their trials, killed and gone on with, by one process and by two."""

import csv
import dataclasses
import json
import logging
import os
import signal
import sys

import keras
import pytest
import tensorflow as tf
from etils import epath

from tests.refusals import refuses
from tests.trainers.studies import tiny
from trainers.data import files
from trainers.kinds.search import Choice
from trainers.studies import journal, outcome, places, search, study
from trainers.studies import trials as kept
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.training import loop
from trainers.training.workdir import CONFIG, WorkdirError, open_workdir, read_run

TRIALS = 7


class Killed(BaseException):
    """Stands for SIGKILL."""


class Training:
    """Stands for `runs.train`: losses that follow from the config, an epoch after another."""

    def __init__(self):
        self.epochs = 0
        self.kill_at = self.fail_at = None
        self.errors = {}  # lists of a trial's, one for each attempt
        self.numbers = []

    def __call__(self, load, config, path, distribute, *, rules, observe, splits):
        assert (distribute, splits) == ("none", ("validation",))
        self.numbers.append(int(path.name))
        if self.errors.get(int(path.name)):
            raise self.errors[int(path.name)].pop(0)
        if int(path.name) == self.fail_at:
            raise ValueError("memory has run out")
        with open_workdir(path, config.to_dict()) as folder:
            file = path / "checkpoints" / "epochs"
            file.parent.mkdir(exist_ok=True)
            done = int(file.read_text()) if file.exists() else 0
            losses = [
                self.loss(config, epoch) for epoch in range(config.training.epochs)
            ]
            if done:
                observe(losses[:done])
            for epoch in range(done, len(losses)):
                self.epochs += 1
                if self.epochs == self.kill_at:
                    raise Killed
                file.write_text(str(epoch + 1))
                observe(losses[: epoch + 1])
            folder.finish({"scores": {"validation": {"exact": {"loss": losses[-1]}}}})

    def loss(self, config, epoch):
        return (
            10 * abs(config.optimizer.learning_rate - 0.01)
            + 1 / config.data.batch_size
            - epoch
        )


@pytest.fixture
def training(monkeypatch):
    trained = Training()
    monkeypatch.setattr(study.runs, "train", trained)
    quicken(monkeypatch)
    return trained


def quicken(patch):
    """Leaves out what takes time and what these tests do not need."""
    patch.setattr(outcome, "save_picture", lambda *_: None)
    patch.setattr(keras.backend, "clear_session", lambda: None)
    tiny.replace(patch.setitem, patch.setattr)


def trials_of(folder):
    return kept.Trials(kept.import_optuna(), places.Place(folder))


def tune(folder, trials=TRIALS, hours=None, **changed):
    study.tune(folder, tiny.settings(**changed), study.Limits(hours, trials))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The trials of a study that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study.runs, "train", Training())
        quicken(patch)
        tune(folder)
    return tiny.trials(folder)


def test_a_study_ends_with_the_best_settings_and_its_tables(training, tmp_path, capsys):
    whole = tmp_path / "whole"
    tune(whole)
    trials = tiny.trials(whole)
    assert [number for number, *_ in trials] == list(range(TRIALS))
    assert trials[0][2] == search.own(tiny.config(), tiny.SPACE)  # the preset itself
    assert all(set(params) == set(tiny.SPACE) for _, _, params, *_ in trials)
    done = {
        number: value for number, state, _, value, _ in trials if state == "COMPLETE"
    }
    best = min(done, key=done.get)
    config = configs.read(whole / outcome.BEST)
    assert (
        config.optimizer.learning_rate
        == configs.read(
            whole / "trials" / f"{best:04}" / CONFIG
        ).optimizer.learning_rate
    )
    assert (config.preset, config.training.steps) == (outcome.PRESET, tiny.STEPS)
    rows = list(csv.DictReader((whole / outcome.TABLE).read_text().splitlines()))
    assert [float(row["loss"]) for row in rows if row["state"] == "done"] == [
        *done.values()
    ]
    text = (whole / outcome.TEXT).read_text()
    assert text.count("\n| ") == TRIALS + 2
    assert text.index(f"\n| {best} | done") == min(
        text.index(f"\n| {n} | done") for n in done
    )
    assert f"![curves]({outcome.CURVES})" in text
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0].startswith("trial 0: done, validation loss ")
        and "the preset" in lines[0]
    )
    assert f"the best is trial {best}: " in lines[-2]
    assert lines[-1] == f"python -m trainers.pixels --config_file={whole}/best.json"
    assert not list(whole.glob("trials/*/checkpoints"))


def test_a_trial_changes_a_few_values_of_the_best_before_it(
    training, tmp_path, monkeypatch
):
    changes = []

    def near(space, values, earlier, generator):
        changes.append((dict(values), [dict(each) for each in earlier]))
        return search_near(space, values, earlier, generator)

    search_near = search.near
    monkeypatch.setattr(search, "near", near)
    tune(tmp_path)
    trials = tiny.trials(tmp_path)
    for number, (base, earlier) in enumerate(changes, 1):
        done = [trial for trial in trials[:number] if trial[1] == "COMPLETE"]
        assert base == min(done, key=lambda trial: trial[3])[2]
        assert earlier == [params for _, _, params, *_ in trials[:number]]
    assert len(changes) == TRIALS - 1


def test_a_study_in_a_database_of_an_earlier_version_goes_on(
    training, tmp_path, whole, capsys
):
    """Of its trials two had ended, one had begun, one waited; the first one had no values."""
    import optuna

    folder = tmp_path / "study"
    tune(folder, trials=2)
    (folder / places.JOURNAL).unlink()
    storage = f"sqlite:///{folder}/trials.db"
    study = optuna.create_study(storage=storage, study_name="study")
    for number, _, values, loss, losses in whole[:3]:
        study.enqueue_trial(values)
        trial = study.ask()
        if number:
            trial.suggest_float("optimizer.learning_rate", 1e-4, 1e-1, log=True)
            trial.suggest_categorical("data", ["batch_size=4", "batch_size=8"])
        if number == 2:
            break
        for part, each in losses.items():
            trial.report(each, part)
        trial.set_user_attr("steps", 6)
        study.tell(trial, loss)
    study.enqueue_trial(whole[3][2])
    (folder / "sessions").mkdir()
    file = folder / "sessions" / "100.000-1"
    file.touch()
    os.utime(file, (1900, 1900))
    tune(folder)
    first, *others = tiny.trials(folder)
    assert first[2] == {} and others == whole[1:]
    assert 0.5 < trials_of(folder).hours() < 0.52


def damage(folder, change):
    file = folder / places.JOURNAL
    file.write_bytes(change(file.read_bytes()))
    return file


def test_a_last_line_without_an_end_does_not_count(training, tmp_path, whole):
    tune(tmp_path, trials=2)
    damage(tmp_path, lambda content: content + content[-200:-1])
    tune(tmp_path)
    assert tiny.trials(tmp_path) == whole


@pytest.mark.parametrize("change", [0, 1, 2])
def test_a_damaged_line_is_refused_with_its_number(training, tmp_path, change):
    tune(tmp_path, trials=2)

    def damaged(content):
        lines = content.splitlines(keepends=True)
        lines[3] = [b"\xba\n", lines[3].replace(b"1", b"2"), b"[]\n"][change]
        return b"".join(lines)

    file = damage(tmp_path, damaged)
    before = file.read_bytes()
    with pytest.raises(WorkdirError, match=f"{file} is damaged in line 4. Bring it b"):
        tune(tmp_path)
    assert file.read_bytes() == before


def test_a_journal_that_is_gone_is_named(training, tmp_path):
    tune(tmp_path, trials=1)
    file = tmp_path / places.JOURNAL
    file.unlink()
    with pytest.raises(WorkdirError, match=f"{file} is missing.*--study"):
        tune(tmp_path)
    assert not file.exists()


def test_a_line_says_by_which_version_and_run_a_trial_was_made(training, tmp_path):
    tune(tmp_path, trials=1)
    begun, *_, last = journal.read(tmp_path / places.JOURNAL)
    assert begun["event"] == "begun" and begun["version"]
    assert last["event"] == "ended" and last["processor_seconds"] > 0
    run = read_run(tmp_path / "trials" / "0000")
    assert last["run_id"] == run.run_id


def test_a_study_that_began_before_a_field_was_added_goes_on(training, tmp_path):
    tune(tmp_path, trials=1)
    place = places.Place(tmp_path)
    record = place.record()
    del record["values"]["config.model.auxiliary_from"]
    place.begin(record)
    tune(tmp_path, trials=2)
    assert len(tiny.trials(tmp_path)) == 2


def test_nothing_is_said_of_functions_that_each_trial_traces(training, tmp_path):
    """TensorFlow warns of the fifth network in one process, as if the first were called again."""
    loss, said, handler = training.loss, [], logging.Handler()
    handler.emit = said.append

    def traced(config, epoch):
        tf.function(lambda: tf.constant(epoch) + 1)()
        return loss(config, epoch)

    training.loss = traced
    logger = tf.get_logger()
    logger.addHandler(handler)
    try:
        tune(tmp_path)
    finally:
        logger.removeHandler(handler)
    assert not said


def test_the_pictures_show_all_trials(training, tmp_path, monkeypatch):
    monkeypatch.setattr(outcome, "_LEAST", 4)
    drawn = {}
    monkeypatch.setattr(
        outcome, "save_picture", lambda *each: drawn.__setitem__(each[1].name, each)
    )
    tune(tmp_path)
    trials = tiny.trials(tmp_path)
    (curves,) = drawn[outcome.CURVES][0].axes
    assert len(curves.lines) == len(trials)
    assert [len(line.get_ydata()) for line in curves.lines] == [
        len(each[-1]) for each in trials
    ]
    (bars,) = drawn[outcome.IMPORTANCES][0].axes
    assert {label.get_text() for label in bars.get_yticklabels()} == set(tiny.SPACE)
    assert f"({outcome.IMPORTANCES})" in (tmp_path / outcome.TEXT).read_text()


def test_a_trial_that_is_worse_than_the_median_ends_early(whole):
    pruned = [trial for trial in whole if trial[1] == "PRUNED"]
    assert pruned and all(number >= 4 for number, *_ in pruned)
    assert all(len(losses) < tiny.EPOCHS for *_, losses in pruned)


@pytest.mark.parametrize("kill_at", [1, 5, 9])
def test_a_study_that_was_killed_ends_as_one_that_was_not(
    whole, training, tmp_path, kill_at
):
    training.epochs, training.kill_at, training.numbers = 0, kill_at, []
    with pytest.raises(Killed):
        tune(tmp_path / "killed")
    stopped = training.numbers[-1]
    training.numbers = []
    tune(tmp_path / "killed")
    assert training.numbers[0] == stopped
    assert tiny.trials(tmp_path / "killed") == whole


def test_what_a_killed_process_did_not_write_is_written(training, tmp_path):
    tune(tmp_path, trials=1)
    (tmp_path / outcome.BEST).unlink()
    weights = tmp_path / "trials" / "0000" / "checkpoints"
    weights.mkdir()
    tune(tmp_path, trials=1)
    assert (tmp_path / outcome.BEST).exists() and not weights.exists()


def test_a_trial_that_another_process_has_is_left_to_it(training, tmp_path):
    training.kill_at = 5
    with pytest.raises(Killed):
        tune(tmp_path)
    with places.Place(tmp_path).hold(1):
        tune(tmp_path, trials=4)
    states = {number: state for number, state, *_ in tiny.trials(tmp_path)}
    assert states == {0: "COMPLETE", 1: "RUNNING", 2: "COMPLETE", 3: "COMPLETE"}
    tune(tmp_path, trials=4)
    assert tiny.trials(tmp_path)[1][1] == "COMPLETE"


def test_a_study_without_time_stops_within_a_trial_and_goes_on_with_more(
    whole, training, tmp_path, monkeypatch
):
    hours = iter([0.0, 0.0, 0.1, 0.2, 0.3, 1.1])
    with monkeypatch.context() as patch:
        patch.setattr(kept.Trials, "hours", lambda _: next(hours))
        tune(tmp_path / "short", hours=1, seconds=1.0)
    assert [trial[1] for trial in tiny.trials(tmp_path / "short")] == [
        "COMPLETE",
        "RUNNING",
    ]
    tune(tmp_path / "short", hours=2)
    assert tiny.trials(tmp_path / "short") == whole


def test_the_time_of_a_study_is_the_sum_of_what_its_lines_say(training, tmp_path):
    tune(tmp_path, trials=1)
    file = tmp_path / places.JOURNAL
    took = sum(entry["seconds"] for entry in journal.read(file))
    assert 0 < 3600 * trials_of(tmp_path).hours() - took < 5
    for path in tmp_path.rglob("*"):  # as after a copy, or a laptop's sleep
        os.utime(path, (100, 100))
    assert 0 < 3600 * trials_of(tmp_path).hours() - took < 5


def test_settings_that_cannot_be_trained_end_their_trial_alone(training, tmp_path):
    training.fail_at = 2
    tune(tmp_path, trials=4)
    states = [state for _, state, *_ in tiny.trials(tmp_path)]
    assert states == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]
    assert "failed (memory has run out)" in (tmp_path / outcome.TEXT).read_text()


def test_a_preset_that_cannot_be_trained_ends_the_study(training, tmp_path):
    training.fail_at = 0
    with refuses("memory has run out"):
        tune(tmp_path)
    training.fail_at = None
    tune(tmp_path, trials=1)
    assert training.numbers == [0, 0]


@pytest.mark.parametrize(
    "lacking",
    [MemoryError("too much"), tf.errors.ResourceExhaustedError(None, None, "too much")],
    ids=["Python", "TensorFlow"],
)
def test_a_trial_out_of_memory_is_tried_once_more(whole, training, tmp_path, lacking):
    training.errors = {2: [lacking]}
    tune(tmp_path / "momentary")
    assert tiny.trials(tmp_path / "momentary") == whole
    training.errors = {2: [lacking, lacking]}
    tune(tmp_path / "lasting")
    assert [trial[1] for trial in tiny.trials(tmp_path / "lasting")][2] == "FAIL"
    assert "failed (too much)" in (tmp_path / "lasting" / outcome.TEXT).read_text()


def test_no_trial_is_to_blame_where_there_is_no_memory_without_it(
    whole, training, tmp_path, monkeypatch
):
    training.errors = {2: [MemoryError("nothing is left")]}
    with monkeypatch.context() as patch:
        patch.setattr(study.resources, "is_short", lambda: True)
        with pytest.raises(MemoryError, match="nothing is left"):
            tune(tmp_path)
    assert [trial[1] for trial in tiny.trials(tmp_path)][2:] == ["RUNNING"]
    tune(tmp_path)
    assert tiny.trials(tmp_path) == whole


def test_a_loss_that_is_not_finite_ends_a_trial_as_a_bad_one(
    training, tmp_path, monkeypatch
):
    def loss(config, epoch):
        raise loop.NonFiniteLossError(3, "loss nan")

    monkeypatch.setattr(training, "loss", loss)
    tune(tmp_path, trials=1)
    ((_, state, *_),) = tiny.trials(tmp_path)
    assert state == "PRUNED"
    assert "pruned (loss nan at step 3)" in (tmp_path / outcome.TEXT).read_text()
    assert not (tmp_path / outcome.BEST).exists()
    with pytest.raises(WorkdirError, match="no trial of the study has ended"):
        study.best(tmp_path)


def changed_config(**fields):
    values = tiny.config()
    with values.unlocked():
        for name, value in fields.items():
            values.model[name] = value
    return values


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            {"config": configs.load("copy_memory", "small")},
            "a study of --task=adding, not of copy",
        ),
        (
            {"config": changed_config(recurrent_dropout=0.5)},
            r"other values \(config.model.recurrent_dropout: 0.0 there, 0.5 here\)",
        ),
        ({"seconds": 2.0}, r"other values \(trial_seconds: 1.0 there, 2.0 here\)"),
        ({"threads": 2}, r"other values \(threads: 1 there, 2 here\)"),
        (
            {"fixed": ("optimizer.learning_rate",)},
            "search of optimizer.learning_rate: .*, nothing h",
        ),
    ],
)
def test_another_study_in_the_folder_is_refused(training, tmp_path, changed, message):
    tune(tmp_path, trials=1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(WorkdirError, match=message):
        tune(tmp_path, trials=2, **changed)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_study_has_the_length_of_its_trials_for_ever(training, tmp_path):
    tune(tmp_path, trials=1, hours=2, seconds=None)
    record = files.read_json(tmp_path / places.RECORD)["values"]
    assert record["trial_seconds"] == 3600 * 2 / study.TRIALS
    tune(tmp_path, trials=2, hours=5, seconds=None)
    tune(tmp_path, trials=3, seconds=None)


@pytest.mark.parametrize(
    "limits, told",
    [
        ({"trials": 1}, "has taken 1 trials, and --trials=1: more of them go on"),
        ({"hours": 1e-9}, "hours, and --hours=1e-09: more of them go on"),
    ],
)
def test_a_study_with_nothing_left_says_so_before_any_training(
    training, tmp_path, limits, told, capsys
):
    tune(tmp_path, trials=1)
    capsys.readouterr()
    tune(tmp_path, **{"trials": None, **limits})
    assert training.numbers == [0]
    out = capsys.readouterr().out
    assert told in out and "the best is trial 0" in out


def test_trials_have_the_size_of_their_units_where_these_are_searched(
    training, tmp_path, monkeypatch
):
    space = {"model.units": Choice((2, 5))}
    task = dataclasses.replace(registry.TASKS["adding"], search=space)
    monkeypatch.setitem(registry.TASKS, "adding", task)
    tune(tmp_path / "free", trials=3)
    assert {units_of(tmp_path / "free", trial) for trial in range(3)} == {2, 3, 5}
    with refuses("the search space of --task=adding is empty"):
        tune(tmp_path / "sized", trials=3, parameters=200)


def units_of(folder, trial):
    return configs.read(folder / "trials" / f"{trial:04}" / CONFIG).model.units


def test_without_optuna_the_extra_is_named(training, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"the extra `tune`: pip install '.\[tune\]'"):
        tune(tmp_path)


def ended(process):
    """Returns the exit status of a process and the last line of its errors."""
    _, errors = process.communicate(400)
    return process.returncode, (errors.splitlines() or [""])[-1]


def test_processes_that_are_killed_and_work_together_make_the_study_of_one(
    tmp_path, forks
):
    """With real runs: the trials, their losses, and the weights that gave them."""

    def start(folder, *arguments):
        return forks.start("-m", tiny.__name__, f"--study={folder}", *arguments)

    alone = start(tmp_path / "alone", "--trials=3")
    killed = start(tmp_path / "killed", "--trials=3", "--killed_at=5")
    assert ended(killed)[0] == -signal.SIGKILL
    assert ended(alone)[0] == 0
    states = [state for _, state, *_ in tiny.trials(tmp_path / "killed")]
    assert states == ["COMPLETE", "RUNNING"]
    together = [start(tmp_path / "killed", "--trials=3") for _ in range(2)]
    assert [ended(each)[0] for each in together] == [0, 0]
    assert tiny.trials(tmp_path / "killed") == tiny.trials(tmp_path / "alone")
    kept = [
        json.loads((tmp_path / name / "best.json").read_text())
        for name in ("alone", "killed")
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    "score",
    [{"loss": 2.5, "symbols": 3}, {"nll": 10.0, "tokens": 4, "perplexity": 12.2}],
)
def test_a_trial_is_measured_by_the_loss_of_one_target(tmp_path, score):
    result = {"scores": {"validation": {"exact": score}}}
    files.write_json(epath.Path(tmp_path / "result.json"), result)
    assert study._loss(epath.Path(tmp_path)) == 2.5
