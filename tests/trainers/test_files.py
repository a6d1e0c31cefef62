"""Files that are written whole or not at all."""

import json

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
