"""Which code runs a network: the engine on TensorFlow, the plain network elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_trellis.backend import current as backend
from keras_trellis.core import trellis
from keras_trellis.core.network import Network, Weights
from keras_trellis.types import Cache, State, Tensor

if TYPE_CHECKING or backend.NAME == "tensorflow":
    from keras_trellis.engine import equilibrium, streaming, whole

    settle = equilibrium.settle
    stream_settled = equilibrium.stream
else:
    from keras_trellis.core import equilibrium

    # Eagerly JAX would compile a loop anew in each call.
    _TRELLIS_OPTIONS = ["network", "stops", "num_outputs", "recompute"]
    _run = backend.jitted(trellis.trellis, _TRELLIS_OPTIONS)
    _stream = backend.jitted(trellis.stream, ["network"])
    settle = backend.jitted(equilibrium.settle, ["network", "num_outputs", "solver"])
    stream_settled = backend.jitted(equilibrium.stream, ["network", "solver"])


def run(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State | None,
    mask: Tensor | None,
    *,
    training: bool,
    **options: Any,
) -> tuple[list[Tensor], State]:
    """Runs whole sequences, as `core.trellis.trellis` describes it."""
    if backend.NAME == "tensorflow":
        options["training"] = training
        return whole.run(network, weights, sequences, initial, mask, **options)
    return _run(network, weights, sequences, initial, mask, **options)


def stream(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    cache: Cache,
    mask: Tensor | None,
    *,
    training: bool,
) -> tuple[Tensor, Cache]:
    """Continues sequences, as `core.trellis.stream` describes it."""
    if backend.NAME == "tensorflow":
        return streaming.run(
            network, weights, sequences, cache, mask, training=training
        )
    return _stream(network, weights, sequences, cache, mask)
