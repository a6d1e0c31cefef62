"""Our models from the authors' state dicts, or from a file of one: sizes and weights."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import keras
import numpy as np
from etils import epath
from ml_collections import ConfigDict

from keras_trellis import TrellisClassifier, TrellisLM, convert
from trainers.authors.torch_files import read_state_dict
from trainers.tasks import schema

Arrays = Mapping[str, np.ndarray]  # by their names
IN_SHAPES = (
    "units",
    "kernel_size",
    "weight_normalization",
    "embedding_units",
    "output_units",
)
NOT_IN_SHAPES = ("depth", "dilation_rate")
_AUXILIARY = ("model.auxiliary_every", "model.auxiliary_weight")


def language_model(arrays: Arrays, config: ConfigDict) -> TrellisLM:
    """Returns a model with a state dict's weights, for evaluation.

    Args:
        arrays: name -> array.
        config: the run's config, for sizes that no shape tells.

    Raises:
        ValueError: a name is missing or unknown, an array has the wrong shape, or the config's
            model is not a trellis network.
    """
    check_kind(config)
    fields = {name: config.model[name] for name in NOT_IN_SHAPES}
    if config.model.head == "adaptive":
        _check_split_softmax(arrays)
        fields["cutoffs"] = config.model.adaptive.cutoffs
    return convert.language_model_from_torch(arrays, dtype=config.model.dtype, **fields)


def classifier(
    arrays: Arrays,
    config: ConfigDict,
    permutation: Sequence[int] | None,
) -> TrellisClassifier:
    """Returns a classifier with a state dict's weights.

    Args:
        arrays: name -> array.
        config: the run's config, for sizes that no shape tells.
        permutation: the order of the pixels, or None.

    Raises:
        ValueError: a name is missing or unknown, or an array has the wrong shape.
    """
    fields = {name: config.model[name] for name in NOT_IN_SHAPES}
    return convert.classifier_from_torch(
        arrays, **fields, permutation=permutation, dtype=config.model.dtype
    )


def _check_split_softmax(arrays: Arrays) -> None:
    names = {name.removeprefix("module.") for name in arrays}
    if missing := {"tail_bias", "tail_vectors"} - names:
        raise ValueError(
            f"the file has no {', '.join(sorted(missing))}, which belong to the split softmax: the "
            "authors' script saves the network without its criterion; expected both in one file, "
            "`torch.save({**model.state_dict(), **criterion.state_dict()}, file)`"
        )


def check_kind(config: ConfigDict) -> None:
    """Raises ValueError if a config's model is not a trellis network, as the authors' are."""
    if config.model.layer != "trellis":
        raise ValueError(
            "`config.model.layer` must be 'trellis', as the authors' network is. "
            f"Received: config.model.layer={config.model.layer!r}"
        )


def with_sizes_from_shapes(
    config: ConfigDict, model: TrellisLM | TrellisClassifier, given: Set[str]
) -> ConfigDict:
    """Returns a config with the sizes that shapes tell.

    If these differ from the preset's, the preset cannot give the other sizes either, and the
    command line must. A given depth may have no level for the preset's auxiliary losses, which are
    then off unless they are given.

    Args:
        config: the run's config.
        model: from `language_model` or `classifier`.
        given: the fields that the command line gave, such as "model.depth".

    Raises:
        ValueError: a given size contradicts the shapes; `NOT_IN_SHAPES` are not given and the
            preset has other sizes; or the values do not go together.
    """
    trellis: Any = model.trellis
    all_sizes = {**trellis.get_config(), **model.get_config()}
    # A size is None if the preset has none, as a classifier has no word vectors.
    sizes = {
        name: all_sizes[name] for name in IN_SHAPES if config.model[name] is not None
    }
    _check_sizes(config, sizes, given)
    config = config.copy_and_resolve_references()
    config.model.update(sizes)
    from_top = config.model.auxiliary_from == "top"
    beyond = config.model.auxiliary_every > config.model.depth - from_top
    if beyond and not given & set(_AUXILIARY):
        config.model.auxiliary_weight = 0.0
    schema.check(config)
    return config


def _check_sizes(config: ConfigDict, sizes: Mapping[str, Any], given: Set[str]) -> None:
    """Raises ValueError if sizes contradict given ones, or need ones that are not given."""
    differing = []
    for name, value in sizes.items():
        expected = config.model[name]
        if expected == value:
            continue
        if f"model.{name}" in given:
            raise ValueError(
                f"`config.model.{name}` must be {value}, by the shapes in the file. Received: "
                f"config.model.{name}={expected}"
            )
        differing.append(f"{name} {value} (preset: {expected})")
    missing = [
        f"--config.model.{name}"
        for name in NOT_IN_SHAPES
        if f"model.{name}" not in given
    ]
    if differing and missing:
        raise ValueError(
            f"the file's sizes are not the preset {config.preset}'s: {', '.join(differing)}; give "
            f"{' and '.join(missing)}, which no shape tells"
        )


def give_weights(model: keras.Model, source: keras.Model) -> None:
    """Copies the weights of a model from `language_model` or `classifier` to a config's model.

    Raises:
        ValueError: the config's model has other weights.
    """
    mine, other = (
        [tuple(v.shape) for v in m.trainable_variables] for m in (model, source)
    )
    if mine != other:
        raise ValueError(
            f"the config's model has weights of the shapes {mine}, and the file {other}; give the "
            "`--config.model` fields that it was trained with"
        )
    for variable, value in zip(
        model.trainable_variables, source.trainable_variables, strict=True
    ):
        variable.assign(value)


Imported = tuple[keras.Model, ConfigDict, Callable[[epath.Path], None], str]
"""What becomes a run: the config's model, with the file's weights; the config, with the sizes that
the file tells; what binds a run's folder to its data; and a count, such as "10,000 words"."""


class Weights(NamedTuple):
    """A file of weights, and what the command line says about it.

    Attributes:
        file: the file.
        config: the config of the run that it becomes.
        given: the fields that the command line gave, such as "model.depth".
        data_dir: the folder of the data.
        permutation: the file of the order in which pixels are read, if it is given.
        path: the run's folder.
    """

    file: epath.Path
    config: ConfigDict
    given: Set[str]
    data_dir: str | None
    permutation: str | None
    path: epath.Path


def read(weights: Weights, make: Callable[..., Any]) -> tuple[Any, ConfigDict]:
    """Returns the model that `make` makes of a file's arrays, and the config with its sizes."""
    arrays = read_state_dict(weights.file)
    try:
        source = make(arrays, weights.config)
    except ValueError as error:
        raise ValueError(
            f"{weights.file} has not the weights of the authors' network for "
            f"--task={weights.config.task}: {error}"
        ) from error
    config = with_sizes_from_shapes(weights.config, source, weights.given)
    return source, config
