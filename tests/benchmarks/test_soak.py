"""The benchmark of a server's memory, at a tiny size."""

import pytest

from benchmarks import soak
from benchmarks.workers import Reading, Result


@pytest.fixture(scope="module")
def setting(model):
    return soak.Setting(model, requests=20, rows=3, words=5, tokens=40, chunk=4)


def test_requests_of_all_signatures_and_sizes_are_answered(model, setting):
    loaded = model.load()
    asking = soak.asking(loaded, setting)
    assert len(asking) == len(loaded.signatures) == 8
    sizes = set()
    for ask in asking * 4:
        answer = ask()
        sizes.add(tuple(tuple(value.shape) for value in answer.values()))
    assert len(sizes) > 2 * len(asking)


@pytest.mark.parametrize(("name", "count"), [("requests", 20), ("generation", 40)])
def test_memory_is_read_each_tenth(name, count, setting):
    contender = soak.CONTENDERS[name][1](setting)
    for _ in range(soak.TENTHS):
        contender.step()
    resident = contender.learn()["resident"]
    assert contender.facts == {"count": count} and len(resident) == soak.TENTHS
    assert all(each is None or each > 2**20 for each in resident)


def test_growth_is_from_the_first_tenth_to_the_last():
    mebibytes = [400, 410, 410, 410, 420, 420, 420, 420, 420, 440]
    facts = {"count": 1000, "resident": [each * 2**20 for each in mebibytes]}
    found = soak.row("requests", Result(facts, [Reading(0.5, None)] * 10))
    line = soak.table({"rows": [found]}).splitlines()[-1]
    assert line == "| requests of all signatures | 1,000 | 200 | 400 | 420 | 440 | +10.0% |"
    facts["resident"][-1] = None
    assert soak.table({"rows": [found]}).endswith("| 400 | 420 |")  # the others are empty
