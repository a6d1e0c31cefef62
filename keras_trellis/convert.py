"""Weights from elsewhere: the authors' PyTorch code, and Keras's RNN layers (Theorem 1).

The released code names its parameters `full_conv.weight1 [4 * hidden, input, k]` (on the input),
`full_conv.weight2 [4 * hidden, hidden, k]` (on the hidden state) and `full_conv.bias2 [4 *
hidden]`, the gates' rows in the order input, output, candidate, forget. A weight under weight
normalisation comes as `_g` and `_v`, one under DropConnect has the suffix `_raw`. A language
model's state dict says `tnet.module.` before these and repeats them under `network.0.module.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_trellis.language_model import TrellisLM
from keras_trellis.layer import TrellisLayer
from keras_trellis.theorem1 import layer_from_rnn

__all__ = ["language_model_from_torch", "layer_from_rnn", "layer_from_torch"]

# Blocks i, o, g, f there; i, f, c, o in Keras.
_GATES = [0, 3, 2, 1]
_PLAIN = frozenset({"weight1", "weight2", "bias2"})
_NORMALIZED = frozenset({"weight1_g", "weight1_v", "weight2_g", "weight2_v", "bias2"})
_LANGUAGE_MODEL = frozenset({"encoder.weight", "decoder.weight", "decoder.bias"})


def layer_from_torch(
    arrays: Mapping[str, np.ndarray],
    *,
    depth: int,
    dilation_rate: int | Sequence[int],
    output_units: int,
    dtype: Any = None,
) -> TrellisLayer:
    """Builds a layer from the parameters of a `TrellisNet` of the released code.

    Sizes, and whether there is weight normalisation, are read off the arrays; what follows says
    what they do not tell.

    Args:
        arrays: name -> array, as in the state dict.
        depth: the number of levels (`nlevels`).
        dilation_rate: the dilations (`dilation`).
        output_units: the number of output channels (`nout`).
        dtype: the layer's dtype or dtype policy; None for Keras's default.

    Returns:
        A built layer with `return_sequences=True`, as the released network returns them.

    Raises:
        ValueError: a name is missing or unknown, an array has the wrong shape, or a tensor comes
            under two names with different values.
    """
    weights = _layer_weights(_canonical(arrays))
    layer = TrellisLayer(
        **_sizes(weights),
        depth=depth,
        dilation_rate=dilation_rate,
        output_units=output_units,
        return_sequences=True,
        dtype=dtype,
    )
    layer.build((None, None, weights["kernel"].shape[1]))
    _assign(layer, weights)
    return layer


def language_model_from_torch(
    arrays: Mapping[str, np.ndarray],
    *,
    depth: int,
    dilation_rate: int | Sequence[int],
    auxiliary_every: int | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> TrellisLM:
    """Builds a language model with a tied softmax from a state dict of the released code.

    Trained on, it learns as it would there, `untrained_input_id` included: the released embedding
    passes torch `padding_idx=-1`, which is the last word of the vocabulary.

    Args:
        arrays: name -> array, as in the state dict.
        depth: the number of levels (`nlevels`).
        dilation_rate: the dilations (`dilation`).
        auxiliary_every: every how many levels there is an auxiliary loss (`aux_frequency`).
        dtype: the model's dtype or dtype policy; None for Keras's default.
        **kwargs: what else `TrellisLM` takes and a state dict does not tell: dropout rates, the
            weights of the loss terms.

    Returns:
        A built model.

    Raises:
        ValueError: as for `layer_from_torch`.
    """
    arrays = _canonical(arrays)
    model_arrays = {name: array for name, array in arrays.items() if name in _LANGUAGE_MODEL}
    layer_arrays = {name: array for name, array in arrays.items() if name not in _LANGUAGE_MODEL}
    _require(_LANGUAGE_MODEL, model_arrays)
    weights = _layer_weights(layer_arrays)
    table, bias = model_arrays["encoder.weight"], model_arrays["decoder.bias"]
    _require_shape("encoder.weight", table, (None, weights["kernel"].shape[1]))
    _require_shape("decoder.bias", bias, table.shape[:1])
    _require_equal("encoder.weight", table, "decoder.weight", model_arrays["decoder.weight"])
    kwargs.setdefault("untrained_input_id", table.shape[0] - 1)
    model = TrellisLM(
        table.shape[0],
        **_sizes(weights),
        depth=depth,
        embedding_units=table.shape[1],
        dilation_rate=dilation_rate,
        auxiliary_every=auxiliary_every,
        dtype=dtype,
        **kwargs,
    )
    _assign(model.trellis, weights)
    model.embedding.embeddings.assign(table)
    model.head.bias.assign(bias)
    return model


def _canonical(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One entry a tensor: without the wrappers' prefixes and suffixes, duplicates taken out."""
    found: dict[str, tuple[str, np.ndarray]] = {}
    for name, array in arrays.items():
        short = re.sub(r"^((tnet|network\.0)\.module\.)?full_conv\.(\w+?)(_raw)?$", r"\3", name)
        array = np.asarray(array)
        if short in found:
            _require_equal(*found[short], name, array)
        found[short] = name, array
    return {short: array for short, (_, array) in found.items()}


