"""Tables: cells by the names of their columns, and the line that each row is in."""

import datetime
import math

import numpy as np
import pyarrow
import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.refusals import refuses
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
            "b": [2.5, None],
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
    "cell, expected",
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
    with refuses("f, line 7: the column 't' must have times"):
        tables.seconds(where, "t", cell)


HERE = tables.Place(epath.Path("f"), "line", 7)


@given(
    st.one_of(
        st.floats().map(repr),
        st.floats(-3.5e38, 3.5e38).map("{:.9g}".format),
        st.integers().map(str),
        st.sampled_from(["1e39", "-1e39", "nan", "NaN", "NA", "inf", "1,5", "0x1p3"]),
        # Half a unit around the largest float32, where rounding decides.
        st.integers(-2, 2).map(lambda n: repr(2.0**128 - 2.0**103 + n * 2.0**76)),
    )
)
def test_a_number_is_that_of_float32_or_an_error_with_its_line(text):
    try:
        with np.errstate(over="ignore"):
            expected = np.float32(text)
    except ValueError:
        expected = np.float32("nan")
    if np.isfinite(expected):
        assert np.float32(tables.number(HERE, "a", text)) == expected
        return
    with pytest.raises(ValueError) as error:
        tables.number(HERE, "a", text)
    assert str(error.value) == (
        "f, line 7: the column 'a' must have finite float32 numbers, or empty cells. "
        f"Received: {text!r}"
    )


@pytest.mark.parametrize("cell", ["", " \t", None])
def test_an_empty_cell_is_a_gap(cell):
    assert math.isnan(tables.number(HERE, "a", cell))


@pytest.mark.parametrize("cell", [math.nan, math.inf, 10**39, b"x"])
def test_what_is_no_number_in_parquet(cell):
    with refuses("f, line 7: the column 'a' must have finite"):
        tables.number(HERE, "a", cell)


def test_nan_is_no_name():
    assert tables.text(HERE, "a", None) == tables.text(HERE, "a", " ") == ""
    assert tables.text(HERE, "a", 3) == "3" and tables.text(HERE, "a", "nan") == "nan"
    with refuses("f, line 7: the column 'a' must have .*: NaN"):
        tables.text(HERE, "a", math.nan)


@given(
    before=st.lists(st.sampled_from(["1,2", '"é\n",2', "語,", ",", "x" * 9000 + ","])),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    start=st.sampled_from(["", "語"]),
)
def test_bytes_that_are_not_utf8_have_their_line(before, end, start, tmp_path_factory):
    path = epath.Path(tmp_path_factory.mktemp("tables") / "t.csv")
    lines = end.join(["a,b", *before, start])
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode() + b"\xe9,1\nc,d\n")
    number = 2 + sum(1 + row.count("\n") for row in before)
    with pytest.raises(ValueError) as error:
        list(tables.rows(path, ("b",)))
    assert str(error.value) == (
        f"{path}, line {number} must be a row of CSV in UTF-8. Received: the byte 0xe9 at "
        f"character {1 + len(start)}"
    )


def test_the_work_grows_with_the_number_of_columns_alone(tmp_path):
    # With a look through the names for each name this would take many minutes.
    names = [f"c{number}" for number in range(200_000)]
    path = epath.Path(tmp_path / "wide.csv")
    path.write_text(f"{','.join(names)}\n{','.join('1' for _ in names)}\n")
    assert tables.header(path) == names
    (row,) = tables.rows(path, names[::-1])
    assert len(row[1]) == len(names)


def test_the_columns_line_need_not_be_the_first(tmp_path):
    path = epath.Path(tmp_path / "t.csv")
    path.write_text("\n\na,a\n")
    with refuses("t.csv, line 3 must have the names"):
        tables.header(path)
    table = pyarrow.Table.from_arrays([[1], [2]], ["a", "a"])
    parquet.write_table(table, path := epath.Path(tmp_path / "t.parquet"))
    with refuses("t.parquet must have the names .* 'a' twice"):
        tables.header(path)
