"""The layers of the table of formats, and models that hold them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_trellis import (
    EquilibriumTrellisLayer,
    RecurrentLayer,
    TrellisLayer,
    recurrent,
)

CHANNELS = 3
UNITS = 4

Layer = Callable[[Any, Any], list[Any]]
"""From sequences and a mask, or None, to outputs."""


def _outputs(make: Callable[..., Any]) -> Layer:
    """Returns a layer's outputs at all steps, and its state."""
    layer = make(return_sequences=True, return_state=True)
    return lambda sequences, mask: layer(sequences, mask=mask)


def _last_output(make: Callable[..., Any]) -> Layer:
    layer = make()
    return lambda sequences, mask: [layer(sequences, mask=mask)]


def _trellis(**arguments: Any) -> Callable[..., TrellisLayer]:
    return functools.partial(TrellisLayer, UNITS, 4, **arguments)


def _equilibrium(**arguments: Any) -> Callable[..., EquilibriumTrellisLayer]:
    # As good as exact: rounding may decide how often a map is applied.
    arguments = {"tolerance": 1e-6, **arguments}
    return functools.partial(EquilibriumTrellisLayer, UNITS, **arguments)


def _wrapped(**flags: Any) -> RecurrentLayer:
    return RecurrentLayer(keras.layers.LSTM(UNITS), **flags)


def _gated(name: str, **arguments: Any) -> Callable[..., Any]:
    """As many units as channels, which some need."""
    return functools.partial(getattr(recurrent, name), CHANNELS, **arguments)


ROWS: dict[str, Callable[[], Layer]] = {
    "`keras.layers.LSTM`": lambda: _outputs(
        functools.partial(keras.layers.LSTM, UNITS)
    ),
    "`RecurrentLayer` of it": lambda: _outputs(_wrapped),
    "`StackedLSTM`": lambda: _outputs(functools.partial(recurrent.StackedLSTM, UNITS)),
    "`TrellisLayer`": lambda: _outputs(_trellis()),
    "`TrellisLayer`: last output, three taps, dilations": lambda: _last_output(
        _trellis(kernel_size=3, dilation_rate=(1, 2))
    ),
    "`TrellisLayer`: GRU gate, groups, weight normalisation": lambda: _outputs(
        _trellis(gate="gru", groups=2, weight_normalization=True, inject_every=2)
    ),
    "`EquilibriumTrellisLayer`": lambda: _outputs(_equilibrium()),
    "`EquilibriumTrellisLayer(groups=2, inject_groups=True)`": lambda: _outputs(
        _equilibrium(groups=2, inject_groups=True)
    ),
    "`IRCGRU`": lambda: _outputs(_gated("IRCGRU")),
    "`SRU`": lambda: _outputs(_gated("SRU")),
    "`IRCTLSTM`": lambda: _outputs(_gated("IRCTLSTM")),
    "`TensorizedLSTM`": lambda: _outputs(
        functools.partial(recurrent.TensorizedLSTM, 2, 2)
    ),
    "`IRCGRU(unroll=True)`": lambda: _outputs(_gated("IRCGRU", unroll=True)),
    "`TLSTM(unroll=True)`": lambda: _outputs(_gated("TLSTM", unroll=True)),
}


def model(layer: str, steps: int | None, masks: tuple[bool, ...]) -> keras.Model:
    """Returns a model of one layer, which it may hold without and with a mask.

    Args:
        layer: its name in `ROWS`.
        steps: T of the inputs, or None; their B is unknown.
        masks: whether the layer is called with the mask, for each call.

    Returns:
        A model of one input, `[B, T, CHANNELS + 1]`; its last channel is above 0 at valid steps.
    """
    keras.utils.set_random_seed(0)
    # One input: from JAX, Keras gives the unknown T of two inputs two names.
    both = keras.Input((steps, CHANNELS + 1), name="a")
    sequences = both[..., :CHANNELS]
    mask = both[..., CHANNELS] > 0
    call = ROWS[layer]()
    outputs = []
    for is_masked in masks:
        outputs += call(sequences, mask if is_masked else None)
    found = keras.Model(both, outputs)
    rng = np.random.default_rng(0)
    for variable in found.trainable_variables:
        variable.assign(0.4 * rng.normal(size=variable.shape))
    return found


def draw(batch: int, steps: int, padding: float = 1.0) -> np.ndarray:
    """Returns the input of such a model, whose last row is masked as a whole.

    Args:
        batch: B.
        steps: T.
        padding: what the masked steps are multiplied by.
    """
    rng = np.random.default_rng(steps)
    mask = rng.random((batch, steps, 1)) < 0.7
    mask[-1] = False
    sequences = rng.normal(size=(batch, steps, CHANNELS))
    sequences = np.where(mask, sequences, sequences * padding)
    return np.concatenate([sequences, mask], axis=-1).astype("float32")
