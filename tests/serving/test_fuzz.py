"""A short run of the fuzzer; FUZZ_SECONDS makes it a longer one."""

import os
import re

import pytest
import tensorflow as tf

from tests.serving import fuzz, fuzz_server

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))


@pytest.mark.parametrize("name", ["tied", "sequences"])
def test_hostile_requests(exports, capfd, name):
    status = fuzz.main(
        [f"--model={exports[name]}", f"--seconds={SECONDS / 2}", "--seed=1"]
    )
    told = capfd.readouterr()
    assert status == 0, f"{told.out}\n{told.err[-5000:]}"


def test_hostile_requests_to_the_server(exports):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    fuzz_server.fuzz(str(exports["tied"].parent), int(100 * SECONDS), seed=2)


class Broken(tf.Module):
    """A model whose rows meet: each is told the greatest of all."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "numbers")])
    def greatest(self, numbers):
        return {"greatest": tf.fill(tf.shape(numbers), tf.reduce_max(numbers))}


def test_rows_that_meet_are_found(tmp_path, capfd):
    model = Broken()
    tf.saved_model.save(model, str(tmp_path), signatures=model.greatest)
    assert fuzz.main([f"--model={tmp_path}", "--seconds=5"]) == 1
    told = capfd.readouterr()
    assert "seed 0" in told.out and "exit status 1" in told.out
    number, signature = re.search(r"case (\d+) (\w+):", told.out).groups()
    assert (
        signature == "serving_default"
        and "greatest" in told.err
        and "numbers" in told.err
    )
    # The case can be had again.
    assert fuzz.main([f"--model={tmp_path}", "--seconds=5", f"--first={number}"]) == 1
    assert "seed 0: 1 cases" in capfd.readouterr().out
