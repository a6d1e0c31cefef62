"""The benchmark of the first answers, at a tiny size."""

from benchmarks import lstm, start


def test_each_is_loaded_and_asked_twice(model):
    lstm.export(model, start.lstm_path(model))
    for build in start.CONTENDERS.values():
        contender = build(model)
        contender.step()
        found = contender.learn()
        assert list(found) == [*start.READINGS] and min(found.values()) >= 0


def test_the_table_has_medians():
    readings = [dict.fromkeys(start.READINGS, each) for each in (1.0, 9.0, 2.0)]
    found = {"rows": start.rows({start.OURS: readings})}
    assert found["rows"][0]["load"] == [1.0, 9.0, 2.0]
    assert start.table(found).splitlines()[-1] == "| TrellisLM | 2.00 | 2.00 | 2.00 |"
