"""What a sequence layer of one's own defines."""

import inspect

import pytest

from keras_trellis import SequenceLayer
from keras_trellis.layers.hooks import SequenceHooks
from keras_trellis.layers.stateful import Stateful
from tests.contract.registry import REGISTRY

BASES = (SequenceHooks, Stateful, SequenceLayer)
LAYERS = dict.fromkeys(entry.cls for entry in REGISTRY.values())
SHARED = set().union(*map(vars, BASES))


@pytest.mark.parametrize(
    "layer",
    [cls for cls in LAYERS if issubclass(cls, SequenceLayer)],
    ids=lambda cls: cls.__name__,
)
def test_a_layer_overrides_public_names_alone(layer):
    own = layer.__mro__[: layer.__mro__.index(SequenceLayer)]
    overridden = set().union(*map(vars, own)) & SHARED
    private = {name for name in overridden if name.startswith("_")}
    assert {name for name in private if not name.startswith("__")} == set()
    assert {"run_chunk", "add_variables", "cache_of_state"} <= overridden


def test_every_hook_says_what_it_returns():
    hooks = {name for name in vars(SequenceHooks) if not name.startswith("_")}
    assert hooks > {"run", "run_chunk", "add_variables", "cache_of_state"}
    for name in hooks:
        assert inspect.getdoc(vars(SequenceHooks)[name]), name


def test_a_layer_without_hooks_runs_nothing():
    with pytest.raises(NotImplementedError):
        SequenceLayer().build((None, None, 2))
