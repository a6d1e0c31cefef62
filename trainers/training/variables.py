"""The variables of a model and of its optimizer, by names that are the same in every process."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

Named = Mapping[str, keras.Variable]


def model_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns a model's variables by their paths within it, such as "model/trellis/kernel"."""
    paths = _paths(model.variables, model.name)
    return {f"model/{path}": v for path, v in zip(paths, model.variables, strict=True)}


def optimizer_variables(
    optimizer: Any, model: keras.Model
) -> dict[str, keras.Variable]:
    """Returns an optimizer's variables, such as "optimizer/trellis/kernel/mean".

    Args:
        optimizer: one of `trainers.optimizers`, built for the model's trainable variables.
        model: the model.
    """
    paths = {
        id(v): name.removeprefix("model/") for name, v in model_variables(model).items()
    }
    names = {id(v): v.name for v in optimizer.variables}
    for slot, own_variables in optimizer.slot_variables.items():
        for trained, own in zip(model.trainable_variables, own_variables, strict=True):
            names[id(own)] = f"{paths[id(trained)]}/{slot}"
    # The others, such as the number of iterations, belong to no variable of the model.
    return {f"optimizer/{names[id(v)]}": v for v in optimizer.variables}


def _paths(variables: Sequence[keras.Variable], root: str) -> list[str]:
    """Returns the variables' paths below `root`, numbered as if the model were alone.

    Keras numbers the layers of a kind throughout the process. The `lstm_2` of a second model is
    `lstm` here.
    """
    taken: set[str] = set()
    layers: dict[str, str] = {}  # Keras's path to ours
    paths = []
    for variable in variables:
        *above, name = variable.path.removeprefix(f"{root}/").split("/")
        theirs = ours = ""
        for layer in above:
            theirs = f"{theirs}{layer}/"
            if theirs not in layers:
                layers[theirs] = _untaken(ours + layer, taken)
            ours = f"{layers[theirs]}/"
        paths.append(_untaken(ours + name, taken))
    return paths


def _untaken(path: str, taken: set[str]) -> str:
    """Returns the path with the least number, or none, that is free; takes it."""
    plain = re.sub(r"_\d+$", "", path)
    number, free = 0, plain
    while free in taken:
        number += 1
        free = f"{plain}_{number}"
    taken.add(free)
    return free


def arrays(named: Named) -> dict[str, np.ndarray]:
    """Returns the values of variables."""
    return {name: variable.numpy() for name, variable in named.items()}


def assign(named: Named, arrays: Mapping[str, np.ndarray]) -> None:
    """Sets variables to the values of a checkpoint, which may also hold other arrays.

    Args:
        named: from `model_variables` or `optimizer_variables`.
        arrays: from `arrays`, or numbered by 0.1: `model/0`, `model/1`, ...

    Raises:
        ValueError: the arrays belong to other variables; nothing has been set.
    """
    prefix = next(iter(named)).partition("/")[0]
    own = {
        name: array for name, array in arrays.items() if name.startswith(f"{prefix}/")
    }
    if f"{prefix}/0" in own:
        own = _numbered(named, own, prefix)
    # All of them before the first is set: a model is never half another one's.
    _check(named, own)
    for name, variable in named.items():
        variable.assign(as_dtype(own[name], variable.dtype))


def _numbered(named: Named, arrays: Named, prefix: str) -> dict[str, np.ndarray]:
    """Returns arrays that 0.1 numbered in the order of the variables, by the variables' names.

    An LSTM of 0.1 begins with a generator of masks, which it has without dropout too.
    """
    first = arrays[f"{prefix}/0"]
    if len(arrays) == len(named) + 1 and first.dtype.kind in "iu":
        arrays = {
            f"{prefix}/{n}": arrays[f"{prefix}/{n + 1}"] for n in range(len(named))
        }
    if len(arrays) != len(named):
        raise ValueError(
            f"it has {len(arrays)} arrays under `{prefix}`, and there are {len(named)} variables"
        )
    return {name: arrays[f"{prefix}/{number}"] for number, name in enumerate(named)}


def _check(named: Named, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError if arrays have other names or shapes than variables."""
    lacking = ", ".join(name for name in named if name not in arrays)
    unknown = ", ".join(name for name in arrays if name not in named)
    problems = []
    if lacking:
        problems.append(f"lacks {lacking}")
    if unknown:
        problems.append(f"has the unknown {unknown}")
    if problems:
        raise ValueError(f"it {' and '.join(problems)}")
    for name, variable in named.items():
        if tuple(arrays[name].shape) != tuple(variable.shape):
            raise ValueError(
                f"{name} has shape {arrays[name].shape} there; expected {tuple(variable.shape)}"
            )


def as_dtype(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Restores an array's dtype: NumPy's format drops the name of bfloat16."""
    if array.dtype.kind != "V":
        return array
    # Of one number: Keras on TensorFlow cannot turn a scalar of bfloat16 to NumPy.
    like = keras.ops.convert_to_numpy(keras.ops.zeros([1], dtype))
    return array.view(like.dtype)


def parameters(model: keras.Model) -> int:
    """Returns the number of trainable parameters."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)
