"""The language-model task: what the training loop and its replicas make of it."""

import json
import subprocess
import sys

import numpy as np


def test_two_replicas_end_with_the_weights_of_one():
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainers.replicas"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for one, two in json.loads(done.stdout.splitlines()[-1]).values():
        assert (one["replicas"], two["replicas"]) == (1, 2)
        assert one["steps_per_epoch"] == 6
        np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-10)
        for first, second in zip(one["weights"], two["weights"], strict=True):
            np.testing.assert_allclose(second, first, rtol=1e-8, atol=1e-10)
