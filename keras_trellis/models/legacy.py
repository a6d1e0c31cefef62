"""Configs of models that 0.1 saved, with the arguments of `TrellisLayer` among the model's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from keras_trellis.layers.inputs import with_used_dilations
from keras_trellis.layers.trellis import TrellisLayer

_MODEL_ARGUMENTS = {"name", "dtype", "trainable"}


def composed(model: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of a model, with a layer instead of the arguments of one.

    Args:
        model: the class of the model.
        config: its config; one of 0.1 has no layer.
    """
    if "trellis" in config:
        return dict(config)
    layer_arguments, model_arguments = split(model, config)
    if layer_arguments.get("output_units") is None:
        followed = "embedding_units" if "embedding_units" in config else "classes"
        layer_arguments["output_units"] = config[followed]
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
