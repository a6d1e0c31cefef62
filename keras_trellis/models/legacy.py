"""The constructors of 0.1, which took the arguments of `TrellisLayer` among the model's own."""

from __future__ import annotations

import functools
import inspect
import numbers
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from keras_trellis import arguments
from keras_trellis.layers.inputs import with_used_dilations
from keras_trellis.layers.recurrent import MEANINGLESS
from keras_trellis.layers.trellis import TrellisLayer

_MODEL_ARGUMENTS = {"name", "dtype", "trainable"}
_FIXED = ("return_sequences", "return_state", *MEANINGLESS)


def accepts_layer_arguments(constructor: Callable) -> Callable:
    """Decorates a model's constructor so that it takes the arguments of 0.1 for one release.

    These are the constructor's first argument, `units` and `depth`, and those of the layer by name.
    """
    size = list(inspect.signature(constructor).parameters)[1]

    @functools.wraps(constructor)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        units = [*args[1:2], kwargs.get("units")]
        is_old = len(args) >= 3 or any(
            isinstance(value, numbers.Integral) for value in units
        )
        if is_old:
            named = zip((size, "units", "depth"), args, strict=False)
            args = ()
            kwargs = composed(type(self), {**dict(named), **kwargs})
            _warn(type(self).__name__, kwargs[size], kwargs["trellis"])
        constructor(self, *args, **kwargs)

    return construct


def composed(model: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a model, with a layer in the place of those of a layer in 0.1.

    Args:
        model: the class of the model.
        config: the arguments, or the config of a model that 0.1 saved.

    Raises:
        ValueError: an argument of the layer is out of range, or has no meaning in a model.
    """
    if "trellis" in config:
        return dict(config)
    layer_arguments, model_arguments = split(model, config)
    for name in _FIXED:
        if name in layer_arguments:
            raise ValueError(
                f"`{name}` is an argument of TrellisLayer that a model sets itself. "
                f"Received: {name}={config[name]!r}"
            )
    if layer_arguments.get("output_units") is None:
        followed = "embedding_units" if "embedding_units" in config else "classes"
        layer_arguments["output_units"] = arguments.positive(followed, config[followed])
    used = with_used_dilations(layer_arguments)
    layer = TrellisLayer(**used, dtype=config.get("dtype"), name="trellis")
    return {**model_arguments, "trellis": layer}


def split(
    model: type, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments of a model's layer and those of the model; both get the seed."""
    own = _MODEL_ARGUMENTS | inspect.signature(model.__init__).parameters.keys()  # type: ignore
    layer_arguments = {}
    model_arguments = {}
    for name, value in given.items():
        if name in own:
            model_arguments[name] = value
        if name not in own or name == "seed":
            layer_arguments[name] = value
    return layer_arguments, model_arguments


def _warn(model: str, size: Any, layer: TrellisLayer) -> None:
    defaults = TrellisLayer(1, 1).get_config()
    given = [f"{layer.units}", f"depth={layer.depth}"]
    for name, value in layer.get_config().items():
        if name not in ("name", "units", "depth", "dtype") and value != defaults[name]:
            given.append(f"{name}={value!r}")
    warnings.warn(
        f"{model} takes a layer in the place of the layer's arguments, which work for one release "
        f"more. Write {model}({size!r}, TrellisLayer({', '.join(given)}), ...)",
        DeprecationWarning,
        stacklevel=3,
    )
