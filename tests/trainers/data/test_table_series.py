"""Series out of tables: their order, their splits, and what of a split knows of another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from trainers.data import table_series
from trainers.data.sequences import SPLITS
from trainers.data.table_series import Columns, Row, Series, Table

COLUMNS = Columns(("a", "b"), "id", "t", "kind", "")
SHARES = {"validation": 0.2, "test": 0.2}


def table(lengths):
    """Returns series of some lengths, each row an hour after the one before."""
    series = {}
    for number, length in enumerate(lengths):
        name = f"s{number}"
        rows = [
            Row(None, (float(number), float(step)), "x", 100.0 * number + step)
            for step in range(length)
        ]
        series[name] = Series(name, rows)
    return Table(("a", "b"), series)


@given(st.lists(st.integers(1, 9), min_size=3, max_size=20), st.integers(0, 2**32))
def test_each_series_is_in_one_split_whatever_the_order_of_the_files(lengths, seed):
    whole = table(lengths)
    parts = table_series.by_series(whole, SHARES, seed)
    names = [each.name for split in SPLITS for each in parts[split]]
    assert sorted(names) == sorted(whole.series)
    assert all(parts[split] for split in SPLITS)
    reverse = Table(whole.channels, dict(reversed(whole.series.items())))
    again = table_series.by_series(reverse, SHARES, seed)
    for split in SPLITS:
        assert {e.name for e in again[split]} == {e.name for e in parts[split]}


@given(st.lists(st.integers(1, 9), min_size=3, max_size=20))
def test_the_latest_series_are_tested(lengths):
    parts = table_series.by_start(table(lengths), SHARES)
    begun = [[each.rows[0].seconds for each in parts[split]] for split in SPLITS]
    assert max(begun[0]) < min(begun[1]) and max(begun[1]) < min(begun[2])


@given(st.lists(st.integers(4, 40), min_size=1, max_size=4))
def test_rows_are_split_by_their_time(lengths):
    whole = table(lengths)
    parts = table_series.by_time(whole, {"validation": 0.3, "test": 0.3})
    rows = [[row for each in parts[s] for row in each.rows] for s in SPLITS]
    seconds = [np.array([row.seconds for row in split]) for split in rows]
    assert seconds[0].max() < seconds[1].min() and seconds[1].max() < seconds[2].min()
    assert sum(map(len, seconds)) == sum(lengths)
    for series in (each for split in SPLITS for each in parts[split]):
        assert set(series.rows) <= set(whole.series[series.name].rows)


def test_rows_of_a_series_may_be_anywhere_and_in_any_order(tmp_path):
    (tmp_path / "1.csv").write_text(
        "id,t,a,b,kind\nx,3,30,,k\ny,1,5,6,l\nx,1,10,11,k\n"
    )
    (tmp_path / "2.csv").write_text("kind,b,a,t,id,more\nk,21,20,2,x,\nl,8,7,2,y,\n")
    (tmp_path / "notes.txt").write_text("no table")
    read = table_series.read("data_dir", tmp_path, COLUMNS)
    x, y = read.series["x"], read.series["y"]
    assert [row.seconds for row in x.rows] == [1.0, 2.0, 3.0]
    assert [row.time for row in x.rows] == ["1", "2", "3"]
    # The row with an empty cell is a gap.
    assert_array_equal(x.steps, [[10, 11], [20, 21], [np.nan, np.nan]])
    assert_array_equal(y.steps, [[5, 6], [7, 8]])
    assert [row.place.path.name for row in x.rows] == ["1.csv", "2.csv", "1.csv"]
    assert table_series.period(read, COLUMNS, 0.0) == 1.0


def test_without_a_column_of_names_each_file_is_a_series(tmp_path):
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    (tmp_path / "a.csv").write_text("a,b\n3,4\n")
    read = table_series.read("data_dir", tmp_path, Columns(()))
    assert list(read.series) == ["a", "b"] and read.channels == ("a", "b")
    assert table_series.period(read, Columns(()), 0.1) is None


@pytest.mark.parametrize("every_step", [False, True])
def test_labels(every_step):
    rows = Series("s", [Row("p", [0.0], label) for label in ("yes", "", "yes")])
    (made,) = table_series.recordings([rows], ("no", "yes"), "kind", every_step)
    assert made.target.tolist() == ([1, -1, 1] if every_step else 1)
    rows = Series("s", [Row("p", [0.0], label) for label in ("2", None, "2.0")])
    (made,) = table_series.recordings([rows], (), "kind", every_step)
    expected = [2, np.nan, 2] if every_step else 2
    assert_array_equal(made.target, np.array(expected, "float32"))
