"""TensorBoard events: each tag has each step once, whatever stopped the process before."""

import contextlib
import errno

import pytest
import tensorflow as tf
from etils import epath

from tests.trainers.training.event_files import by_tensorboard, scalars
from trainers.training import events

KIND = "train_interval"
FIRST, LAST = 2, 5  # the steps of a run's first process


def rows(steps):
    return [{"kind": KIND, "step": str(n), "epoch": "1.0", "loss": str(n / 4)} for n in steps]


@pytest.fixture
def folder(tmp_path):
    """The events of a process."""
    folder = epath.Path(tmp_path) / events.EVENTS
    record(folder, range(FIRST, LAST + 1))
    return folder


def record(folder, steps, *, told=(), announce=print):
    last_step = max((int(row["step"]) for row in told), default=0)
    opened = events.Events(folder, told, last_step=last_step, announce=announce)
    for step in steps:
        opened.add(KIND, step, {"loss": step / 4})
    opened.close()


def expected(last):
    return {(f"{KIND}/loss", step): 1 for step in range(FIRST, last + 1)}


def event_files(folder):
    return sorted(folder.glob("*tfevents*"))


def times(folder):
    """The wall time of each step."""
    found = {}
    for path in event_files(folder):
        for content in tf.data.TFRecordDataset(str(path), buffer_size=1 << 20):
            event = tf.compat.v1.Event.FromString(content.numpy())
            found.update({event.step: event.wall_time} if event.summary.value else {})
    return found


def test_events_after_the_checkpoint_are_dropped_and_the_others_keep_their_times(folder):
    before = times(folder)
    record(folder, range(4, 8), told=rows([2, 3]))
    assert scalars(folder) == by_tensorboard(folder) == expected(7)
    after = times(folder)
    assert [after[step] for step in (2, 3)] == [before[step] for step in (2, 3)]
    assert after[4] > before[4]


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda path: path.unlink(), None),
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), None),
        (_flip, "it is damaged"),
        (lambda path: path.write_bytes(b"mine, and longer than a length"), "it is damaged"),
    ],
)
def test_events_are_those_of_the_table_and_a_damaged_file_is_set_aside(folder, damage, cause):
    """Its kind, not its epoch, is in a tag. Half a record is what a killed process leaves."""
    file = event_files(folder)[-1]
    damage(file)
    content = file.read_bytes() if file.exists() else None
    said = []
    record(folder, [6], told=rows(range(FIRST, 6)), announce=said.append)
    assert scalars(folder) == by_tensorboard(folder) == expected(6)
    aside = list(folder.glob("*unreadable*"))
    assert [path.read_bytes() for path in aside] == [content] * bool(cause)
    assert said == [f"{file} is set aside as {path}: {cause}" for path in aside]


def test_events_that_the_table_does_not_have_are_set_aside(folder):
    """As after the loss of metrics.csv."""
    said = []
    record(folder, [6], told=rows([4, 5]), announce=said.append)
    assert scalars(folder) == {(f"{KIND}/loss", step): 1 for step in (4, 5, 6)}
    (line,) = said
    assert line.endswith("the table does not have all of its events")


def test_a_file_that_cannot_be_read_is_set_aside(folder, monkeypatch):
    def forbidden(*_, **__):
        raise tf.errors.PermissionDeniedError(None, None, "Permission denied")

    monkeypatch.setattr(tf.data, "TFRecordDataset", forbidden)
    said = []
    record(folder, [6], told=rows(range(FIRST, 6)), announce=said.append)
    monkeypatch.undo()
    assert scalars(folder) == expected(6)
    assert "it cannot be read (PermissionDeniedError)" in said[0]


class _KilledError(BaseException):
    """Stands for SIGKILL."""


OPERATIONS = ("unlink", "rename", "replace", "open")


def _kill_before(patch, operation, folder):
    """Has an operation on the folder's files, counted from 1, raise; returns those done."""
    done = []

    def wrap(original):
        def operate(path, *arguments):
            if folder in path.parents:
                done.append(path)
            if len(done) == operation:
                raise _KilledError
            return original(path, *arguments)

        return operate

    for name in OPERATIONS:
        patch.setattr(type(folder), name, wrap(getattr(type(folder), name)))
    return done


def test_a_clean_up_that_is_killed_repeats_nothing_and_is_made_up_for(folder, monkeypatch):
    """Before any of its operations on files."""
    record(folder, [6], told=rows(range(FIRST, 6)))
    for operation in range(1, 100):
        with monkeypatch.context() as patch:
            done = _kill_before(patch, operation, folder)
            with contextlib.suppress(_KilledError):
                record(folder, [], told=rows(range(FIRST, 6)))
            if len(done) < operation:
                break
        assert not set(scalars(folder).values()) - {1}
    assert operation > 2
    assert scalars(folder) == expected(5)


def test_a_folder_that_cannot_be_cleaned_up_has_all_that_it_had(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = scalars(folder)
    with monkeypatch.context() as patch:
        patch.setattr(tf.io, "TFRecordWriter", full)
        with pytest.raises(OSError):
            record(folder, [4], told=rows([2, 3]))
    assert scalars(folder) == before
