"""`EquilibriumTrellisLayer`: a trellis network of infinite depth as a Keras layer."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import keras

from keras_trellis import arguments
from keras_trellis.arguments import constructor
from keras_trellis.core import equilibrium
from keras_trellis.core.equilibrium import Solver
from keras_trellis.core.stack import is_stack
from keras_trellis.layers import networks
from keras_trellis.layers.hooks import Pass
from keras_trellis.layers.inputs import checked_tensors
from keras_trellis.layers.trellis_base import TrellisBase
from keras_trellis.types import Cache, Convergence, State, Tensor

_DEPTH_ARGUMENTS = ("depth", "recompute", "staggered")  # arguments of TrellisLayer
_INFINITE = "The depth is infinite; `max_iterations` bounds the work."


@keras.saving.register_keras_serializable("keras_trellis")
class EquilibriumTrellisLayer(TrellisBase):
    """Deep equilibrium trellis network: `TrellisLayer` with infinitely many levels.

    Its output is the state that the levels settle in, s with

        s_t = gate(sum_j Wz_j h_{t - (k-1-j) d} + b + x~_t, s_{t - d})

    in the notation of `TrellisLayer`. Iteration from the state zero finds it. With a cycle of
    dilations, or with `inject_every`, one turn of the levels leaves s unchanged. With
    `training=True` the gradient comes from the implicit function theorem: its memory is that of
    one turn, for any number of iterations. Otherwise it is the gradient of the iterations, and
    memory holds all of them. On JAX it is that of the theorem always, and `jax.grad` of `jax.grad`
    is refused; on torch it is that of the iterations always.

    The variables have the names and shapes of `TrellisLayer`'s; `from_layer` continues from trained
    ones. Everything else means the same as there. In streaming, chunks equal one long pass up to
    the tolerance.

    With `groups`, two taps, dilation 1 and the input at every level, the layer is a stack of
    recurrent layers, one for each group (Theorem 1 of Bai et al. 2019, without truncation). Then it
    computes step by step what they compute, without iterations and without an error.
    With the LSTM's gate and `inject_groups` it is `groups` stacked LSTMs that all read the input.
    `keras_trellis.StackedLSTM` is the layer to use for them: it has Keras's arguments and
    layout of weights, and its `from_layer` takes over the weights of this one.

    Otherwise nothing guarantees that the levels settle. If they do not within `max_iterations`,
    the layer returns the last iterate, and the gradients have an error of the same size;
    `propagate` returns a `Convergence`, which shows it. The system for the gradient has the same
    bound and the same Jacobian; the layer does not report how far its solution came.

    Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
    https://arxiv.org/abs/1909.01377.

    Args:
        units: the number of hidden channels, q.
        tolerance: a sequence's first steps are solved when |f(s) - s| <= tolerance |f(s)| over
            them, f being one turn of the levels. Rounding sets a limit: where `tolerance` is
            below 4 units of rounding of the compute dtype (0.03 for bfloat16, 0.004 for float16,
            5e-7 for float32), these count. The system for the gradient is solved as precisely.
        max_iterations: the largest number of turns of the levels; the gradient may take as many
            again.
        **kwargs: all other arguments of `TrellisLayer`, but for `depth`, `recompute` and
            `staggered`.

    Attributes:
        depth: the number of levels of one turn.

    Raises:
        ValueError: an argument is out of its range.

    Input shape:
        That of `TrellisLayer`, `[B, T, p]`.

    Output shape:
        That of `TrellisLayer`: `[B, C]`, or with `return_sequences` `[B, T, C]`.

    Examples:
        >>> import numpy as np
        >>> import keras_trellis
        >>> layer = keras_trellis.EquilibriumTrellisLayer(16, return_sequences=True)
        >>> sequences = np.ones([2, 10, 3], "float32")
        >>> tuple(layer(sequences).shape)
        (2, 10, 16)

        Whether each time step was solved:

        >>> convergence = layer.propagate(sequences)[-1]
        >>> tuple(convergence.converged.shape)
        (2, 10)
    """

    _instead: ClassVar[dict[str, str]] = {
        **TrellisBase._instead,
        **dict.fromkeys(_DEPTH_ARGUMENTS, _INFINITE),
        "unroll": (
            "Leave it out: its loop, over iterations or in a stack of groups over time, is never "
            "unrolled."
        ),
    }

    @constructor
    def __init__(
        self,
        units: int,
        *,
        tolerance: float = 1e-4,
        max_iterations: int = 100,
        **kwargs: Any,
    ) -> None:
        cycle = arguments.dilation_cycle(kwargs.get("dilation_rate", 1))
        every = arguments.positive("inject_every", kwargs.get("inject_every", 1))
        super().__init__(units, math.lcm(len(cycle), every), **kwargs)  # one turn
        self.tolerance = arguments.tolerance(tolerance)
        self.max_iterations = arguments.positive("max_iterations", max_iterations)

    @classmethod
    def from_layer(cls, layer: TrellisBase, **changes: Any) -> EquilibriumTrellisLayer:
        """Makes a layer of infinite depth from a layer of finite depth.

        Args:
            layer: gives its arguments and, if it is built, the values of its variables.
            **changes: other arguments to use instead.

        Raises:
            ValueError: a variable does not fit the changed arguments.
        """
        config = layer.get_config()
        for name in _DEPTH_ARGUMENTS:
            config.pop(name, None)
        infinite: EquilibriumTrellisLayer = cls.from_config(config | changes)
        if layer.built:
            infinite.build_from_config(layer.get_build_config())
            infinite.set_weights(layer.get_weights())
        return infinite

    @property
    def receptive_field(self) -> None:
        """None: an output depends on all time steps before it."""
        return None

    @property
    def state_is_exact(self) -> bool:
        """Whether the levels read no more of the past than their own state one step before.

        So it is in a stack of recurrent layers.
        """
        network = self._network
        reads_input = network.input_taps > 1
        own_step = network.kernel_size <= 2 and set(network.cycle) == {1}
        return own_step and network.inject_every == 1 and not reads_input

    @property
    def _by_group(self) -> bool:
        return is_stack(self._network)

    def _solver(self, training: bool) -> Solver:
        return Solver(self.tolerance, self.max_iterations, training)

    def run(
        self, sequences: Tensor, request: Pass
    ) -> tuple[Tensor, State, Convergence]:
        """Runs whole sequences; the last result says how far the levels settled."""
        hidden, state, convergence = networks.settle(
            self._network,
            self._weights(sequences, request.training),
            sequences,
            request.initial_state,
            request.mask,
            num_outputs=request.num_outputs,
            solver=self._solver(request.training),
        )
        return self._outputs(hidden), state, convergence

    def run_chunk(
        self, sequences: Tensor, cache: Cache, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, Cache]:
        """Continues sequences from a cache; see `SequenceHooks.run_chunk`."""
        self._check_cache(cache, sequences.shape[0])
        weights = self._weights(sequences, training)
        solver = self._solver(training)
        hidden, cache = networks.stream_settled(
            self._network, weights, sequences, cache, mask, solver=solver
        )
        return self._outputs(hidden), cache

    def portable_stream(
        self, sequences: Tensor, cache: Cache, mask: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        """Does what `stream` does, in a graph whose iteration ONNX can hold."""
        if self._by_group:  # there is no iteration
            return self.stream(sequences, cache, mask)
        sequences, _, mask = checked_tensors(self, sequences, None, mask)
        self._check_cache(cache, sequences.shape[0])
        weights = self._weights(sequences, training=False)
        solver = self._solver(training=False)._replace(by_period=True)
        hidden, cache = equilibrium.stream(
            self._network, weights, sequences, cache, mask, solver=solver
        )
        return self._outputs(hidden), cache
