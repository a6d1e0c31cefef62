"""Weights from elsewhere: the authors' PyTorch code, and Keras's RNN layers (Theorem 1).

The released code names its parameters `full_conv.weight1 [4 * hidden, input, k]` (on the input),
`full_conv.weight2 [4 * hidden, hidden, k]` (on the hidden state) and `full_conv.bias2 [4 *
hidden]`, the gates' rows in the order input, output, candidate, forget. A weight under weight
normalisation comes as `_g` and `_v`, one under DropConnect has the suffix `_raw`. A language
model's state dict says `tnet.module.` before these and repeats them under `network.0.module.`. A
mixture of softmaxes comes as `mixsoft.` and again as `network.1.`. The parameters of a split
softmax, `tail_vectors` and `tail_bias`, are those of the released script's criterion, which has a
state dict of its own. A model of pixel sequences has the network as `network.0.module.` alone, and
`linear.weight [classes, output]`, `linear.bias`. What was saved within a `DataParallel` says
`module.` before every name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_trellis.convert.theorem1 import layer_from_rnn
from keras_trellis.heads import AdaptiveSoftmax, Head, MixtureOfSoftmaxes
from keras_trellis.layer import TrellisLayer
from keras_trellis.models.classifier import TrellisClassifier
from keras_trellis.models.language_model import TrellisLM

__all__ = [
    "classifier_from_torch",
    "language_model_from_torch",
    "layer_from_rnn",
    "layer_from_torch",
]

# Blocks i, o, g, f there; i, f, c, o in Keras.
_GATES = [0, 3, 2, 1]
_PLAIN = frozenset({"weight1", "weight2", "bias2"})
_NORMALIZED = frozenset({"weight1_g", "weight1_v", "weight2_g", "weight2_v", "bias2"})
_LANGUAGE_MODEL = frozenset({"encoder.weight", "decoder.weight", "decoder.bias"})
_CLASSIFIER = frozenset({"linear.weight", "linear.bias"})
_MIXTURE = frozenset({"prior.weight", "prior.bias", "latent.weight", "latent.bias"})
_SPLIT = frozenset({"tail_vectors", "tail_bias"})
_EPSILON = 1e-8  # what the released code adds to a mixture's probabilities


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
    cutoffs: Sequence[int] | None = None,
    latent_dropout: float = 0.0,
    dtype: Any = None,
    **kwargs: Any,
) -> TrellisLM:
    """Builds a language model from a state dict of the released code.

    The names tell the head: a tied softmax, a mixture of softmaxes (with the `epsilon` of the
    released code, 1e-8), or a split softmax, for which the state dict of the released script's
    criterion is to be put in. Trained on, the model learns as it would there, `untrained_input_id`
    included: the released embedding passes torch `padding_idx=-1`, which is the last word of the
    vocabulary.

    Args:
        arrays: name -> array, as in the state dict.
        depth: the number of levels (`nlevels`).
        dilation_rate: the dilations (`dilation`).
        auxiliary_every: every how many levels there is an auxiliary loss (`aux_frequency`).
        cutoffs: where a split softmax is split (`splits`); None for the other heads.
        latent_dropout: of a mixture of softmaxes (`dropoutl`); 0 for the other heads.
        dtype: the model's dtype or dtype policy; None for Keras's default.
        **kwargs: what else `TrellisLM` takes and a state dict does not tell: dropout rates, the
            weights of the loss terms.

    Returns:
        A built model.

    Raises:
        ValueError: as for `layer_from_torch`, or an argument does not belong to the head.
    """
    canonical, names = _canonical(arrays), _LANGUAGE_MODEL
    for of_head in (_MIXTURE, _SPLIT):
        names |= of_head if of_head & canonical.keys() else frozenset()
    model_arrays, layer_arrays = _parted(canonical, names)
    weights = _layer_weights(layer_arrays)
    table, bias = model_arrays["encoder.weight"], model_arrays["decoder.bias"]
    _require_shape("encoder.weight", table, (None, weights["kernel"].shape[1]))
    _require_shape("decoder.bias", bias, table.shape[:1])
    _require_equal("encoder.weight", table, "decoder.weight", model_arrays["decoder.weight"])
    head_weights = _head_weights(model_arrays, cutoffs)
    head = _head(head_weights, cutoffs, latent_dropout, seed=kwargs.get("seed"), dtype=dtype)
    kwargs.setdefault("untrained_input_id", table.shape[0] - 1)
    model = TrellisLM(
        table.shape[0],
        **_sizes(weights),
        depth=depth,
        embedding_units=table.shape[1],
        output_units=len(head_weights.get("prior_kernel", table.T)),
        head=head or "tied",
        dilation_rate=dilation_rate,
        auxiliary_every=auxiliary_every,
        dtype=dtype,
        **kwargs,
    )
    _assign(model.trellis, weights)
    model.embedding.embeddings.assign(table)
    _assign(model.head, {"bias": bias, **head_weights})
    return model


def classifier_from_torch(
    arrays: Mapping[str, np.ndarray],
    *,
    depth: int,
    dilation_rate: int | Sequence[int],
    permutation: Sequence[int] | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> TrellisClassifier:
    """Builds a classifier from a state dict of the released code for pixel sequences.

    Args:
        arrays: name -> array, as in the state dict.
        depth: the number of levels (`nlevels`).
        dilation_rate: the dilations (`dilation`).
        permutation: the order in which the steps are read (`permute` of the released script, which
            draws it anew in each process and does not save it); None: as they come.
        dtype: the model's dtype or dtype policy; None for Keras's default.
        **kwargs: what else `TrellisClassifier` takes and a state dict does not tell: dropout rates.

    Returns:
        A built model.

    Raises:
        ValueError: as for `layer_from_torch`.
    """
    model_arrays, layer_arrays = _parted(_canonical(arrays), _CLASSIFIER)
    weights = _layer_weights(layer_arrays)
    matrix, bias = model_arrays["linear.weight"], model_arrays["linear.bias"]
    _require_shape("linear.weight", matrix, (None, None))
    classes, features = matrix.shape
    _require_shape("linear.bias", bias, (classes,))
    model = TrellisClassifier(
        classes,
        **_sizes(weights),
        depth=depth,
        output_units=features,
        dilation_rate=dilation_rate,
        permutation=permutation,
        dtype=dtype,
        **kwargs,
    )
    model.build((None, None, weights["kernel"].shape[1]))
    _assign(model.trellis, weights)
    _assign(model.dense, {"kernel": matrix.T, "bias": bias})
    return model


def _parted(
    arrays: Mapping[str, np.ndarray], names: frozenset[str]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays of these names, all of them there, and the others."""
    model = {name: array for name, array in arrays.items() if name in names}
    _require(names, model)
    return model, {name: array for name, array in arrays.items() if name not in names}


