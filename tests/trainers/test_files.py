"""Files that are written whole or not at all."""

import json
import math

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


def test_json_has_no_word_for_numbers_that_are_not_finite(tmp_path):
    values = {"a": math.inf, "b": [math.nan, 1.5, (-math.inf, True)], "c": {"d": "e", "f": None}}
    files.write_json(tmp_path / "file", values)

    def refuse(name):
        raise AssertionError(name)

    read = json.loads((tmp_path / "file").read_text(), parse_constant=refuse)
    assert read == {"a": None, "b": [None, 1.5, [None, True]], "c": {"d": "e", "f": None}}
    assert files.json_value(values) == read == files.read_json(tmp_path / "file", {"c.d": str})


def test_what_is_set_aside_takes_no_others_place(tmp_path):
    for number in range(1, 4):
        (tmp_path / "file").write_text(str(number))
        files.set_aside(tmp_path / "file")
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "file.unreadable": "1", "file.unreadable-2": "2", "file.unreadable-3": "3",
    }  # fmt: skip
