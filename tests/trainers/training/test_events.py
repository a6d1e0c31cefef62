"""TensorBoard events: each tag has each step once, whatever stopped the process before."""

import contextlib
import errno
import os
import re

import pytest
import tensorflow as tf
from etils import epath

from tests.trainers.training.event_files import by_tensorboard, scalars
from trainers.training import events

KIND = "train_interval"
FIRST, LAST = 2, 5  # the steps of a run's first process


def rows(steps):
    return [
        {"kind": KIND, "step": str(n), "epoch": "1.0", "loss": str(n / 4)}
        for n in steps
    ]


@pytest.fixture
def folder(tmp_path):
    """The events of a process."""
    folder = epath.Path(tmp_path) / events.EVENTS
    record(folder, range(FIRST, LAST + 1), last_step=0)
    return folder


def record(folder, steps, *, last_step, told=(), announce=print):
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


def test_events_after_the_checkpoint_are_dropped_and_the_others_keep_their_times(
    folder,
):
    before = times(folder)
    record(folder, range(4, 8), last_step=3)
    assert scalars(folder) == by_tensorboard(folder) == expected(7)
    after = times(folder)
    assert [after[step] for step in (2, 3)] == [before[step] for step in (2, 3)]
    assert after[4] > before[4]


def test_files_that_nothing_is_dropped_from_are_left_as_they_are(folder):
    (file,) = event_files(folder)
    content = file.read_bytes()
    record(folder, range(6, 8), last_step=5)
    assert file.read_bytes() == content and len(event_files(folder)) == 2
    assert scalars(folder) == expected(7)


def test_what_the_table_has_and_the_events_lack_is_written(folder):
    """Its kind, not its epoch, a tag; where a file is gone, or was never written."""
    (file,) = event_files(folder)
    file.unlink()
    record(folder, [5], last_step=5, told=rows(range(FIRST, 6)))
    assert scalars(folder) == expected(5)


def test_half_a_record_is_what_a_killed_process_leaves(folder):
    (file,) = event_files(folder)
    file.write_bytes(file.read_bytes()[:-7])
    said = []
    record(folder, [6], last_step=5, told=rows(range(FIRST, 6)), announce=said.append)
    assert scalars(folder) == by_tensorboard(folder) == expected(6)
    assert not said


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (_flip, r"damaged at byte \d+"),
        (lambda path: path.write_bytes(b"mine"), ""),
        (
            lambda path: path.write_bytes(b"mine, and longer than a length"),
            "damaged at byte 0",
        ),
    ],
)
def test_a_damaged_file_is_set_aside(folder, damage, cause):
    record(folder, range(6, 8), last_step=5)
    (file, other) = event_files(folder)
    damage(file)
    content, said = file.read_bytes(), []
    record(folder, [8], last_step=7, told=rows(range(FIRST, 8)), announce=said.append)
    assert scalars(folder) == by_tensorboard(folder) == expected(8)
    if not cause:  # shorter than any record: half of one
        return
    (line,) = said
    (aside,) = folder.glob("*unreadable*")
    assert re.search(f"{file} cannot be read .{cause}.; ", line) and line.endswith(
        f"set aside as {aside}"
    )
    assert aside.read_bytes() == content


def test_a_file_that_cannot_be_read_is_set_aside(folder, monkeypatch):
    (file,) = event_files(folder)
    read_bytes = type(file).read_bytes

    def forbidden(path):
        if path == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(type(file), "read_bytes", forbidden)
    said = []
    record(folder, [6], last_step=5, told=rows(range(FIRST, 6)), announce=said.append)
    assert "cannot be read (Permission denied); it is set aside" in said[0]
    assert scalars(folder) == expected(6)


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


def test_a_file_that_cannot_be_examined_once_is_not_written_again(folder, monkeypatch):
    stat, failures = os.stat, [OSError(errno.EIO, "Input/output error")]

    def failing(path, *args, **options):
        if failures and "tfevents" in str(path):
            raise failures.pop()
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", failing)
    record(
        folder, range(LAST + 1, 8), last_step=LAST, told=rows(range(FIRST, LAST + 1))
    )
    assert not failures
    assert scalars(folder) == expected(7)


def test_a_clean_up_that_is_killed_loses_nothing_and_repeats_nothing(
    folder, monkeypatch
):
    """Before any of its operations on files."""
    record(folder, range(6, 8), last_step=5)
    _flip(event_files(folder)[0])
    for operation in range(1, 100):
        with monkeypatch.context() as patch:
            done = _kill_before(patch, operation, folder)
            with contextlib.suppress(_KilledError):
                record(folder, [], last_step=5, told=rows(range(FIRST, 6)))
            if len(done) < operation:
                break
        assert not set(scalars(folder, damaged=True).values()) - {1}
    assert operation > 5
    assert scalars(folder) == expected(5)
    assert len(list(folder.glob("*unreadable*"))) == 1


def test_a_folder_that_cannot_be_cleaned_up_has_all_that_it_had(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = scalars(folder)
    with monkeypatch.context() as patch:
        patch.setattr(events, "write_atomically", full)
        with pytest.raises(OSError):
            record(folder, [4], last_step=3)
    assert scalars(folder) == before
