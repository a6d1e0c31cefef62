"""What a streamed model receives: checks of chunks, masks and caches, and their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import checks
from keras_trellis.core.convolution import time_steps
from keras_trellis.layers.inputs import fitting_mask
from keras_trellis.models.streamed.calls import is_graph
from keras_trellis.models.streamed.plan import flat_inputs
from keras_trellis.types import Number, Tensor

Specs = Mapping[str, keras.KerasTensor]
"""The tensors of the cache of one row, by name."""


def check_model(model: Any) -> None:
    """Refuses what is no functional or Sequential model, or not built."""
    if not is_graph(model):
        raise ValueError(
            "`model` must be a functional or Sequential model. A layer, a TrellisClassifier or "
            "another subclass goes into one: `keras.Model(inputs, layer(inputs))`. "
            f"Received: model={model!r}"
        )
    if not model.built or not getattr(model, "inputs", None):
        raise ValueError(
            "`model` must be built: begin it with a `keras.Input`, or call it once. "
            f"Received: model={model!r}"
        )
    for tensor in model.inputs:
        if len(tensor.shape) < 2:
            raise ValueError(
                "`model` must have inputs of shape [B, T, ...] alone. "
                f"Received: the input {tensor.name!r} of shape {tensor.shape}"
            )


def chunks(model: keras.Model, chunk: Any, stride: int) -> list[Tensor]:
    """Returns the chunk of each input, in the dtype of the input."""
    try:
        values = flat_inputs(model, chunk)
    except KeyError as error:
        raise ValueError(
            f"`chunk` must have the input {error.args[0]!r}. Received: {[*chunk]}"
        ) from None
    if len(values) != len(model.inputs):
        names = [tensor.name for tensor in model.inputs]
        raise ValueError(
            f"`chunk` must be one tensor for each of the inputs {names}. "
            f"Received: {len(values)} tensors"
        )
    tensors: list[Tensor] = []
    sizes: Sequence[int | None] = (None, None)
    for spec, value in zip(model.inputs, values, strict=True):
        name = "chunk" if len(values) == 1 else f"chunk[{spec.name!r}]"
        tensors.append(_chunk(name, value, spec, sizes))
        # The first input says B and n for all others.
        sizes = tuple(tensors[0].shape[:2])
    tensors[0] = _whole_strides(tensors[0], stride)
    return tensors


def _chunk(
    name: str, value: Any, spec: keras.KerasTensor, sizes: Sequence[int | None]
) -> Tensor:
    if backend.is_ragged(value):
        raise ValueError(
            f"`{name}` must be padded, with a `mask` of the steps that there are. "
            "Received: a RaggedTensor"
        )
    if "int" in spec.dtype:
        tensor = ops.cast(checks.integers(name, value), spec.dtype)
    else:
        tensor = checks.real(name, value, spec.dtype)
    wanted = (*sizes, *spec.shape[2:])
    return checks.with_known_shape(name, tensor, wanted, f"of shape {_shape(wanted)}")


def _shape(wanted: Sequence[int | None]) -> str:
    names = ["B", "n", *["?"] * len(wanted)]
    sizes = [name if size is None else str(size) for name, size in zip(names, wanted)]  # noqa: B905
    return f"[{', '.join(sizes)}]"


def _whole_strides(chunk: Tensor, stride: int) -> Tensor:
    """Returns a chunk that has at least one step, and only whole strides."""
    steps = time_steps(chunk)
    expected = "have at least one time step"
    if stride > 1:
        expected = f"have a multiple of {stride} time steps, the stride of the model"
    message = f"`chunk` must {expected}. Received: chunk with this number of steps:"
    if not isinstance(steps, int):
        holds = ops.logical_and(steps > 0, ops.equal(steps % stride, 0))
        return backend.verified(chunk, holds, message, steps)
    if not steps or steps % stride:
        raise ValueError(f"{message} {steps}")
    return chunk


def masks(model: keras.Model, mask: Any, chunk: Tensor) -> list[Tensor | None]:
    """Returns the mask of each input, bool `[B, n]` or None."""
    if mask is None:
        return [None] * len(model.inputs)
    given = flat_inputs(model, mask)
    if len(given) != len(model.inputs):
        raise ValueError(
            f"`mask` must be one mask, or None, for each of {len(model.inputs)} inputs. "
            f"Received: {len(given)} masks"
        )
    shape = tuple(chunk.shape[:2])
    return [
        None if one is None else fitting_mask(ops.convert_to_tensor(one), shape)
        for one in given
    ]


def cached(cache: Any, specs: Specs, rows: int | None) -> dict[str, Tensor]:
    """Returns the tensors of a cache, in their dtypes.

    Args:
        cache: tensors or arrays by name.
        specs: what they must be.
        rows: B, if it is known.
    """
    if not isinstance(cache, Mapping) or cache.keys() != specs.keys():
        received = sorted(cache) if isinstance(cache, Mapping) else type(cache).__name__
        raise ValueError(
            "`cache` must be what `get_initial_cache` or `stream` of this model returns, with the "
            f"names {sorted(specs)}. Received: {received}"
        )
    return {name: _part(name, cache[name], spec, rows) for name, spec in specs.items()}


def _part(name: str, value: Any, spec: keras.KerasTensor, rows: int | None) -> Tensor:
    if getattr(value, "dtype", None) == np.dtype("V2"):
        # What NumPy's files make of bfloat16.
        value = value.view(keras.backend.standardize_dtype(spec.dtype))
    name = f"cache[{name!r}]"
    tensor = checks.real(name, value, spec.dtype)
    wanted = (rows, *spec.shape[1:])
    return checks.with_known_shape(name, tensor, wanted, f"of shape {_shape(wanted)}")


def new_rows(rows: Any, count: Number | None) -> Tensor:
    """Returns which rows begin anew, bool `[B]`."""
    tensor = backend.to_tensor(rows)
    if keras.backend.standardize_dtype(tensor.dtype) != "bool":
        raise ValueError(
            "`rows` must be bool [B], true where a sequence begins anew. "
            f"Received: rows={rows!r}"
        )
    return checks.with_known_shape("rows", tensor, (count,), "of shape [B]")
