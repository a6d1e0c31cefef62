"""A run knows its own folder and files, and leaves those of another run alone."""

import json
import shutil
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.trainers.training import toy
from trainers.cli import command
from trainers.training import (
    checkpoints,
    experiment,
    hold,
    identity,
    loop,
    schedules,
    workdir,
)
from trainers.training.trainer import Trainer

STEPS, EPOCHS = 5, 3


def train(folder, disturb=lambda: None, at=None, **config):
    """Trains the toy task; before step `at` something happens to its folder."""
    task = toy.Task(steps_per_epoch=STEPS, dropout=0.3)
    trainer = Trainer(task, toy.optimizer_of("sgd"), clip_norm=0.3)
    steps, done = trainer.steps, []

    def disturbed(batches, carried, count, stage):
        if at is not None and sum(done) == at:
            disturb()
        done.append(count)
        return steps(batches, carried, count, stage)

    trainer.steps = disturbed
    with workdir.open_workdir(folder, config) as opened:
        result = loop.fit(
            trainer,
            schedules.Schedule(),
            opened,
            epochs=EPOCHS,
            log_every_steps=1,
            checkpoint_every_steps=1,
        )
        opened.finish(result._replace(unsaved=None, cost=None)._asdict())
    return opened.run


@pytest.fixture(autouse=True, scope="module")
def eagerly():
    """Tracing would take longer than all steps."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(autouse=True)
def waiting(monkeypatch):
    """Lets no checkpoint be half written when something happens to the folder."""
    start = checkpoints.Checkpoints.start_saving

    def start_and_wait(self, step, arrays):
        start(self, step, arrays)
        self.wait()

    monkeypatch.setattr(checkpoints.Checkpoints, "start_saving", start_and_wait)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with two finished runs of one config, `a` and `b`."""
    folder = tmp_path_factory.mktemp("finished")
    for name in "ab":
        train(folder / name, seed=1)
    return folder


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_whose_folder_was_removed_stops_and_makes_no_new_one(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(hold.TakenError, match=f"{folder} was removed"):
        train(folder, lambda: shutil.rmtree(folder), at=4)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (hold, "refuse_pipe"),
        (hold, "_take"),
        (workdir, "read_run"),
        (workdir, "write_json"),
        (workdir, "refuse_other_run"),
    ],
)
def test_a_run_whose_folder_is_removed_as_it_begins_stops(
    tmp_path, monkeypatch, module, name
):
    folder, real = tmp_path / "run", getattr(module, name)

    def remove(*arguments, **others):
        shutil.rmtree(folder, ignore_errors=True)
        return real(*arguments, **others)

    monkeypatch.setattr(module, name, remove)
    with pytest.raises(hold.TakenError, match="was removed while this run was at work"):
        train(folder)


def test_a_command_whose_run_lost_its_folder_has_a_status_of_its_own(capsys):
    def work():
        raise hold.TakenError("runs/a was removed while this run was at work")

    assert command.exit_status(["lm"], work) == command.Status.TAKEN == 6
    assert capsys.readouterr().err.startswith("error: runs/a was removed")


def test_a_run_writes_nothing_into_another_run_that_took_its_place(tmp_path):
    folder, after = tmp_path / "run", {}

    def replace():
        shutil.rmtree(folder)
        train(folder, seed=2)
        after.update(contents(folder))

    with pytest.raises(hold.TakenError, match=f"{folder} belongs to another run"):
        train(folder, replace, at=4, seed=1)
    assert contents(folder) == after


def test_a_run_whose_lock_was_removed_stops_before_a_second_one_can_begin(tmp_path):
    after = {}

    def unlock():
        (tmp_path / "lock").unlink()
        after.update(contents(tmp_path))

    with pytest.raises(hold.TakenError, match="lock was removed"):
        train(tmp_path, unlock, at=4)
    assert contents(tmp_path) == after


def test_a_run_over_whose_files_another_was_copied_stops(tmp_path, finished):
    folder = tmp_path / "run"

    def copy():
        shutil.copytree(finished / "a", folder, dirs_exist_ok=True)

    with pytest.raises(hold.TakenError, match="belongs to another run"):
        train(folder, copy, at=4, seed=1)


