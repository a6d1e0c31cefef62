"""The authors' state dicts and our models: which sizes they tell, and whose variable is which."""

from collections.abc import Mapping, Set

import ml_collections
import numpy as np

from keras_trellis import TrellisLM, convert
from trainers import language_modeling

TOLD = ("units", "kernel_size", "weight_normalization", "embedding_units", "output_units")
UNTOLD = ("depth", "dilation_rate")


def model_of(arrays: Mapping[str, np.ndarray], config: ml_collections.ConfigDict) -> TrellisLM:
    """Returns a model with a state dict's weights, for evaluation, and what a config adds to them.

    Args:
        arrays: name -> array.
        config: The run's config, for what shapes do not tell.

    Raises:
        ValueError: A name is missing or unknown, an array has the wrong shape, or the config is not
            that of a trellis network.
    """
    check_kind(config)
    untold = {name: config.model[name] for name in UNTOLD}
    if (head := config.model.get("head")) and head.kind == "adaptive":
        _check_split_softmax(arrays)
        untold["cutoffs"] = head.cutoffs
    return convert.language_model_from_torch(arrays, **untold)


def _check_split_softmax(arrays: Mapping[str, np.ndarray]) -> None:
    if missing := {"tail_bias", "tail_vectors"} - arrays.keys():
        raise ValueError(
            f"the file has no {', '.join(sorted(missing))}, which belong to the split softmax: the "
            "authors' script saves the network without its criterion; expected both in one file, "
            "`torch.save({**model.state_dict(), **criterion.state_dict()}, file)`"
        )


def check_kind(config: ml_collections.ConfigDict) -> None:
    """Raises ValueError where a config's model is no trellis network, as all the authors' are."""
    if config.model.kind != "trellis":
        raise ValueError(
            "`config.model.kind` must be 'trellis', as the authors' network is. "
            f"Received: config.model.kind={config.model.kind!r}"
        )


def with_told_sizes(
    config: ml_collections.ConfigDict, model: TrellisLM, given: Set[str]
) -> ml_collections.ConfigDict:
    """Returns a config with the sizes that shapes told.

    A model of other sizes than the preset's is not the preset's, which then cannot say either what
    shapes do not tell.

    Args:
        config: The run's config.
        model: From `model_of`.
        given: The fields that the command line gave, such as "model.depth".

    Raises:
        ValueError: A size given contradicts the shapes, or `UNTOLD` are not given where the preset
            is none of this model.
    """
    told = {name: model.get_config()[name] for name in TOLD}
    for name, value in told.items():
        if f"model.{name}" in given and config.model[name] != value:
            raise ValueError(
                f"`config.model.{name}` must be {value}, by the shapes in the file. Received: "
                f"config.model.{name}={config.model[name]}"
            )
    differing = [
        f"{name} {value} (preset: {config.model[name]})"
        for name, value in told.items()
        if config.model[name] != value
    ]
    missing = [f"--config.model.{name}" for name in UNTOLD if f"model.{name}" not in given]
    if differing and missing:
        raise ValueError(
            f"the file's sizes are not the preset {config.preset}'s: {', '.join(differing)}; give "
            f"{' and '.join(missing)}, which no shape tells"
        )
    config = config.copy_and_resolve_references()
    config.model.update(told)
    return config


def built(config: ml_collections.ConfigDict, source: TrellisLM) -> TrellisLM:
    """Returns a config's own model, with the weights of one from `model_of`.

    Raises:
        ValueError: The config's model has other weights.
    """
    model = language_modeling.build(config, source.vocabulary_size)
    mine, other = ([tuple(v.shape) for v in m.trainable_variables] for m in (model, source))
    if mine != other:
        raise ValueError(
            f"the config's model has weights of the shapes {mine}, and the file {other}; give the "
            "`--config.model` fields that it was trained with"
        )
    for variable, value in zip(model.trainable_variables, source.trainable_variables, strict=True):
        variable.assign(value)
    return model
