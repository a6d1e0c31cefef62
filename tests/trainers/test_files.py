"""Files that are written whole or not at all."""

import contextlib
import json
import os
import socket

import pytest

from trainers import files


def test_a_write_that_fails_leaves_the_former_file(tmp_path):
    path = tmp_path / "file"
    files.write_atomically(path, lambda file: file.write(b"former"))

    def fail(file):
        file.write(b"half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        files.write_atomically(path, fail)
    assert path.read_bytes() == b"former"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_json_takes_tuples_as_lists(tmp_path):
    files.write_json(tmp_path / "file", {"rates": (1, 2)})
    assert json.loads((tmp_path / "file").read_text()) == {"rates": [1, 2]}


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
        with pytest.raises(ValueError, match=f"--x must be a file. .*--x={path}, which is {kind}"):
            files.check_regular(path, "x")


def test_a_file_and_a_link_to_one_are_files(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    files.check_regular(tmp_path / "file", "x")
    files.check_regular(tmp_path / "link", "x")
    with pytest.raises(FileNotFoundError):
        files.check_regular(tmp_path / "none", "x")
