"""The old import paths of layers."""

import importlib
import pickle
import sys

import pytest

import keras_trellis

PATHS = {
    "keras_trellis.base": "SequenceLayer",
    "keras_trellis.equilibrium": "EquilibriumTrellisLayer",
    "keras_trellis.layer": "TrellisLayer",
    "keras_trellis.recurrent.layer": "RecurrentLayer",
}


@pytest.mark.parametrize(("path", "name"), PATHS.items())
def test_an_old_path_works_and_says_so(monkeypatch, path, name):
    monkeypatch.delitem(sys.modules, path, raising=False)
    parent, _, last = path.rpartition(".")
    monkeypatch.delitem(vars(sys.modules[parent]), last, raising=False)
    expected = getattr(keras_trellis, name)
    with pytest.warns(DeprecationWarning, match="Import keras_trellis.layers"):
        module = importlib.import_module(path)
    assert getattr(module, name) is expected
    assert vars(module)[name] is expected  # as Keras asks for it
    assert getattr(sys.modules[parent], last) is module
    assert pickle.loads(f"c{path}\n{name}\n.".encode()) is expected


@pytest.mark.filterwarnings("ignore:keras_trellis.base:DeprecationWarning")
def test_an_old_path_is_an_attribute():
    assert keras_trellis.base.SequenceLayer is keras_trellis.SequenceLayer
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = keras_trellis.nothing