def test_all_files_of_a_run_have_its_id_and_two_runs_of_one_seed_have_two(finished):
    runs = [workdir.read_run(finished / name) for name in "ab"]
    assert runs[0].run_id != runs[1].run_id
    for name, run in zip("ab", runs, strict=True):
        folder = finished / name
        for path in (folder / "checkpoints").iterdir():
            assert checkpoints.load_arrays(path)["run_id"] == run.run_id
        for file in ("config.json", "result.json", "lock"):
            assert run.run_id in (folder / file).read_text()
        assert run.run_id not in (folder / "metrics.csv").read_text()


def test_a_checkpoint_of_another_run_is_kept_and_never_read(tmp_path, finished, capsys):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", stop, at=7, seed=1)
    store = tmp_path / "run" / "checkpoints"
    theirs = (finished / "b" / "checkpoints" / "step-00000015.npz").read_bytes()
    (store / "step-00000015.npz").write_bytes(theirs)
    train(tmp_path / "run", seed=1)
    out = capsys.readouterr().out
    assert "step-00000015.npz is of another run" in out and "lost" not in out
    assert "going on from step 7" in out
    assert (store / "step-00000015.npz.unreadable").read_bytes() == theirs
    ended = [
        checkpoints.load_arrays(folder / "checkpoints" / "step-00000015.npz")
        for folder in (tmp_path / "run", finished / "a")
    ]
    for each in ended:
        del each["run_id"], each["cost/seconds"], each["cost/peak_bytes"]
    np.testing.assert_equal(*ended)


def test_weights_and_a_result_of_another_run_are_refused(tmp_path, finished):
    folder = tmp_path / "run"
    shutil.copytree(finished / "a", folder)
    for file in ("checkpoints/best.npz", "result.json"):
        shutil.copy(finished / "b" / file, folder / file)
    with pytest.raises(ValueError, match=r"result\.json is the result of another run"):
        workdir.read_result(folder)
    with pytest.raises(workdir.WorkdirError, match=r"best\.npz is of another run"):
        checkpoints.load_best(folder, keras.Sequential())


def without_ids(folder):
    """Makes the files of a run those of a release that had no ids."""
    for name in ("config.json", "result.json"):
        if (folder / name).exists():
            value = json.loads((folder / name).read_text())
            value = {k: v for k, v in value.items() if k not in ("run", "run_id")}
            del value["checksum"]
            workdir.write_json(folder / name, value)
    for path in (folder / "checkpoints").iterdir():
        arrays = checkpoints.load_arrays(path)
        del arrays["run_id"]
        np.savez(path, **arrays)


def test_files_without_an_id_are_the_folders_own_and_get_one(tmp_path, capsys):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, stop, at=7)
    without_ids(tmp_path)
    assert workdir.read_run(tmp_path) is None
    run = train(tmp_path)
    assert workdir.read_run(tmp_path) == run
    line = "trained by keras_trellis of an earlier release until step 7, and by"
    assert line in capsys.readouterr().out
    best = checkpoints.load_arrays(tmp_path / "checkpoints" / "step-00000015.npz")
    assert best["run_id"] == run.run_id
    without_ids(tmp_path)
    assert workdir.read_result(tmp_path)["epochs"] == EPOCHS


def test_a_run_that_goes_on_under_another_version_says_so(
    tmp_path, monkeypatch, capsys
):
    def stop():
        raise KeyboardInterrupt

    programs = [identity.Program("1.0", "abc"), identity.Program("1.1", None)]
    monkeypatch.setattr(identity, "program", lambda: programs[0])
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, stop, at=4)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, stop, at=2)
    assert "trained by" not in capsys.readouterr().out
    monkeypatch.setattr(identity, "program", lambda: programs[1])
    run = train(tmp_path)
    line = "trained by keras_trellis 1.0 (commit abc) until step 6, and by 1.1 from"
    assert line in capsys.readouterr().out
    assert run.trained == tuple(
        identity.Trained(*each) for each in zip((0, 6), programs, strict=True)
    )


def test_the_program_at_work_has_a_version():
    assert identity.program().version


def test_a_run_that_must_stop_scores_nothing():
    def taken():
        raise hold.TakenError("another process has taken it over")

    task = types.SimpleNamespace(score=lambda split: pytest.fail(f"{split} is scored"))
    with pytest.raises(hold.TakenError):
        experiment.Experiment.score_split(None, task, "test", taken)
