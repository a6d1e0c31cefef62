"""The benchmark of first steps: each reading is taken, and the table has medians."""

import pytest

from benchmarks import cold, first_steps


@pytest.mark.parametrize("return_sequences", [False, True])
def test_each_reading_is_taken(monkeypatch, return_sequences):
    monkeypatch.setattr(first_steps, "MANY", 1)
    monkeypatch.setattr(first_steps, "UNITS", 3)
    contender = first_steps.baseline(first_steps.Setting(return_sequences))
    contender.step()
    found = contender.learn()
    assert set(first_steps.READINGS) <= set(found) and min(found.values()) > 0


def test_the_table_has_medians():
    readings = [dict.fromkeys(first_steps.READINGS, each) for each in (1.0, 9.0, 2.0)]
    (row,) = cold.rows({first_steps.OURS: readings})
    assert row["first"] == [1.0, 9.0, 2.0]
    assert cold.table([row], first_steps.READINGS).splitlines()[-1].count("2.00") == 6
