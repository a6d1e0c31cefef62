"""The benchmark of learned optimizers, at a tiny size, in this process."""

import math

from benchmarks import meta, report
from benchmarks.workers import Reading, Result


def test_a_step_of_each_contender_trains():
    sizes = meta.ModelSizes(batch_size=3, pixels=4, units=2)
    results = {}
    for name, (_, build) in meta.CONTENDERS.items():
        contender = build(sizes)
        assert math.isfinite(contender.step())
        assert contender.facts == {"parameters": 4 * 2 + 2 + 30}
        readings = [Reading(2.0, 1.0, 2**20), Reading(4.0, 3.0, 2**20)]
        results[name] = Result(contender.facts, readings)
    rows = report.rows(meta.CONTENDERS, meta.ADAM, results)
    table = report.table(rows, meta.COLUMNS)
    assert "| keras.optimizers.Adam | 3,000.0 |" in table
    assert table.count("| 1.00, **1.00**, 1.00 | 1.00, **1.00**, 1.00 |") == 3
