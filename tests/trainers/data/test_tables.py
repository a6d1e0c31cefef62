"""Tables: cells by the names of their columns, and the line that each row is in."""

import datetime

import pyarrow
import pytest
from etils import epath
from pyarrow import parquet

from trainers.data import tables

TEXT = 'a,note,b\r\n1,"two\nlines",2.5\r\n\r\n ,plain,nan\r\n'


@pytest.fixture
def place(tmp_path):
    path = epath.Path(tmp_path / "t.csv")
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    return path


def test_rows_have_their_lines(place):
    rows = [
        (str(where), list(cells)) for where, cells in tables.rows(place, ("b", "a"))
    ]
    assert rows == [
        (f"{place}, line 3", ["2.5", "1"]),
        (f"{place}, line 5", ["nan", " "]),
    ]
    assert tables.header(place) == ["a", "note", "b"]


def test_parquet_has_what_csv_has(tmp_path):
    path = epath.Path(tmp_path / "t.parquet")
    days = [datetime.datetime(2024, 5, 31, 12), None]
    table = pyarrow.table(
        {
            "a": [1, None],
            "b": [2.5, float("nan")],
            "when": pyarrow.array(days, pyarrow.timestamp("ns")),
        }
    )
    parquet.write_table(table, path)
    rows = list(tables.rows(path, ("b", "a", "when")))
    assert [str(where) for where, _ in rows] == [f"{path}, row 1", f"{path}, row 2"]
    read = [
        [tables.number(where, "a", cell) for cell in cells[:2]] for where, cells in rows
    ]
    assert read[0] == [2.5, 1.0]
    assert all(value != value for value in read[1])
    assert rows[0][1][2] == days[0]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("12.5", 12.5),
        (3, 3.0),
        ("1970-01-02", 86_400.0),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        (datetime.date(1970, 1, 2), 86_400.0),
    ],
)
def test_times(cell, expected):
    assert tables.seconds(None, "t", cell) == expected


@pytest.mark.parametrize("cell", ["", "noon", "nan", None, "1e999"])
def test_what_is_no_time(cell):
    where = tables.Place(epath.Path("f"), "line", 7)
    with pytest.raises(ValueError, match="f, line 7: the column 't' must have times"):
        tables.seconds(where, "t", cell)
