"""Tables, and what a document shows of a command."""

from benchmarks import report
from benchmarks.workers import Reading, Result


def test_a_table_leaves_out_empty_columns():
    rows = [{"name": "x", "a": 1}, {"name": "y"}]
    columns = {
        "": lambda row: row["name"],
        "a": lambda row: report.number(row.get("a")),
        "b": lambda row: "",
    }
    assert (
        report.table(rows, columns) == "|  | a |\n| --- | ---: |\n| x | 1 |\n| y |  |"
    )


def test_rows_set_times_beside_ours_round_by_round():
    contenders = {"ours": ("Ours", None), "theirs": ("Theirs", None)}
    results = {
        "ours": Result(
            {"units": 1},
            [Reading(1.0, 0.5, 5), Reading(4.0, 1.0, 7), Reading(2.0, 2.0, None)],
        ),
        "theirs": Result({"units": 2}, [Reading(2.0, 1.5, None)] * 3),
    }
    ours, theirs = report.rows(contenders, "ours", results)
    assert (theirs["title"], theirs["units"], theirs["seconds"]) == (
        "Theirs",
        2,
        [2.0] * 3,
    )
    assert theirs["time_to_ours"] == {"min": 0.5, "median": 1.0, "max": 2.0}
    assert report.time_to_ours(theirs) == "0.50, **1.00**, 2.00"
    assert theirs["processor_seconds"] == [1.5] * 3
    assert report.processor_to_ours(theirs) == "0.75, **1.50**, 3.00"
    assert (ours["peak_bytes"], theirs["peak_bytes"]) == (7, None)
    (alone,) = report.rows(contenders, "ours", {"theirs": results["theirs"]})
    assert report.time_to_ours(alone) == report.processor_to_ours(alone) == ""


def test_memory_is_shown_where_it_could_be_read():
    assert report.peak_mebibytes({"peak_bytes": 3 * 2**20}) == "3"
    assert report.peak_mebibytes({"peak_bytes": None}) == ""


def test_the_machine_is_told():
    here = report.machine()
    assert here["processor"] and here["cores"] >= 1 and "tensorflow" in here["versions"]
