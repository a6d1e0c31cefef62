"""Layers and models with weights of the authors' PyTorch code.

The released code names its parameters `full_conv.weight1 [4 * hidden, input, k]` (on the input),
`full_conv.weight2 [4 * hidden, hidden, k]` (on the hidden state) and `full_conv.bias2 [4 *
hidden]`, with the rows of the gate in the order input, output, candidate, forget. A weight under
weight normalisation has two arrays, `_g` and `_v`; one under DropConnect has the suffix `_raw`.

A language model's state dict has `tnet.module.` before these names and repeats them under
`network.0.module.`. A mixture of softmaxes has the prefix `mixsoft.`, and again `network.1.`. The
parameters of a split softmax, `tail_vectors` and `tail_bias`, are in the state dict of the released
script's criterion. A model of pixel sequences has the network as `network.0.module.` alone, and
`linear.weight [classes, output]`, `linear.bias`. What was saved within a `DataParallel` has
`module.` before every name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_trellis.heads import AdaptiveSoftmax, Head, MixtureOfSoftmaxes
from keras_trellis.layers.trellis import TrellisLayer
from keras_trellis.models import legacy
from keras_trellis.models.classifier import TrellisClassifier
from keras_trellis.models.language_model import TrellisLM

Arrays = Mapping[str, np.ndarray]

_NETWORK = re.compile(r"^((tnet|network\.0)\.module\.)?full_conv\.(\w+?)(_raw)?$")
_MIXTURE_PREFIX = re.compile(r"^(mixsoft|network\.1)\.")

_GATES = [0, 3, 2, 1]  # blocks i, o, g, f there; i, f, c, o in Keras
_PLAIN = frozenset({"weight1", "weight2", "bias2"})
_NORMALIZED = frozenset({"weight1_g", "weight1_v", "weight2_g", "weight2_v", "bias2"})
_LANGUAGE_MODEL = frozenset({"encoder.weight", "decoder.weight", "decoder.bias"})
_CLASSIFIER = frozenset({"linear.weight", "linear.bias"})
_MIXTURE = frozenset({"prior.weight", "prior.bias", "latent.weight", "latent.bias"})
_SPLIT = frozenset({"tail_vectors", "tail_bias"})
_EPSILON = 1e-8  # what the released code adds to the probabilities of a mixture


def layer_from_torch(
    arrays: Arrays,
    *,
    depth: int,
    dilation_rate: int | Sequence[int],
    output_units: int,
    dtype: Any = None,
) -> TrellisLayer:
    """Builds a layer from the parameters of a `TrellisNet` of the released code.

    The arrays tell the sizes, and whether there is weight normalisation.

    Args:
        arrays: name -> array, as in the state dict.
        depth: the number of levels (`nlevels`).
        dilation_rate: the dilations (`dilation`).
        output_units: the number of output channels (`nout`).
        dtype: the layer's dtype or dtype policy; None for Keras's default.

    Returns:
        a built layer with `return_sequences=True`, as the released network returns them.

    Raises:
        ValueError: a name is missing or unknown, an array has the wrong shape, or a tensor has two
            names and different values.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import convert
        >>> arrays = {
        ...     "full_conv.weight1": np.ones([32, 3, 2], "float32"),  # 8 channels, 3 inputs
        ...     "full_conv.weight2": np.ones([32, 8, 2], "float32"),
        ...     "full_conv.bias2": np.zeros([32], "float32"),
        ... }
        >>> layer = convert.layer_from_torch(arrays, depth=4, dilation_rate=1, output_units=5)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 5)
    """
    weights = _layer_weights(_canonical(arrays))
    layer = _layer(
        weights, depth, dilation_rate, output_units, dtype, return_sequences=True
    )
    layer.build((None, None, weights["kernel"].shape[1]))
    _assign(layer, weights)
    return layer


def language_model_from_torch(
    arrays: Arrays,
    *,
    depth: int,
    dilation_rate: int | Sequence[int],
    cutoffs: Sequence[int] | None = None,
    latent_dropout: float = 0.0,
    dtype: Any = None,
    **kwargs: Any,
) -> TrellisLM:
    """Builds a language model from a state dict of the released code.

    The names tell the head: a tied softmax, a mixture of softmaxes (with the `epsilon` of the
    released code, 1e-8), or a split softmax, for which `arrays` must have the state dict of the
    released script's criterion too. Trained further, the model learns as it would there,
    `untrained_input_id` included: the released embedding passes torch `padding_idx=-1`, which is
    the last word of the vocabulary.

    Args:
        arrays: name -> array, as in the state dict.
        depth: the number of levels (`nlevels`).
        dilation_rate: the dilations (`dilation`).
        cutoffs: where a split softmax is split (`splits`); None for the other heads.
        latent_dropout: of a mixture of softmaxes (`dropoutl`); 0 for the other heads.
        dtype: the model's dtype or dtype policy; None for Keras's default.
        **kwargs: other arguments of `TrellisLM` and of `TrellisLayer` that a state dict does not
            tell: dropout rates, `auxiliary_every` (`aux_frequency`), the weights of the loss terms.

    Returns:
        a built model.

    Raises:
        ValueError: as for `layer_from_torch`, or an argument does not belong to the head.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import convert
        >>> prefix = "tnet.module.full_conv."
        >>> table = np.ones([50, 4], "float32")
        >>> arrays = {
        ...     f"{prefix}weight1": np.ones([32, 4, 2], "float32"),
        ...     f"{prefix}weight2": np.ones([32, 8, 2], "float32"),
        ...     f"{prefix}bias2": np.zeros([32], "float32"),
        ...     "encoder.weight": table,
        ...     "decoder.weight": table,
        ...     "decoder.bias": np.zeros([50], "float32"),
        ... }
        >>> model = convert.language_model_from_torch(arrays, depth=4, dilation_rate=1)
        >>> tuple(model(np.zeros([2, 10], "int32")).shape)
        (2, 10, 50)
    """
    tensors = _canonical(arrays)
    model_arrays, layer_arrays = _parted(
        tensors, _LANGUAGE_MODEL | _head_names(tensors)
    )
    weights = _layer_weights(layer_arrays)
    table, bias = _tied_table(model_arrays, weights["kernel"].shape[1])
    head_arrays = _head_weights(model_arrays, cutoffs)
    head = _head(
        head_arrays, cutoffs, latent_dropout, seed=kwargs.get("seed"), dtype=dtype
    )
    features = table.shape[1]
    if "prior_kernel" in head_arrays:  # a mixture projects features of any width
        features = head_arrays["prior_kernel"].shape[0]
    kwargs.setdefault("untrained_input_id", table.shape[0] - 1)
    layer_arguments, model_arguments = legacy.split(TrellisLM, kwargs)
    layer_arguments["name"] = "trellis"
    layer = _layer(weights, depth, dilation_rate, features, dtype, **layer_arguments)
    model = TrellisLM(
        table.shape[0],
        layer,
        embedding_units=table.shape[1],
        head=head,
        dtype=dtype,
        **model_arguments,
    )
    _assign(layer, weights)
    model.embedding.embeddings.assign(table)
    _assign(model.head, {"bias": bias, **head_arrays})
    return model


def _tied_table(arrays: Arrays, units: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the word vectors `[V, units]`, which the head shares, and its bias `[V]`."""
    table = arrays["encoder.weight"]
    bias = arrays["decoder.bias"]
    _check_shape("encoder.weight", table, (None, units))
    _check_shape("decoder.bias", bias, table.shape[:1])
    _check_equal("encoder.weight", table, "decoder.weight", arrays["decoder.weight"])
    return table, bias


