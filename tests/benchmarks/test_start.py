"""The benchmark of the first answers, at a tiny size."""

from benchmarks import lstm, start


def test_each_is_loaded_and_asked_twice(model):
    lstm.export(model, start.lstm_path(model))
    for build in start.CONTENDERS.values():
        contender = build(model)
        contender.step()
        found = contender.learn()
        assert list(found) == [*start.READINGS] and min(found.values()) >= 0