def _head_weights(
    arrays: Mapping[str, np.ndarray], cutoffs: Sequence[int] | None
) -> dict[str, np.ndarray]:
    """The head's variables but its bias, by their Keras names."""
    units = arrays["encoder.weight"].shape[1]
    if "tail_vectors" in arrays:
        if cutoffs is None:
            raise ValueError(
                "`cutoffs` must say where the split softmax of `arrays` is split (the released "
                "script's `splits`). Received: cutoffs=None"
            )
        _require_shape("tail_vectors", arrays["tail_vectors"], (len(cutoffs), units))
        _require_shape("tail_bias", arrays["tail_bias"], (len(cutoffs),))
        # There the first of the rare clusters has the last of the tokens.
        return {name: arrays[name][::-1] for name in _SPLIT}
    if "prior.weight" not in arrays:
        return {}
    _require_shape("prior.weight", arrays["prior.weight"], (None, None))
    experts, features = arrays["prior.weight"].shape
    _require_shape("prior.bias", arrays["prior.bias"], (experts,))
    _require_shape("latent.weight", arrays["latent.weight"], (experts * units, features))
    _require_shape("latent.bias", arrays["latent.bias"], (experts * units,))
    return {
        f"{part}_{name}": arrays[f"{part}.{torch_name}"].T
        for part in ("prior", "latent")
        for name, torch_name in (("kernel", "weight"), ("bias", "bias"))
    }


def _head(
    weights: Mapping[str, np.ndarray],
    cutoffs: Sequence[int] | None,
    latent_dropout: float,
    *,
    seed: int | None,
    dtype: Any,
) -> Head | None:
    """The head of these variables; None for the tied softmax."""
    if cutoffs is not None and "tail_vectors" not in weights:
        raise ValueError(
            f"`cutoffs` belongs to a split softmax, of which `arrays` has no {sorted(_SPLIT)}. "
            f"Received: cutoffs={cutoffs!r}"
        )
    if latent_dropout and "prior_bias" not in weights:
        raise ValueError(
            "`latent_dropout` belongs to a mixture of softmaxes, of which `arrays` has no "
            f"{sorted(_MIXTURE)}. Received: latent_dropout={latent_dropout!r}"
        )
    if "prior_bias" in weights:
        return MixtureOfSoftmaxes(
            len(weights["prior_bias"]),
            latent_dropout=latent_dropout,
            epsilon=_EPSILON,
            seed=seed,
            dtype=dtype,
        )
    return None if cutoffs is None else AdaptiveSoftmax(cutoffs, dtype=dtype)


def _canonical(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One entry a tensor: without the wrappers' prefixes and suffixes, duplicates taken out."""
    found: dict[str, tuple[str, np.ndarray]] = {}
    for name, array in arrays.items():
        short = name.removeprefix("module.")
        short = re.sub(r"^((tnet|network\.0)\.module\.)?full_conv\.(\w+?)(_raw)?$", r"\3", short)
        short = re.sub(r"^(mixsoft|network\.1)\.", "", short)
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


def _assign(layer: Any, weights: Mapping[str, np.ndarray]) -> None:
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
