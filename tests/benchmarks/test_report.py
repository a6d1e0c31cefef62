"""Tables, and what a document shows of a command."""

from benchmarks import report
from benchmarks.workers import Reading


def test_a_table_leaves_out_empty_columns():
    rows = [{"name": "x", "a": 1}, {"name": "y"}]
    columns = {
        "": lambda row: row["name"],
        "a": lambda row: report.number(row.get("a")),
        "b": lambda row: "",
    }
    assert report.table(rows, columns) == "|  | a |\n| --- | ---: |\n| x | 1 |\n| y |  |"


def test_ratios_are_taken_round_by_round():
    mine = [Reading(2.0, None)] * 3
    ours = [Reading(1.0, 5), Reading(4.0, 7), Reading(2.0, None)]
    assert report.ratios(mine, ours) == {"min": 0.5, "median": 1.0, "max": 2.0}
    assert report.spread_cell(report.ratios(mine, ours)) == "0.50, **1.00**, 2.00"


def test_peak_is_of_what_could_be_read():
    assert report.peak([Reading(1.0, 5), Reading(1.0, None), Reading(1.0, 7)]) == 7
    assert report.peak([Reading(1.0, None)]) is None
    assert report.mebibytes(3 * 2**20) == "3" and report.mebibytes(None) == ""


def test_the_machine_is_told():
    here = report.machine()
    assert here["processor"] and here["cores"] >= 1 and "tensorflow" in here["versions"]
