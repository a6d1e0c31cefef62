"""What layers and networks pass on and return: states, caches, the convergence of iterations."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of the backend that Keras runs on: `tf.Tensor`, `jax.Array` or `torch.Tensor`."""

Number: TypeAlias = int | Tensor
"""An integer, or a scalar where a graph does not know it."""

State: TypeAlias = tuple[Tensor, ...]
"""One tensor a state of the gate, the hidden state first: (h, c) for the LSTM gate.

Inside the network each is `[B, T, units]`; carried from call to call (the paper's
"history") each is `[B, units]`, the top level's last step.
"""


class Cache(NamedTuple):
    """What a trellis network needs of its past to go on exactly where it stopped.

    All tensors are dense and batch-first, so that rows can be gathered, reordered or sent over
    a wire. Treat a cache as a value: `TrellisLayer.stream` takes one and returns the next.

    Attributes:
        inputs: the last inputs, `[B, (kernel_size - 1) * largest dilation, p]`.
        levels: for each state of the gate what the levels need of their own past, `[B, S, units]`.
            A level of dilation d holds max(kernel_size - 1, 1) * d steps of h and d of each other
            state, S is their sum over the levels. Levels stand in the order of their place in the
            dilation cycle, then from the lowest up: with one dilation for all levels simply from
            the lowest up.
        state: the state of the top level's last valid step, each `[B, units]`.
        steps: the number of valid steps seen so far, `[B]`, int32.
    """

    inputs: Tensor
    levels: State
    state: State
    steps: Tensor


class Convergence(NamedTuple):
    """How far the iteration came.

    Attributes:
        residual: |f(z) - z| / |f(z)| over this step and all before it, `[B, T]`, at the state z
            that was returned; in at least float32.
        iterations: how many times the map was applied until the step was solved, or at most,
            int32 `[B, T]`.
        converged: whether it was solved within the bound, bool `[B, T]`.
    """

    residual: Tensor
    iterations: Tensor
    converged: Tensor
