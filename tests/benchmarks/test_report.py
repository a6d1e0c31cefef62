"""Tables, and what a document shows of a command."""

from benchmarks import report
from benchmarks.workers import Reading


def test_markdown_leaves_out_empty_columns():
    text = report.markdown(("", "a", "b"), [["x", "1", ""], ["y", "", ""]])
    assert text == "|  | a |\n| --- | ---: |\n| x | 1 |\n| y |  |"


def test_commands_are_shown_with_nobody_s_folders():
    words = ["python", "-m", "benchmarks.x", "--reference_dir=/home/me/net", "--json=/r.json"]
    shown = report.shown([*words, "--depth=58", *["--dtype=bfloat16"] * 4])
    assert "/home" not in shown and "json" not in shown
    lines = shown.split("\n")
    assert lines[0].startswith(".venv/bin/python -m benchmarks.x --reference_dir=/tmp/trellisnet ")
    assert len(lines) == 2 and lines[0].endswith(" \\") and max(map(len, lines)) < 100
    assert lines[1].startswith("  --dtype=bfloat16")


def test_ratios_are_taken_round_by_round():
    mine = [Reading(2.0, None)] * 3
    ours = [Reading(1.0, 5), Reading(4.0, 7), Reading(2.0, None)]
    assert report.ratios(mine, ours) == {"min": 0.5, "median": 1.0, "max": 2.0}
    assert report.spread_cell(report.ratios(mine, ours)) == "0.50, **1.00**, 2.00"


def test_peak_is_of_what_could_be_read():
    assert report.peak([Reading(1.0, 5), Reading(1.0, None), Reading(1.0, 7)]) == 7
    assert report.peak([Reading(1.0, None)]) is None
    assert report.mebibytes(3 * 2**20) == "3" and report.mebibytes(None) == ""


def test_machine_is_described():
    here = {**report.machine(), "threads": 1}
    assert "1 threads" in report.described(here) and "tensorflow" in report.described(here)
