"""The examples of the docstrings run, and every public class and function has one."""

import doctest
import importlib
import inspect

import pytest

import keras_trellis
from keras_trellis import convert, heads, recurrent, testing
from tests import ROOT

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "keras_trellis").rglob("*.py")
    if ">>> " in path.read_text()
}
# What they write is read by the example of the runtime.
EXPORT = ("keras_trellis.export", "keras_trellis.serving.runtime")
# Results, which a user does not make, and what a class of the user's own derives from.
WITHOUT = {"Cache", "Convergence", "Head", "LossTerms", "SequenceLayer", "State"} | {
    "at_least_float32"
}
# The cells and gates are used as `IRCGRU` and `Gate`, which have examples.
PARTS = ("Cell", "Gate")


def run(module):
    """Runs the examples of a module; returns how many failed, of how many."""
    results = doctest.testmod(importlib.import_module(module))
    return results.failed, results.attempted


@pytest.mark.usefixtures("quiet_library")
@pytest.mark.parametrize("module", sorted(MODULES - {*EXPORT}))
def test_the_examples_run(module):
    assert run(module)[0] == 0


@pytest.mark.usefixtures("quiet_library")
def test_the_examples_of_exports_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [run(module)[0] for module in EXPORT] == [0, 0]


@pytest.mark.parametrize("module", [keras_trellis, recurrent, heads, convert, testing])
def test_what_is_public_has_an_example(module):
    public = {name: getattr(module, name) for name in module.__all__}
    lacking = {
        name
        for name, value in public.items()
        if inspect.isclass(value) or inspect.isfunction(value)
        if name == "Gate" or not name.endswith(PARTS)
        if ">>> " not in (value.__doc__ or "")
    }
    assert lacking - WITHOUT == set()
