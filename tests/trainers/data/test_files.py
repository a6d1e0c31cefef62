"""Files that are written whole or not at all."""

import contextlib
import errno
import io
import json
import math
import os
import socket

import pytest
from etils import epath

from tests.refusals import refuses
from trainers.data import files


@pytest.fixture
def path(tmp_path):
    """A file that has been written once."""
    path = epath.Path(tmp_path / "file")
    files.write_atomically(path, lambda file: file.write(b"former"))
    return path


def rewrite(path):
    files.write_atomically(path, lambda file: file.write(b"new"))


def names(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_a_write_that_fails_leaves_the_former_file(path):
    def fail(file):
        file.write(b"half")
        raise OSError("full")

    with refuses("full", OSError):
        files.write_atomically(path, fail)
    assert path.read_bytes() == b"former"
    assert names(path) == ["file"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_does_not_reach_the_disk_is_not_written(path, monkeypatch, code):
    def fail(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError) as error:
        rewrite(path)
    assert error.value.errno == code
    assert path.read_bytes() == b"former"
    assert names(path) == ["file"]


def test_a_file_system_that_cannot_be_told_to_write_has_the_file(path, monkeypatch):
    def unable(descriptor):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", unable)
    rewrite(path)
    assert path.read_bytes() == b"new"


class Late(io.FileIO):
    """A file that tells only when it is closed that it is not written, as a share may."""

    def close(self):
        if not self.closed:
            super().close()
            raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_file_that_fails_when_it_is_closed_is_not_written(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(type(path), "open", lambda part, mode: Late(part, mode))
        with refuses("quota", OSError):
            rewrite(path)
    assert path.read_bytes() == b"former"
    assert names(path) == ["file"]


def test_the_new_name_reaches_the_disk_after_the_contents(path, monkeypatch):
    fsync, done = os.fsync, []

    def record(descriptor):
        stat = os.fstat(descriptor)
        done.append((stat.st_ino, path.read_bytes()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    rewrite(path)
    folder = os.stat(path.parent).st_ino
    assert done == [(os.stat(path).st_ino, b"former"), (folder, b"new")]


def test_what_a_killed_process_left_breaks_no_later_write(path):
    """Such as that of another owner, which can be removed and not opened."""
    part = path.with_name(".file.part")
    os.symlink("missing/file", part)
    rewrite(path)
    assert path.read_bytes() == b"new"
    assert names(path) == ["file"]


def test_json_takes_tuples_as_lists(tmp_path):
    files.write_json(tmp_path / "file", {"rates": (1, 2)})
    assert files.read_json(tmp_path / "file") == {"rates": [1, 2]}


def test_a_flipped_bit_of_a_json_file_changes_no_value_unseen(tmp_path):
    """A digit of a rate, say, which is another digit with one bit."""
    values = {
        "rate": 1.25e-3,
        "epochs": 20,
        "name": "sgd",
        "on": None,
        "group": {"b": [1, 2]},
    }
    files.write_json(tmp_path / "file", values)
    whole = (tmp_path / "file").read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "file").write_bytes(flipped)
        with contextlib.suppress(files.UnreadableError):
            read = files.read_json(tmp_path / "file")
            # A changed name of the checksum itself stays as a field, which owners refuse or ignore.
            assert {name: read.get(name) for name in values} == values


def test_json_of_0_1_and_of_editors_has_no_checksum(tmp_path):
    (tmp_path / "file").write_text('{"epochs": 20}')
    assert files.read_json(tmp_path / "file") == {"epochs": 20}
    files.write_json(tmp_path / "file", {"epochs": 20})
    text = (tmp_path / "file").read_text()
    (tmp_path / "file").write_text(text.replace("20", "24"))
    with refuses("file is damaged: .* its `checksum`", files.UnreadableError):
        files.read_json(tmp_path / "file")


def test_json_has_no_word_for_numbers_that_are_not_finite(tmp_path):
    values = {
        "a": math.inf,
        "b": [math.nan, 1.5, (-math.inf, True)],
        "c": {"d": "e", "f": None},
    }
    files.write_json(tmp_path / "file", values)

    def refuse(name):
        raise AssertionError(name)

    read = json.loads((tmp_path / "file").read_text(), parse_constant=refuse)
    read.pop("checksum")
    assert read == {
        "a": None,
        "b": [None, 1.5, [None, True]],
        "c": {"d": "e", "f": None},
    }
    assert (
        files.json_value(values)
        == read
        == files.read_json(tmp_path / "file", {"c.d": str})
    )


def test_what_is_set_aside_takes_no_others_place(tmp_path):
    for number in range(1, 4):
        (tmp_path / "file").write_text(str(number))
        files.set_aside(tmp_path / "file")
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "file.unreadable": "1", "file.unreadable-2": "2", "file.unreadable-3": "3",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a socket", "a device"])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    path = "/dev/null" if kind == "a device" else "what"
    with contextlib.ExitStack() as stack:
        if kind == "a folder":
            os.mkdir(path)
        elif kind == "a pipe":
            os.mkfifo(path)
        elif kind == "a socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(path)
        with refuses(f"--x must be a file. .*--x={path}, which is {kind}"):
            files.check_regular(path, "x")


def test_a_file_and_a_link_to_one_are_files(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    files.check_regular(tmp_path / "file", "x")
    files.check_regular(tmp_path / "link", "x")
    with pytest.raises(FileNotFoundError):
        files.check_regular(tmp_path / "none", "x")


@pytest.mark.parametrize(
    "number, there",
    [(errno.ENOENT, False), (errno.ENAMETOOLONG, False), (errno.EIO, None)],
)
def test_what_cannot_be_known_is_not_missing(tmp_path, monkeypatch, number, there):
    assert files.exists(tmp_path) and not files.exists(tmp_path / "a")

    def fails(path):
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "stat", fails)
    if there is None:
        with refuses("Input/output error", OSError):
            files.exists(tmp_path)
    else:
        assert files.exists(tmp_path) is there
