"""`import keras_trellis` imports what is asked for, and Keras finds all of it."""

import pathlib
import subprocess
import sys
import typing

import keras
import pytest

import keras_trellis
from keras_trellis import layers
from tests import ROOT

SAVED = ROOT / "tests/contract/testdata/0.1.0-trellislm.keras"
# TensorFlow imports Keras before it can be used itself: the hardest order.
PROGRAM = f"""
import sys
import keras_trellis.layers
import keras_trellis.serving
assert not {{"keras", "tensorflow"}} & {{*sys.modules}}
import tensorflow as tf
model = tf.keras.models.load_model({str(SAVED)!r})
assert type(model) is keras_trellis.TrellisLM
assert type(model.trellis) is keras_trellis.TrellisLayer
import keras_trellis.layers.trellis
assert keras_trellis.layers.trellis.TrellisLayer is keras_trellis.TrellisLayer
"""
# A module of ours that imports Keras itself is not whole when Keras is.
MODULE_FIRST = f"""
from keras_trellis.layers.trellis import TrellisLayer
import keras
model = keras.models.load_model({str(SAVED)!r})
assert type(model.trellis) is TrellisLayer
"""


@pytest.mark.parametrize("program", [PROGRAM, MODULE_FIRST])
def test_keras_loads_a_file_in_a_fresh_process(program):
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


# As where that backend is not installed.
NO_BACKEND = """
import sys
from tests.serving import without_tensorflow
without_tensorflow.BLOCKED = ({name!r},)
sys.meta_path.insert(0, without_tensorflow.Absent)
import keras_trellis.serving
try:
    {statement}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "name, statement",
    [
        ("tensorflow", "from keras_trellis import TrellisLayer"),
        ("jax", "import keras_trellis.heads"),
        ("torch", "import keras"),
    ],
)
def test_a_backend_that_is_not_installed_is_named(monkeypatch, name, statement):
    monkeypatch.setenv("KERAS_BACKEND", name)
    program = NO_BACKEND.format(name=name, statement=statement)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == (
        f"Keras's backend is '{name}', which is not installed: pip install "
        f"'keras_trellis[{name}]', or set KERAS_BACKEND to an installed one of tensorflow, jax, "
        "torch.\n"
    )


def test_every_name_is_there():
    names = {}
    exec("from keras_trellis import *", names)
    assert {*keras_trellis.__all__} <= {*names} & {*dir(keras_trellis)}
    for name in keras_trellis.__all__:
        assert getattr(keras_trellis, name) is names[name]
    assert keras_trellis.layers.sequence.SequenceLayer is keras_trellis.SequenceLayer
    for name in ("nothing", "_nothing", "__nothing__"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(keras_trellis, name)


def test_all_layers_are_among_the_layers():
    names = {}
    exec("from keras_trellis.layers import *", names)
    for module in (keras_trellis, keras_trellis.recurrent):
        for name in module.__all__:
            value = getattr(module, name)
            is_layer = isinstance(value, type) and issubclass(value, keras.layers.Layer)
            if is_layer and not issubclass(value, keras.Model):
                assert names[name] is getattr(layers, name) is value
    assert {*layers.__all__} <= {*names} & {*dir(layers)}
    with pytest.raises(AttributeError, match="'keras_trellis.layers' has no attribute"):
        _ = layers.nothing


@pytest.mark.parametrize("module", [keras_trellis, layers])
def test_type_checkers_see_the_same_names(monkeypatch, module):
    monkeypatch.setattr(typing, "TYPE_CHECKING", True)
    namespace = {"__name__": module.__name__, "__package__": module.__name__}
    source = pathlib.Path(module.__file__).read_text()
    exec(compile(source, module.__file__, "exec"), namespace)
    for name in module.__all__:
        assert namespace[name] is getattr(module, name)