def classifier_from_torch(
    arrays: Arrays,
    *,
    depth: int,
    dilation_rate: int | Sequence[int],
    dtype: Any = None,
    **kwargs: Any,
) -> TrellisClassifier:
    """Builds a classifier from a state dict of the released code for pixel sequences.

    Args:
        arrays: name -> array, as in the state dict.
        depth: the number of levels (`nlevels`).
        dilation_rate: the dilations (`dilation`).
        dtype: the model's dtype or dtype policy; None for Keras's default.
        **kwargs: other arguments of `TrellisClassifier` and of `TrellisLayer` that a state dict
            does not tell: dropout rates, and `permutation`, the order in which the steps are read
            (`permute` of the released script, which draws it anew in each process and does not
            save it).

    Returns:
        a built model.

    Raises:
        ValueError: as for `layer_from_torch`.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import convert
        >>> prefix = "network.0.module.full_conv."
        >>> arrays = {
        ...     f"{prefix}weight1": np.ones([32, 1, 2], "float32"),
        ...     f"{prefix}weight2": np.ones([32, 8, 2], "float32"),
        ...     f"{prefix}bias2": np.zeros([32], "float32"),
        ...     "linear.weight": np.ones([4, 4], "float32"),
        ...     "linear.bias": np.zeros([4], "float32"),
        ... }
        >>> reach = dict(depth=4, dilation_rate=[1, 2, 4, 8])
        >>> model = convert.classifier_from_torch(arrays, **reach)
        >>> tuple(model(np.ones([2, 10, 1], "float32")).shape)
        (2, 4)
    """
    model_arrays, layer_arrays = _parted(_canonical(arrays), _CLASSIFIER)
    weights = _layer_weights(layer_arrays)
    matrix = model_arrays["linear.weight"]
    bias = model_arrays["linear.bias"]
    _check_shape("linear.weight", matrix, (None, None))
    classes, features = matrix.shape
    _check_shape("linear.bias", bias, (classes,))
    layer_arguments, model_arguments = legacy.split(TrellisClassifier, kwargs)
    layer_arguments["name"] = "trellis"
    layer = _layer(weights, depth, dilation_rate, features, dtype, **layer_arguments)
    model = TrellisClassifier(classes, layer, dtype=dtype, **model_arguments)
    model.build((None, None, weights["kernel"].shape[1]))
    _assign(layer, weights)
    _assign(model.dense, {"kernel": matrix.T, "bias": bias})
    return model


