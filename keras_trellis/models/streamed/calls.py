"""Which layers a functional model calls, in order, on what."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras


class Call(NamedTuple):
    """One call of a layer, or of an operation of Keras.

    Attributes:
        layer: what is called.
        args: its positional arguments; tensors of the model are `KerasTensor`s.
        kwargs: its named arguments.
        outputs: what it returns, flat.
    """

    layer: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[keras.KerasTensor]


class Graph(NamedTuple):
    """A model as the list of its calls.

    Attributes:
        inputs: its inputs, flat.
        calls: each after those whose outputs it reads.
        outputs: its outputs, flat.
    """

    inputs: list[keras.KerasTensor]
    calls: list[Call]
    outputs: list[keras.KerasTensor]


def is_graph(model: Any) -> bool:
    """Returns whether a model is what its layers and their connections say, and no more."""
    if not isinstance(model, (keras.Function, keras.Sequential)):
        return False
    # A subclass with a `call` of its own may do more than its graph says.
    own = [cls for cls in type(model).__mro__ if "call" in vars(cls)]
    packages = {cls.__module__.partition(".")[0] for cls in own}
    return packages <= {"keras"}


def graph(model: keras.Model) -> Graph:
    """Returns the calls of a model for which `is_graph` holds and that is built.

    Keras's `clone_model` goes through them. Nothing is called: that would leave traces in the
    layers.
    """
    calls: list[Call] = []

    def record(layer: Any, *args: Any, **kwargs: Any) -> Any:
        spec = layer.compute_output_spec(*args, **kwargs)
        # Symbols of the same shapes take the place of its outputs, for Keras to go on with.
        stand_in = _StandIn(spec, name=f"call_{len(calls)}")
        outputs = stand_in(tensors((args, kwargs)))
        flat_outputs = keras.tree.flatten(outputs)
        calls.append(Call(layer, args, kwargs, flat_outputs))
        return outputs

    # Without the loss and the metrics, which Keras would copy too.
    plain = keras.Model(model.inputs, model.outputs, name=model.name)
    copy = keras.models.clone_model(
        plain, clone_function=lambda layer: layer, call_function=record
    )
    return Graph(copy.inputs, calls, copy.outputs)


def tensors(arguments: Any) -> list[keras.KerasTensor]:
    """Returns the tensors of a model among arguments."""
    leaves = keras.tree.flatten(arguments)
    return [leaf for leaf in leaves if isinstance(leaf, keras.KerasTensor)]


class _StandIn(keras.Operation):
    """An operation that returns symbols of these shapes, in the place of a call."""

    def __init__(self, spec: Any, name: str) -> None:
        super().__init__(name=name)
        self.spec = spec

    def compute_output_spec(self, tensors: Any) -> Any:
        return self.spec
