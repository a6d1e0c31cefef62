"""The constructors of 0.1, which took the arguments of `TrellisLayer` among the model's own."""

from __future__ import annotations

import functools
import inspect
import numbers
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from keras_trellis import arguments
from keras_trellis.layer import TrellisLayer

__all__ = ["accepts_layer_arguments", "composed"]

_OF_EVERY_LAYER = {"name", "dtype", "trainable", "kwargs", "self"}
_OF_THE_LAYER = {*inspect.signature(TrellisLayer.__init__).parameters, "activity_regularizer"}
_FIXED = ("return_sequences", "return_state", "stateful", "go_backwards", "zero_output_for_mask")


def accepts_layer_arguments(size: str, of_model: set[str]) -> Callable:
    """Decorates a model's constructor so that it takes the arguments of 0.1 for one release.

    Args:
        size: the first argument: how many channels the layer's output has by default is this one,
            or `embedding_units` where the model has it.
        of_model: arguments of the model that the layer has, too, and does not get.
    """

    def decorate(constructor: Callable) -> Callable:
        @functools.wraps(constructor)
        def construct(self: Any, *args: Any, **kwargs: Any) -> None:
            given = [*args[1:2], kwargs.get("units")]
            if len(args) < 3 and not any(isinstance(each, numbers.Integral) for each in given):
                return constructor(self, *args, **kwargs)
            kwargs = {**dict(zip((size, "units", "depth"), args, strict=False)), **kwargs}
            _warn(type(self).__name__, kwargs[size], _of_layer(kwargs, size, of_model))
            return constructor(self, **composed(kwargs, size, of_model))

        return construct

    return decorate


def composed(config: Mapping[str, Any], size: str, of_model: set[str]) -> dict[str, Any]:
    """Returns the arguments of a model of 0.1 with a layer in the place of the layer's arguments.

    Args:
        config: the arguments, or the config of a model that 0.1 saved.
        size: see `accepts_layer_arguments`.
        of_model: see `accepts_layer_arguments`.

    Raises:
        ValueError: an argument of the layer has no meaning in a model.
    """
    for name in _FIXED:
        if name in config:
            raise ValueError(
                f"`{name}` is an argument of TrellisLayer that a model sets itself. "
                f"Received: {name}={config[name]!r}"
            )
    of_layer = _of_layer(config, size, of_model)
    shared = {name: config[name] for name in ("dtype", "seed") if name in config}
    layer = TrellisLayer(**{**of_layer, **shared, "name": "trellis"})
    own = {name: value for name, value in config.items() if name not in of_layer}
    return {**own, "trellis": layer}


def _of_layer(config: Mapping[str, Any], size: str, of_model: set[str]) -> dict[str, Any]:
    """Returns the arguments that belong to the layer alone."""
    names = _OF_THE_LAYER - _OF_EVERY_LAYER - of_model - {"seed"}
    of_layer = {name: value for name, value in config.items() if name in names}
    if of_layer.get("output_units") is None:
        followed = "embedding_units" if "embedding_units" in config else size
        of_layer["output_units"] = arguments.positive(followed, config[followed])
    return of_layer


def _warn(model: str, size: Any, of_layer: Mapping[str, Any]) -> None:
    given = ", ".join(f"{name}={value!r}" for name, value in of_layer.items())
    warnings.warn(
        f"{model} takes a layer in the place of the layer's arguments, which work for one release "
        f"more. Write {model}({size!r}, TrellisLayer({given}), ...)",
        DeprecationWarning,
        stacklevel=3,
    )