def _layer_weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The layer's variables, by their Keras names."""
    normalized = not _PLAIN <= arrays.keys() and "weight1_g" in arrays
    _require(_NORMALIZED if normalized else _PLAIN, arrays)
    suffix = "_v" if normalized else ""
    recurrent = arrays["weight2" + suffix]
    _require_shape("weight2" + suffix, recurrent, (None, None, None))
    units, taps = recurrent.shape[1:]
    _require_shape("weight2" + suffix, recurrent, (4 * units, units, taps))
    _require_shape("weight1" + suffix, arrays["weight1" + suffix], (4 * units, None, taps))
    _require_shape("bias2", arrays["bias2"], (4 * units,))
    weights = {
        "kernel": _kernel(arrays["weight1" + suffix]),
        "recurrent_kernel": _kernel(recurrent),
        "bias": _blocks(arrays["bias2"]),
    }
    if normalized:
        for name in ("weight1_g", "weight2_g"):
            _require_shape(name, arrays[name], (4 * units, 1, 1))
        weights["kernel_scale"] = _blocks(arrays["weight1_g"][:, 0, 0])
        weights["recurrent_scale"] = _blocks(arrays["weight2_g"][:, 0, 0])
    return weights


def _sizes(weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    taps, units, _ = weights["recurrent_kernel"].shape
    return {
        "units": units,
        "kernel_size": taps,
        "weight_normalization": "kernel_scale" in weights,
    }


def _assign(layer: TrellisLayer, weights: Mapping[str, np.ndarray]) -> None:
    for name, value in weights.items():
        getattr(layer, name).assign(value)


def _kernel(weight: np.ndarray) -> np.ndarray:
    """`[4 * hidden, input, k]` -> `[k, input, 4 * hidden]`."""
    return _blocks(np.transpose(weight, (2, 1, 0)))


def _blocks(values: np.ndarray) -> np.ndarray:
    """Reorders the gates' blocks on the last axis."""
    blocks = np.split(values, 4, axis=-1)
    return np.concatenate([blocks[gate] for gate in _GATES], axis=-1)


def _require(names: frozenset[str], arrays: Mapping[str, np.ndarray]) -> None:
    missing, unknown = sorted(names - arrays.keys()), sorted(arrays.keys() - names)
    if missing or unknown:
        raise ValueError(
            f"`arrays` must have the names {sorted(names)}. "
            f"Received: arrays without {missing}, with the unknown {unknown}"
        )


def _require_shape(name: str, array: np.ndarray, shape: Sequence[int | None]) -> None:
    if len(array.shape) != len(shape) or any(
        wanted not in (None, size) for size, wanted in zip(array.shape, shape, strict=True)
    ):
        raise ValueError(
            f"`arrays[{name!r}]` must be of shape {tuple(shape)}. Received: {array.shape}"
        )


def _require_equal(name: str, array: np.ndarray, other: str, value: np.ndarray) -> None:
    if array.shape != value.shape or not np.array_equal(array, value):
        raise ValueError(
            f"`arrays[{name!r}]` and `arrays[{other!r}]` are one tensor and must be equal. "
            f"Received: shapes {array.shape} and {value.shape}"
        )
