"""Runs every program in `examples`; each checks what it shows."""

import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_example(name, forks):
    module = importlib.import_module(f"examples.{name}")
    assert f"python examples/{name}.py " in module.__doc__
    done = forks.run("-m", module.__name__, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip(), "it shows nothing"
