"""A file of weights that one of the authors' scripts saved, and what it becomes."""

from collections.abc import Callable, Set
from typing import Any, NamedTuple

import keras
from etils import epath
from ml_collections import ConfigDict

from trainers.authors import released
from trainers.authors.torch_files import read_state_dict

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
    config = released.with_sizes_from_shapes(weights.config, source, weights.given)
    return source, config
