"""The arrays of a state dict of the released code, by name and by shape."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]

_NETWORK = re.compile(r"^((tnet|network\.0)\.module\.)?full_conv\.(\w+?)(_raw)?$")
_MIXTURE = re.compile(r"^(mixsoft|network\.1)\.")


def canonical(arrays: Arrays) -> Arrays:
    """Returns each tensor once, without the prefixes and suffixes of wrappers.

    Raises:
        ValueError: a tensor has two names and different values.
    """
    names: dict[str, str] = {}
    tensors: dict[str, np.ndarray] = {}
    for name, value in arrays.items():
        short = name.removeprefix("module.")
        short = _NETWORK.sub(r"\3", short)
        short = _MIXTURE.sub("", short)
        array = np.asarray(value)
        if short in tensors:
            require_equal(names[short], tensors[short], name, array)
        names[short], tensors[short] = name, array
    return tensors


def parted(
    arrays: Arrays,
    names: frozenset[str],
) -> tuple[Arrays, Arrays]:
    """Returns the arrays of these names and the other arrays.

    Raises:
        ValueError: one of the names is missing.
    """
    named: dict[str, np.ndarray] = {}
    others: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        chosen = named if name in names else others
        chosen[name] = array
    require_names(names, named)
    return named, others


def require_names(names: frozenset[str], arrays: Arrays) -> None:
    """Raises ValueError unless the arrays have exactly these names."""
    missing = sorted(names - arrays.keys())
    unknown = sorted(arrays.keys() - names)
    if missing or unknown:
        raise ValueError(
            f"`arrays` must have the names {sorted(names)}. "
            f"Received: arrays without {missing}, with the unknown {unknown}"
        )


def require_shape(
    name: str,
    array: np.ndarray,
    shape: Sequence[int | None],
) -> None:
    """Raises ValueError unless an array has this shape; None stands for any size."""
    fits = len(array.shape) == len(shape)
    for size, wanted in zip(array.shape, shape, strict=False):
        fits = fits and wanted in (None, size)
    if not fits:
        raise ValueError(
            f"`arrays[{name!r}]` must be of shape {tuple(shape)}. Received: {array.shape}"
        )


def require_equal(
    name: str,
    array: np.ndarray,
    other: str,
    value: np.ndarray,
) -> None:
    """Raises ValueError unless two arrays are equal."""
    if not np.array_equal(array, value):
        raise ValueError(
            f"`arrays[{name!r}]` and `arrays[{other!r}]` are one tensor and must be equal. "
            f"Received: shapes {array.shape} and {value.shape}"
        )