def _layer(
    weights: Arrays,
    depth: int,
    dilation_rate: int | Sequence[int],
    output_units: int,
    dtype: Any,
    **others: Any,
) -> TrellisLayer:
    """Returns the layer for these weights, which tell its other sizes."""
    taps, units, _ = weights["recurrent_kernel"].shape
    return TrellisLayer(
        units,
        depth,
        kernel_size=taps,
        dilation_rate=dilation_rate,
        output_units=output_units,
        weight_normalization="kernel_scale" in weights,
        dtype=dtype,
        **others,
    )


def _layer_weights(arrays: Arrays) -> Arrays:
    """Returns the layer's variables, by their Keras names."""
    normalized = not _PLAIN <= arrays.keys() and "weight1_g" in arrays
    _check_names(_NORMALIZED if normalized else _PLAIN, arrays)
    suffix = "_v" if normalized else ""
    name = f"weight1{suffix}"
    hidden_name = f"weight2{suffix}"
    hidden = arrays[hidden_name]
    _check_shape(hidden_name, hidden, (None, None, None))
    units, taps = hidden.shape[1:]
    _check_shape(hidden_name, hidden, (4 * units, units, taps))
    _check_shape(name, arrays[name], (4 * units, None, taps))
    _check_shape("bias2", arrays["bias2"], (4 * units,))
    weights = {
        "kernel": _kernel(arrays[name]),
        "recurrent_kernel": _kernel(hidden),
        "bias": _blocks(arrays["bias2"]),
    }
    if normalized:
        for scale in ("weight1_g", "weight2_g"):
            _check_shape(scale, arrays[scale], (4 * units, 1, 1))
        weights["kernel_scale"] = _blocks(arrays["weight1_g"][:, 0, 0])
        weights["recurrent_scale"] = _blocks(arrays["weight2_g"][:, 0, 0])
    return weights


def _assign(layer: Any, weights: Arrays) -> None:
    for name, value in weights.items():
        getattr(layer, name).assign(value)


def _kernel(weight: np.ndarray) -> np.ndarray:
    """`[4 * hidden, input, k]` -> `[k, input, 4 * hidden]`."""
    return _blocks(np.transpose(weight, (2, 1, 0)))


def _blocks(values: np.ndarray) -> np.ndarray:
    """Puts the blocks on the last axis in Keras's order."""
    blocks = np.split(values, 4, axis=-1)
    return np.concatenate([blocks[gate] for gate in _GATES], axis=-1)


# The heads: tied softmax, mixture of softmaxes, split softmax


def _head_names(arrays: Arrays) -> frozenset[str]:
    """Returns the names of the head's own arrays, all of them where `arrays` has one."""
    names: frozenset[str] = frozenset()
    for head in (_MIXTURE, _SPLIT):
        if head & arrays.keys():
            names |= head
    return names


