"""The records of a run that is killed and goes on: those of one that never stopped."""

import collections
import csv
import errno
import io
import shutil

import hypothesis
import pytest
from etils import epath
from hypothesis import strategies as st

from tests.trainers.training import toy
from tests.trainers.training.event_files import by_tensorboard, scalars
from trainers.training import (
    checkpoints,
    events,
    loop,
    progress,
    schedules,
    table,
    workdir,
)
from trainers.training.trainer import Trainer

STEPS, EPOCHS = 5, 3


class _KilledError(BaseException):
    """Stands for SIGKILL."""


class Runs:
    """Trains the toy task again and again, in one process, from the same weights, traced once."""

    def __init__(self, patch):
        task = toy.Task(steps_per_epoch=STEPS, dropout=0.3)
        self.display = task.display
        self.traced = toy.Traced(Trainer(task, toy.optimizer_of("sgd"), clip_norm=0.3))
        patch.setattr(progress, "draw_curves", lambda *_: None)
        # In the loop's thread, so that the n-th operation is the same one in each run.
        patch.setattr(
            checkpoints.Checkpoints, "start_saving", checkpoints.Checkpoints.save
        )

    def __call__(self, folder, *, epochs=EPOCHS, log=2, save=2, kill=None, stop=None):
        """Trains; is killed before the `kill`-th, or told to stop at the `stop`-th, record."""
        trainer = self.traced.as_new()
        left = folder.with_name(f"{folder.name}-left")
        calls = []

        def display(metrics):
            calls.append(metrics)
            if len(calls) == kill:
                shutil.copytree(folder, left)  # which is all that would be left
                raise _KilledError
            if len(calls) == stop:
                signals.received = "SIGTERM"
            return self.display(metrics)

        trainer.task.display = display
        signals = loop.StopSignals()
        try:
            with workdir.open_workdir(folder, {}) as opened:
                loop.fit(
                    trainer,
                    schedules.Schedule(patience=1, average=True),
                    opened,
                    epochs=epochs,
                    log_every_steps=log,
                    checkpoint_every_steps=save,
                    signals=signals,
                )
        except _KilledError:
            shutil.rmtree(folder)
            left.rename(folder)


@pytest.fixture(scope="module")
def train():
    with pytest.MonkeyPatch.context() as patch:
        yield Runs(patch)


def rows(folder):
    """The table, but for the speeds."""
    found = csv.DictReader(io.StringIO((folder / table.METRICS).read_text()))
    return [
        {k: v for k, v in row.items() if not k.endswith("_per_second")} for row in found
    ]


def expected_scalars(folder):
    """What the table says: one for each of its cells."""
    found = csv.DictReader(io.StringIO((folder / table.METRICS).read_text()))
    return collections.Counter(
        (f"{row['kind']}/{name}", int(row["step"]))
        for row in found
        for name, value in row.items()
        if value and name not in ("kind", "step", "epoch")
    )


@hypothesis.settings(max_examples=6)
@hypothesis.given(data=st.data())
def test_a_run_that_was_killed_has_the_records_of_one_that_was_not(
    tmp_path_factory, train, data
):
    """Whatever the intervals, however often; it may be told to stop, too, or get more epochs."""
    log = data.draw(st.integers(1, 7), "log_every_steps")
    save = data.draw(st.none() | st.integers(1, 7), "checkpoint_every_steps")
    path = tmp_path_factory.mktemp("run")
    train(path / "whole", log=log, save=save)
    ends = data.draw(
        st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=3), "ends"
    )
    fewer = data.draw(st.booleans(), "fewer epochs first")
    epochs = 2 if fewer else EPOCHS
    for killed, record in ends:
        end = {"kill" if killed else "stop": record}
        train(path / "run", epochs=epochs, log=log, save=save, **end)
    if fewer:
        train(path / "run", epochs=epochs, log=log, save=save)
    train(path / "run", log=log, save=save)
    assert rows(path / "run") == rows(path / "whole")
    headers = [
        (path / name / table.METRICS).open().readline() for name in ("run", "whole")
    ]
    assert headers[0] == headers[1]
    expected = expected_scalars(path / "whole")
    assert set(expected.values()) == {1}
    folder = path / "run" / events.EVENTS
    assert scalars(folder) == by_tensorboard(folder) == expected


def test_a_row_that_could_not_be_written_once_is_there_after_a_kill(
    tmp_path, train, monkeypatch
):
    train(tmp_path / "whole")
    appended = []

    def failing(path, mode="r", **others):
        if path.name == table.METRICS and mode == "a":
            appended.append(path)
            if len(appended) == 1:
                raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, mode, **others)

    original = type(epath.Path(tmp_path)).open
    monkeypatch.setattr(type(epath.Path(tmp_path)), "open", failing)
    # Of step 4 the row was the one, and there is a checkpoint.
    train(tmp_path / "run", kill=3)
    assert appended
    assert [row["step"] for row in rows(tmp_path / "run")] == ["2", "4"]
    train(tmp_path / "run")
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
