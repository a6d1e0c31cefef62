"""Which code runs a network: the engine on TensorFlow, the plain network elsewhere.

`run` and `settle` run whole sequences, through levels or to a fixed point; `stream` and
`stream_settled` continue them from a cache; `recur` runs a cell over time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_trellis.backend import current as backend

if TYPE_CHECKING or backend.NAME == "tensorflow":
    from keras_trellis.engine import equilibrium, recurrence, streaming, whole

    run = whole.run
    stream = streaming.run
    settle = equilibrium.settle
    stream_settled = equilibrium.stream
    recur = recurrence.recur
else:
    from keras_trellis.core import equilibrium, recurrence, trellis

    # Eagerly JAX would compile a loop anew in each call.
    _run = backend.jitted(
        trellis.trellis, ["network", "stops", "num_outputs", "recompute"]
    )
    _stream = backend.jitted(trellis.stream, ["network"])
    settle = backend.jitted(equilibrium.settle, ["network", "num_outputs", "solver"])
    stream_settled = backend.jitted(equilibrium.stream, ["network", "solver"])

    def run(*arguments: Any, training: bool, **options: Any) -> Any:
        """Runs whole sequences; only the engine does so in another way for training."""
        return _run(*arguments, **options)

    def stream(*arguments: Any, training: bool) -> Any:
        """Continues sequences; only the engine does so in another way for training."""
        return _stream(*arguments)

    def recur(
        *arguments: Any,
        training: bool,
        units: int,
        recompute: bool = False,
        **options: Any,
    ) -> Any:
        """Runs a cell over time; see `core.recurrence.recur`."""
        recompute = recompute and training
        return recurrence.recur(*arguments, recompute=recompute, **options)
