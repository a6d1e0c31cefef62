"""Layers that treat each time step by itself, or that read an answer: they keep nothing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from keras_trellis.core.convolution import time_steps
from keras_trellis.models.streamed.rule import NotStreamableError, Rule, Signal, signals

ALONG_TIME = "works along the time axis, with steps to come"


class Stepwise(Rule):
    """A layer that Keras calls on the chunk as on the whole."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self._takes = frozenset(inspect.signature(layer.call).parameters)

    def stream(
        self, cache: Any, mask: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Calls the layer at inference."""
        if "training" in self._takes:
            kwargs["training"] = False
        if "mask" in self._takes and mask is not None:
            kwargs["mask"] = mask
        return self.layer(*args, **kwargs), cache


class Merged(Stepwise):
    """A layer over several tensors that reads their masks off them, as Keras's `Multiply` does."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self._masked = _Masked(name=layer.name, dtype=layer.dtype_policy)

    def stream(
        self, cache: Any, mask: Any, inputs: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Calls the layer on tensors that have their masks."""
        pairs = zip(inputs, mask, strict=True)
        # Keras keeps a mask on the tensor: the chunk's tensors have none before.
        inputs = [self._masked(tensor, mask=valid) for tensor, valid in pairs]
        return super().stream(cache, None, inputs, **kwargs)


class _Masked(keras.layers.Layer):
    """Has Keras put a mask on a copy of a tensor."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        return ops.copy(inputs)


class Unmasked(Stepwise):
    """A layer to which a mask means something else than which steps to skip."""

    def stream(
        self, cache: Any, mask: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Calls the layer, or refuses a mask."""
        if mask is not None:
            raise ValueError(
                f"No mask may reach the layer {self.layer.name!r}: to a "
                f"{type(self.layer).__name__} it means which channels to leave out. "
                "Received: a mask of time steps"
            )
        return super().stream(cache, mask, *args, **kwargs)


class Reshaped(Rule):
    """A `Reshape` of the channels."""

    def __init__(self, layer: Any, inputs: Signal) -> None:
        super().__init__(layer)
        _, steps, *channels = inputs.shape
        _, time, *sizes = layer.compute_output_shape((None, steps, *channels))
        # Sizes that are unknown are left out of the products, and refused below.
        counts = [math.prod(filter(None, shape)) for shape in (channels, sizes)]
        is_known = None not in (*channels, *sizes)
        if time != steps or not is_known or counts[0] != counts[1]:
            raise NotStreamableError("does not leave the time axis as it is")
        self._sizes = sizes

    def stream(self, cache: Any, mask: Any, inputs: Any) -> tuple[Any, Any]:
        """Gives the channels of the chunk another shape."""
        # A target with T in it does not fit a chunk.
        return ops.reshape(inputs, [-1, time_steps(inputs), *self._sizes]), cache


class LastStep(Stepwise):
    """`x[:, -1]`: an answer, that of the last step so far."""

    def output_strides(self, stride: int, count: int) -> list[int | None]:
        """Returns that there is no time axis."""
        return [None]


Axes = tuple[int, ...] | Callable[[Any], Iterable[int]]
"""The axes along which a layer mixes numbers, or has a weight for each place; or a function that
returns those of a layer."""


def stepwise(axes: Axes, rule: type[Rule] = Stepwise) -> Callable[..., Rule]:
    """Returns what makes the rule of a layer, unless the layer works along the time axis."""

    def make(layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Rule:
        rank = common_rank((inputs, args, kwargs))
        own = axes(layer) if callable(axes) else axes
        _check_axes(own, rank)
        return rule(layer)

    return make


def common_rank(arguments: Any) -> int:
    """Returns the rank of all tensors among arguments."""
    ranks = {len(signal.shape) for signal in signals(arguments)}
    if len(ranks) > 1:
        raise NotStreamableError(f"joins tensors of different ranks, {sorted(ranks)}")
    return ranks.pop()


def _check_axes(axes: Iterable[int], rank: int) -> None:
    # Rows and time steps are the axes 0 and 1; negative axes count from the end.
    if any(axis % rank < 2 for axis in axes):
        raise NotStreamableError(ALONG_TIME)


def _axis(layer: Any) -> list[int]:
    return [axis for axis in keras.tree.flatten(layer.axis) if axis is not None]


def _scaled_axes(layer: Any) -> list[int]:
    """Returns the axes along which a `Rescaling` has several numbers."""
    # Broadcast from the last axis on, so they are counted from there.
    shapes = [np.shape(numbers) for numbers in (layer.scale, layer.offset)]
    return [
        -place
        for shape in shapes
        for place, size in enumerate(reversed(shape), start=1)
        if size != 1
    ]


def _own_axes(layer: Any) -> list[int]:
    """Returns the axes along which a PReLU has a slope for each place."""
    # It lacks the batch, axis 0.
    shape = layer.alpha.shape
    return [axis for axis, size in enumerate(shape, start=1) if size != 1]


def _moved_axes(layer: Any) -> list[int]:
    """Returns the axes that a `Permute` moves."""
    return [axis for axis, place in enumerate(layer.dims, 1) if axis != place]


LAYERS: dict[type, Callable[..., Rule]] = {
    layers.Reshape: Reshaped,
    layers.Maximum: stepwise((), Merged),
    layers.Minimum: stepwise((), Merged),
    layers.Multiply: stepwise((), Merged),
    layers.Softmax: stepwise(_axis, Unmasked),
    layers.PReLU: stepwise(_own_axes),
    layers.Permute: stepwise(_moved_axes),
    layers.Rescaling: stepwise(_scaled_axes),
    **dict.fromkeys(
        (
            layers.ActivityRegularization,
            layers.Add,
            layers.AlphaDropout,
            layers.Average,
            layers.Dropout,
            layers.ELU,
            layers.Embedding,
            layers.GaussianDropout,
            layers.GaussianNoise,
            layers.Identity,
            layers.LeakyReLU,
            layers.ReLU,
            layers.SpatialDropout1D,
            layers.Subtract,
            layers.TimeDistributed,
        ),
        stepwise(()),
    ),
    **dict.fromkeys(
        (layers.Activation, layers.Dense, layers.Masking),
        stepwise((-1,)),
    ),
    **dict.fromkeys(
        (
            layers.BatchNormalization,
            layers.Concatenate,
            layers.LayerNormalization,
            layers.Normalization,
            layers.RMSNormalization,
            layers.UnitNormalization,
        ),
        stepwise(_axis),
    ),
}
"""The layers of Keras that treat each time step by itself."""

ELEMENTWISE = frozenset(
    (
        "Abs Absolute Add Cast Clip Cos Divide Elu Equal Exp Expm1 Gelu Greater GreaterEqual "
        "HardSigmoid HardSilu IsFinite Isfinite Isinf Isnan LeakyRelu Less LessEqual Log Log1p "
        "LogicalAnd LogicalNot LogicalOr Maximum Minimum Multiply Negative NotEqual OnesLike "
        "Power Reciprocal Relu Relu6 Selu Sigmoid Sign Silu Sin Softplus Softsign Sqrt Square "
        "Subtract Tanh TrueDivide Where ZerosLike"
    ).split()
)
"""Operations of Keras, by the names of their classes, that compute number by number."""

ALONG_AXES = frozenset(
    "All Any Concatenate LogSoftmax Max Mean Min Softmax Squeeze Sum".split()
)
"""Those that compute along `axis`. Keras makes masks by some of them."""


def operation(op: Any, *args: Any, **kwargs: Any) -> Rule:
    """Returns the rule of an operation such as `x + y`, `ops.relu(x)` or `x[..., :2]`."""
    name = type(op).__name__
    if name == "GetItem":
        return _item(op, *args)
    rank = common_rank((args, kwargs))
    if name in ALONG_AXES:
        # Without an axis it works along all of them, time too.
        _check_axes(_axis(op) or [1], rank)
    elif name == "ExpandDims":
        # Its axis is one of the result, which has one more.
        _check_axes(_axis(op), rank + 1)
    elif name in ELEMENTWISE:
        for value in (*args, *kwargs.values()):
            _check_constant(value, rank)
    else:
        raise NotStreamableError(
            "is an operation of which it is not known whether it keeps time steps apart"
        )
    return Stepwise(op)


def _check_constant(value: Any, rank: int) -> None:
    """Refuses an array with numbers of its own for each time step."""
    shape = () if signals(value) else np.shape(value)
    # A constant is aligned at its last axis; the time axis is the one rank - 1 from the end.
    if len(shape) >= rank - 1 and shape[1 - rank] != 1:
        raise NotStreamableError("has a constant for each time step")


def _item(op: Any, inputs: Signal, key: Any) -> Rule:
    places = list(key) if isinstance(key, (list, tuple)) else [key]
    rank = len(inputs.shape)
    # The places behind an ellipsis are those of the last axes: rank - 2 of them leave out time.
    if places[0] is Ellipsis and len(places) <= rank - 1:
        return Stepwise(op)
    everything = slice(None)
    if places[:2] == [everything, -1]:
        return LastStep(op)
    if places[:2] == [everything, everything]:
        return Stepwise(op)
    raise NotStreamableError(
        f"takes the part {key!r}, which may have to wait for steps to come"
    )
