"""A run that goes on with other values: from which step on they hold, and its bits."""

import contextlib
import functools

import numpy as np
import pytest
from matplotlib import figure

from tests.trainers.training import toy
from trainers import optimizers
from trainers.training import (
    checkpoints,
    loop,
    progress,
    schedules,
    workdir,
)
from trainers.training.trainer import Trainer

STEPS = 5
FIELDS = ("optimizer.learning_rate", "schedule.factor", "training.epochs")


class Killed(BaseException):
    """What stands for SIGKILL here."""


@functools.cache
def traced():
    task = toy.Task(steps_per_epoch=STEPS, dropout=0.3)
    return toy.Traced(Trainer(task, optimizers.Adam(0.01)))


def train(folder, rate=1.0, epochs=4, factor=0.5, killed_at=None):
    """Trains the toy task in this process; returns the final checkpoint's arrays."""
    trainer = traced().as_new()
    trainer.optimizer.learning_rate = rate / 100
    if killed_at is not None:
        kill(trainer.task, killed_at)
    config = {
        "optimizer": {"learning_rate": rate / 100},
        "schedule": {"factor": factor},
        "training": {"epochs": epochs},
    }
    with workdir.open_workdir(folder, config, may_change=FIELDS) as opened:
        with contextlib.suppress(Killed):
            loop.fit(
                trainer,
                schedules.Schedule(factor=factor, epochs=(1, 2, 3)),
                opened,
                epochs=epochs,
                log_every_steps=1,
                checkpoint_every_steps=2,
            )
    step, arrays = checkpoints.Checkpoints(folder / "checkpoints").restore()
    return step, {
        name: each
        for name, each in arrays.items()
        if not name.startswith(("cost/", "run_id"))
    }


def kill(task, call):
    """Ends the loop at a call of `display`; each epoch has one a step, and two at its end."""
    display, calls = task.display, []

    def killing(metrics):
        calls.append(metrics)
        if len(calls) == call:
            raise Killed
        return display(metrics)

    task.display = killing


def kept(folder):
    return [
        (each.step, each.field, each.was, each.now)
        for each in workdir.read_changes(folder)
    ]


def assert_same(found, expected):
    assert found[0] == expected[0] and found[1].keys() == expected[1].keys()
    for name, array in expected[1].items():
        np.testing.assert_array_equal(found[1][name], array, err_msg=name)


def rate_of(arrays):
    return float(arrays["optimizer/learning_rate"])


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """Of a run of four epochs that never stopped."""
    return train(tmp_path_factory.mktemp("runs") / "unchanged")


def test_a_change_holds_from_the_step_where_the_run_goes_on(
    tmp_path, unchanged, capsys
):
    step, arrays = train(tmp_path, epochs=2)
    assert rate_of(arrays) == 0.01 * 0.5**2  # the schedule's
    changed = train(tmp_path, rate=0.1)
    assert kept(tmp_path) == [
        (10, "optimizer.learning_rate", 0.01, 0.001),
        (10, "training.epochs", 2, 4),
    ]
    output = capsys.readouterr().out
    assert "`config.optimizer.learning_rate`: 0.01 -> 0.001 from step 10 on\n" in output
    assert "\nlearning rate 0.0025 -> 0.001\n" in output
    assert rate_of(changed[1]) == pytest.approx(0.001 * 0.5)  # after the third epoch
    assert workdir.read_config(tmp_path)["optimizer"]["learning_rate"] == 0.001
    assert any(
        not np.array_equal(changed[1][name], array)
        for name, array in unchanged[1].items()
    )


@pytest.mark.parametrize("kills", [(1,), (9, 1)])
def test_a_run_with_a_change_that_was_killed_ends_as_one_that_was_not(tmp_path, kills):
    """Before its first new checkpoint, and after the schedule has changed the rate again."""
    for name in ("whole", "killed"):
        train(tmp_path / name, epochs=2)
    expected = train(tmp_path / "whole", rate=0.1, factor=0.3)
    for killed_at in kills:
        train(tmp_path / "killed", rate=0.1, factor=0.3, killed_at=killed_at)
    assert_same(train(tmp_path / "killed", rate=0.1, factor=0.3), expected)
    assert kept(tmp_path / "killed") == kept(tmp_path / "whole")


def test_a_run_whose_values_stay_ends_as_one_that_never_stopped(tmp_path, unchanged):
    train(tmp_path, epochs=4, killed_at=12)
    assert_same(train(tmp_path), unchanged)
    assert kept(tmp_path) == []


def test_a_change_back_is_a_change(tmp_path, unchanged, capsys):
    """Made and taken back at one step; here the schedule has changed nothing yet."""
    train(tmp_path, killed_at=3)
    train(tmp_path, rate=0.1, killed_at=1)
    capsys.readouterr()
    assert_same(train(tmp_path), unchanged)
    assert [(each[0], each[3]) for each in kept(tmp_path)] == [(2, 0.001), (2, 0.01)]
    assert (
        "`config.optimizer.learning_rate`: 0.001 -> 0.01 from step 2 on"
        in capsys.readouterr().out
    )


def test_fewer_epochs_than_are_done_are_refused_and_change_nothing(tmp_path):
    train(tmp_path, killed_at=17)  # in the third epoch
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    with pytest.raises(
        workdir.WorkdirError, match="has done 2 epochs.*at least 2. Received: .*=1"
    ):
        train(tmp_path, epochs=1, rate=0.1)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    train(tmp_path, epochs=2)
    assert workdir.read_config(tmp_path)["training"]["epochs"] == 2


def test_the_curves_show_what_has_changed(tmp_path, monkeypatch):
    pictures = []
    monkeypatch.setattr(
        figure.Figure, "savefig", lambda picture, *_, **__: pictures.append(picture)
    )
    rate = workdir.Change(10, 2.5, "optimizer.learning_rate", 0.01, 0.001)
    changes = [
        rate,
        rate._replace(field="schedule.patience", was=None, now=3),
        rate._replace(field="training.epochs", was=2, now=4),
        rate._replace(step=20, epoch=5.0, was=0.001, now=0.01),
    ]
    rows = [{"kind": "validation", "step": "4", "loss": "2.0"}]
    progress.draw_curves(rows, 4, "loss", tmp_path / "curves.png", changes)
    (axes,) = pictures[0].axes
    assert [line.get_xdata()[0] for line in axes.lines[1:]] == [2.5, 5.0]
    assert [text.get_text() for text in axes.texts] == [
        "learning_rate 0.01 → 0.001\npatience None → 3",
        "learning_rate 0.001 → 0.01",
    ]
