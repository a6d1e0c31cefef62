"""Runs every program in `examples`; each checks what it shows."""

import importlib
import pathlib
import subprocess
import sys

import keras
import pytest

ROOT = pathlib.Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
NEEDS = {"to_litert": (3, 13)}  # versions of Keras


@pytest.mark.parametrize("name", NAMES)
def test_example(name):
    if tuple(map(int, keras.__version__.split(".")[:2])) < NEEDS.get(name, (3, 0)):
        pytest.skip(f"needs Keras {NEEDS[name]}")
    module = importlib.import_module(f"examples.{name}")
    assert f"python examples/{name}.py " in module.__doc__
    done = subprocess.run(
        [sys.executable, "-m", module.__name__],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip(), "it shows nothing"
