"""Each backend has what the library asks of it."""

import ast

import pytest

from tests import ROOT

FOLDER = ROOT / "keras_trellis/backend"


def names(path):
    """The names that a module defines, or imports from modules beside it."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets}
        elif isinstance(node, ast.AnnAssign):
            found.add(node.target.id)
        elif isinstance(node, ast.ImportFrom) and "backend" in node.module:
            beside = FOLDER / f"{node.module.rpartition('.')[2]}.py"
            given = {alias.name for alias in node.names}
            found |= names(beside) if given == {"*"} else given
    return found


def asked():
    """The attributes of `backend` in the files that import the current one by this name."""
    for path in (ROOT / "keras_trellis").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "import current as backend" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    if node.value.id == "backend":
                        yield node.attr


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_backend_has_all_that_is_asked(backend):
    wanted = set(asked())
    assert len(wanted) > 20
    assert wanted <= names(FOLDER / f"{backend}.py")


@pytest.mark.parametrize("common", ["direct", "shared"])
def test_nothing_in_common_is_unused(common):
    assert names(FOLDER / f"{common}.py") <= set(asked())
