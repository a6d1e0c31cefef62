"""TensorBoard events: each tag has each step once, whatever stopped the process before."""

import contextlib
import errno
import os

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


def record(folder, steps, *, told=()):
    opened = events.Events(folder, told)
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
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-7]),
        _flip,
        lambda path: path.write_bytes(b"mine, and longer than a length"),
        lambda path: os.chmod(path, 0),
    ],
)
def test_events_are_those_of_the_table_whatever_the_files_hold(folder, damage):
    """Its kind, not its epoch, is in a tag."""
    damage(event_files(folder)[-1])
    record(folder, [6], told=rows(range(FIRST, 6)))
    assert scalars(folder) == by_tensorboard(folder) == expected(6)


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
