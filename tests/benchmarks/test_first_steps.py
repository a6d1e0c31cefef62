"""The benchmark of first steps: each reading is taken, and the table has medians."""

import pytest

from benchmarks import first_steps
from benchmarks.workers import Result


@pytest.mark.parametrize("return_sequences", [False, True])
def test_each_reading_is_taken(monkeypatch, return_sequences):
    monkeypatch.setattr(first_steps, "MANY", 1)
    monkeypatch.setattr(first_steps, "UNITS", 3)
    contender = first_steps.baseline(first_steps.Setting(return_sequences))
    contender.step()
    found = contender.learn()
    assert set(first_steps.READINGS) <= set(found) and min(found.values()) > 0


def test_the_table_has_medians(monkeypatch):
    values = iter((1.0, 1.5, 9.0, 2.5, 2.0, 3.5))  # the two contenders take turns

    def once(*_):
        return Result(dict.fromkeys(first_steps.READINGS, next(values)), [])

    monkeypatch.setattr(first_steps.workers, "once", once)
    rows = first_steps.measure(first_steps.Setting(False), rounds=3, threads=1)
    assert rows[0]["first"] == [1.0, 9.0, 2.0]
    lines = first_steps.table({"rows": rows}).splitlines()[-2:]
    assert [line.count(each) for line, each in zip(lines, ("2.00", "2.50"), strict=True)] == [5, 5]
