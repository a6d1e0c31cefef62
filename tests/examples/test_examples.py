"""Runs every program in `examples`; each checks what it shows."""

import ast
import importlib

import pytest

from tests import ROOT

FOLDER = ROOT / "examples"
NAMES = sorted(
    path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.py")
)
FROM_WHEEL = [name for name in NAMES if not name.startswith("clone/")]


@pytest.mark.parametrize("name", NAMES)
def test_example(name, forks):
    module = importlib.import_module(f"examples.{name.replace('/', '.')}")
    assert f"python examples/{name}.py " in module.__doc__
    assert "For your own" in module.__doc__
    done = forks.run("-m", module.__name__, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert " time steps: " not in done.stderr, "a layer does not see its series"
    assert done.stdout.strip(), "it shows nothing"


@pytest.mark.parametrize("name", FROM_WHEEL)
def test_an_example_needs_the_wheel_alone(name):
    """`.ci/run` runs it in an environment that has nothing else."""
    imported = set()
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    ours = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"keras_trellis"}
    assert not ours & {module.partition(".")[0] for module in imported}
