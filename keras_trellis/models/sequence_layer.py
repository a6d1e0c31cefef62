"""What a model needs of the sequence layer that it is composed over."""

from __future__ import annotations

import inspect
from typing import Any

import keras

from keras_trellis import arguments
from keras_trellis.layers.recurrent import MEANINGLESS, RecurrentLayer, is_recurrent
from keras_trellis.layers.sequence import SequenceLayer, deserialized

# docs/reference/sequence_layer.md says what they mean.
_NEEDED = (
    "output_units",
    "receptive_field",
    "get_initial_state",
    "get_initial_cache",
    "stream",
)


def prepared(
    value: Any,
    model: str,
    *,
    returns_all: bool,
) -> Any:
    """Returns the layer of a model, which sets what the layer returns.

    Args:
        value: a sequence layer, one or several of Keras's recurrent layers, or a serialised one.
        model: what to call the model in errors, such as "a language model".
        returns_all: whether the model needs all outputs and the state; else only the last output.

    Raises:
        ValueError: `value` is no such layer, or has an argument without meaning in a model.
    """
    layer = deserialized(value)
    if is_recurrent(layer):
        layer = RecurrentLayer(layer, name="trellis")
    if not isinstance(layer, keras.layers.Layer) or not all(
        hasattr(layer, n) for n in _NEEDED
    ):
        raise ValueError(
            "`trellis` must be a sequence layer, such as keras_trellis.TrellisLayer or "
            f"keras.layers.LSTM. Received: trellis={value!r}"
        )
    for name in MEANINGLESS:
        if getattr(layer, name, False):
            raise ValueError(
                f"`{name}` of the layer must be False in {model}. "
                f"Received: {name}=True of {layer.name!r}"
            )
    layer.return_sequences = layer.return_state = returns_all
    if isinstance(layer, SequenceLayer):
        layer.warns_of_state = False
    return layer


def depth_argument(layer: Any, depth: int | None) -> dict[str, int]:
    """Returns the argument of a layer's call by which it runs so many levels.

    Raises:
        ValueError: the layer's call has no such argument.
    """
    if depth is None:
        return {}
    if not takes(layer, "depth"):
        raise ValueError(
            "`depth` must be None unless the layer can run fewer levels, as "
            f"keras_trellis.TrellisLayer. Received: depth={depth!r}, trellis={layer!r}"
        )
    return {"depth": depth}


def auxiliary_levels(
    layer: Any,
    every: int | None,
    counted_from: str,
    weight: float,
) -> int | None:
    """Returns `auxiliary_every` of a model; `counted_from` is its `auxiliary_from`.

    Raises:
        ValueError: it does not fit the layer, or the layer has no outputs of inner levels.
    """
    if not weight:  # the loss is off, so that any distance fits
        if every is None:
            return None
        return arguments.positive("auxiliary_every", every)
    if every is None:
        raise ValueError(
            "`auxiliary_weight` needs `auxiliary_every`, which says which levels it is for. "
            f"Received: auxiliary_weight={weight!r}, auxiliary_every=None"
        )
    needed = ["auxiliary_every"]
    if counted_from != "bottom":
        needed.append("auxiliary_from")
    for argument in needed:
        if not takes(layer, argument):
            raise ValueError(
                "`auxiliary_weight` needs a layer that returns the outputs of inner levels, and "
                f"whose call takes `{argument}`, as that of keras_trellis.TrellisLayer. "
                f"Received: auxiliary_weight={weight!r}, trellis={layer!r}"
            )
    # A layer refuses what does not fit its levels when it is called.
    return arguments.positive("auxiliary_every", every)


def takes(layer: Any, argument: str) -> bool:
    """Returns whether a layer's call has an argument."""
    return argument in inspect.signature(layer.call).parameters
