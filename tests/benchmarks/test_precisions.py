"""The benchmark of exports in less precision, at a tiny size."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import precisions
from benchmarks.workers import Reading, Result


def test_a_cold_load_answers(model):
    contender = precisions.cold("float32", model)
    contender.step()
    found = contender.learn()
    built = model.build()
    ids = tf.random.stateless_uniform(precisions.PROMPTS, (0, 0), 0, 11, tf.int32)
    expected, _ = built.prefill(ids, built.get_initial_cache(len(ids)))
    np.testing.assert_allclose(found["log_probs"], expected, atol=1e-5)
    assert found["load_seconds"] > 0 and "loaded" not in found


@pytest.mark.parametrize(("signature", "shape"), [("step", (1, 11)), ("score", (1, 5))])
def test_each_signature_reads_the_tokens(signature, shape, model):
    contender = precisions.warm("float32", precisions.Setting(model, signature, tokens=5))
    assert contender.step().shape == shape


def test_rows_are_set_beside_float32():
    def readings(*seconds):
        return Result({}, [Reading(each, None) for each in seconds])

    def cold(log_probs):
        facts = {"load_seconds": 1.0, "log_probs": np.array([log_probs])}
        return [Result(facts, [Reading(1.5, None)])]

    warms = {"float32": readings(4.0, 8.0), "int8": readings(2.0, 2.0)}
    found = precisions.row(
        "int8",
        2**20,
        {"float32": readings(1.0), "int8": readings(3.0)},
        {"float32": cold([-1.0, -2.0]), "int8": cold([-1.0, -2.25])},
        {"step": warms, "score": warms},
    )
    assert (found["difference"], found["export_seconds"]) == (0.25, 3.0)
    assert found["step"]["time_to_full"] == {"min": 0.25, "median": 0.375, "max": 0.5}
    line = precisions.table({"rows": [found], "tokens": 4}).splitlines()[-1]
    spread = "0.25, **0.38**, 0.50"
    assert line == (
        f"| int8 | 1.0 | 3.0 | 1.00 | 1.50 | 500.00 | {spread} | 500.00 | {spread} | 2.5e-01 |"
    )


def test_a_load_that_fails_says_why(model, monkeypatch):
    monkeypatch.setattr(precisions.workers, "measure", lambda *_, **__: ({}, {"float32": "gone"}))
    with pytest.raises(RuntimeError, match="float32: gone"):
        precisions.measure_cold(model, rounds=1)
