"""Which rule streams which layer: one table, and the protocol of layers of a user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import layers

from keras_trellis.models.streamed import recurrent, stepwise, windows
from keras_trellis.models.streamed.rule import NotStreamableError, Rule, Signal, signals

LAYERS: dict[type, Callable[..., Rule]] = (
    stepwise.LAYERS | windows.LAYERS | recurrent.LAYERS
)
"""From a class to what makes its rule, of the layer and the arguments of its call. Classes that
derive from these may do anything."""

_ATTENDS = (
    "attends to steps to come; with a causal mask it would have to keep all steps"
)
REFUSED: dict[type, str] = {
    layers.Bidirectional: "reads sequences from their end too",
    layers.AdditiveAttention: _ATTENDS,
    layers.Attention: _ATTENDS,
    layers.GroupQueryAttention: _ATTENDS,
    layers.MultiHeadAttention: _ATTENDS,
    layers.Flatten: "makes one row of all time steps",
    layers.GroupNormalization: "takes its mean and variance over the time steps too",
    layers.Lambda: (
        "does what is not known: its function may mix time steps. Write a layer that has "
        "`get_initial_cache` and `stream`, or Keras's operations into the functional model"
    ),
    layers.UpSampling1D: "returns more steps than it reads",
    layers.Conv1DTranspose: "returns more steps than it reads",
}
"""Why these, and what derives from them, are not streamed."""

UNKNOWN = (
    "is of no class that is known to read the past alone. A layer of your own is streamed by its "
    "`get_initial_cache(batch_size)` and `stream(chunk, cache, mask)`, or by its "
    "`delay_lines()` and `advance(chunk, past)`"
)


def rule(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rule:
    """Returns how a call streams.

    Args:
        layer: the layer, or an operation of Keras.
        args: the arguments of the call, with a `Signal` for each tensor of the model.
        kwargs: its named arguments.

    Raises:
        NotStreamableError: it does not.
    """
    _check_inference(layer, kwargs)
    read = signals((args, kwargs))
    # An answer has no time axis that a layer could mix.
    if all(signal.stride is None for signal in read):
        return stepwise.Stepwise(layer)
    _check_together(read)
    for cls, reason in REFUSED.items():
        if isinstance(layer, cls):
            raise NotStreamableError(reason)
    # These two are the plan's: masks reach a rule apart, and all runs at inference.
    own = {key: kwargs[key] for key in kwargs if key not in ("mask", "training")}
    maker = _maker(layer, args)
    made = maker(layer, *args, **own)
    has_lead = any(signal.lead for signal in read)
    if has_lead and not isinstance(made, windows.Window):
        raise NotStreamableError("reads what a ZeroPadding1D returns, and is no window")
    return made


def _check_inference(layer: Any, kwargs: dict[str, Any]) -> None:
    """Refuses what does not give the same outputs at each call."""
    if kwargs.get("training"):
        raise NotStreamableError(
            "is called with training=True, so that its outputs are random"
        )
    inner = getattr(layer, "layer", None)  # of a TimeDistributed
    if getattr(layer, "stateful", False) or getattr(inner, "stateful", False):
        raise NotStreamableError(
            "is stateful: `stream` continues sequences, with a cache that you hold. Build the "
            "model with stateful=False"
        )


def _maker(layer: Any, args: tuple[Any, ...]) -> Callable[..., Rule]:
    if not isinstance(layer, keras.layers.Layer):
        return stepwise.operation
    if not signals(args[:1]):
        raise NotStreamableError("must get its input as the first argument of its call")
    # Not `isinstance`: a class derived from one of these may read steps to come.
    if type(layer) in LAYERS:
        return LAYERS[type(layer)]
    if hasattr(layer, "get_initial_cache") and hasattr(layer, "stream"):
        return recurrent.Cached
    if hasattr(layer, "delay_lines") and hasattr(layer, "advance"):
        return recurrent.Lined
    raise NotStreamableError(UNKNOWN)


def _check_together(read: list[Signal]) -> None:
    """Refuses tensors that do not stand side by side in time."""
    strides = {signal.stride for signal in read if signal.stride is not None}
    if any(signal.stride is None for signal in read):
        raise NotStreamableError(
            "joins time steps with an answer over all of them, which steps to come would change"
        )
    if len(strides) > 1:
        raise NotStreamableError(
            f"joins sequences of different strides, {sorted(strides)}"
        )