def _head_weights(arrays: Arrays, cutoffs: Sequence[int] | None) -> Arrays:
    """Returns the head's variables but its bias, by their Keras names.

    Raises:
        ValueError: an array has another shape, or a split softmax has no `cutoffs`.
    """
    units = arrays["encoder.weight"].shape[1]
    if "tail_vectors" in arrays:
        return _split_weights(arrays, cutoffs, units)
    if "prior.weight" in arrays:
        return _mixture_weights(arrays, units)
    return {}


def _head(
    weights: Arrays,
    cutoffs: Sequence[int] | None,
    latent_dropout: float,
    *,
    seed: int | None,
    dtype: Any,
) -> str | Head:
    """Returns the head of these variables, as `TrellisLM` takes it.

    Raises:
        ValueError: an argument belongs to another head.
    """
    if cutoffs is not None and "tail_vectors" not in weights:
        raise ValueError(
            f"`cutoffs` needs the arrays of a split softmax, {sorted(_SPLIT)}. "
            f"Received: cutoffs={cutoffs!r}, and `arrays` without them"
        )
    if latent_dropout and "prior_bias" not in weights:
        raise ValueError(
            f"`latent_dropout` needs the arrays of a mixture of softmaxes, {sorted(_MIXTURE)}. "
            f"Received: latent_dropout={latent_dropout!r}, and `arrays` without them"
        )
    if "prior_bias" in weights:
        return MixtureOfSoftmaxes(
            len(weights["prior_bias"]),
            latent_dropout=latent_dropout,
            epsilon=_EPSILON,
            seed=seed,
            dtype=dtype,
        )
    if cutoffs is not None:
        return AdaptiveSoftmax(cutoffs, dtype=dtype)
    return "tied"


def _split_weights(
    arrays: Arrays,
    cutoffs: Sequence[int] | None,
    units: int,
) -> Arrays:
    if cutoffs is None:
        raise ValueError(
            "`cutoffs` must say where the split softmax of `arrays` is split (the released "
            "script's `splits`). Received: cutoffs=None"
        )
    _check_shape("tail_vectors", arrays["tail_vectors"], (len(cutoffs), units))
    _check_shape("tail_bias", arrays["tail_bias"], (len(cutoffs),))
    # There the first of the rare clusters has the last of the tokens.
    return {name: arrays[name][::-1] for name in _SPLIT}


def _mixture_weights(arrays: Arrays, units: int) -> Arrays:
    prior = arrays["prior.weight"]
    latent = arrays["latent.weight"]
    _check_shape("prior.weight", prior, (None, None))
    experts, features = prior.shape
    _check_shape("prior.bias", arrays["prior.bias"], (experts,))
    _check_shape("latent.weight", latent, (experts * units, features))
    _check_shape("latent.bias", arrays["latent.bias"], (experts * units,))
    return {
        "prior_kernel": prior.T,
        "prior_bias": arrays["prior.bias"],
        "latent_kernel": latent.T,
        "latent_bias": arrays["latent.bias"],
    }


# The arrays of a state dict, by name and by shape


def _canonical(arrays: Arrays) -> Arrays:
    """Returns each tensor once, without the prefixes and suffixes of wrappers.

    Raises:
        ValueError: a tensor has two names and different values.
    """
    names: dict[str, str] = {}
    tensors: dict[str, np.ndarray] = {}
    for name, value in arrays.items():
        short = name.removeprefix("module.")
        short = _NETWORK.sub(r"\3", short)
        short = _MIXTURE_PREFIX.sub("", short)
        array = np.asarray(value)
        if short in tensors:
            _check_equal(names[short], tensors[short], name, array)
        names[short], tensors[short] = name, array
    return tensors


def _parted(
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
    _check_names(names, named)
    return named, others


def _check_names(names: frozenset[str], arrays: Arrays) -> None:
    """Raises ValueError unless the arrays have exactly these names."""
    missing = sorted(names - arrays.keys())
    unknown = sorted(arrays.keys() - names)
    if missing or unknown:
        raise ValueError(
            f"`arrays` must have the names {sorted(names)}. "
            f"Received: arrays without {missing}, with the unknown {unknown}"
        )


def _check_shape(
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


def _check_equal(
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
