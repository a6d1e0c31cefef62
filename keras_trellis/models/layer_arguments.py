"""What models do with the arguments of the `TrellisLayer` inside of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_trellis.layer import TrellisLayer

_OF_THE_MODEL = ("name", "trainable", "dtype")
_FIXED = ("return_sequences", "return_state", "stateful", "go_backwards", "zero_output_for_mask")


def refuse_fixed(model: str, given: Mapping[str, Any]) -> None:
    """Raises ValueError where a model is given an argument of the layer that has no meaning in it.

    Args:
        model: what to call the model, such as "a language model".
        given: the arguments for the layer.
    """
    for name in _FIXED:
        if name in given:
            raise ValueError(
                f"`{name}` is an argument of TrellisLayer that {model} does not take. "
                f"Received: {name}={given[name]!r}"
            )


def config_of(layer: TrellisLayer) -> dict[str, Any]:
    """Returns the layer's arguments that a model passes on."""
    config = layer.get_config()
    return {name: value for name, value in config.items() if name not in _OF_THE_MODEL + _FIXED}
