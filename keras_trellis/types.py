"""What layers and networks pass on and return: states, caches, the convergence of iterations."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias


class Tensor(Protocol):
    """What a `tf.Tensor`, a `jax.Array` and a `torch.Tensor` have in common, for type checkers.

    Whatever else is done to a tensor is a function of `keras.ops`. Code of one backend that needs
    more than this names the backend's own type.
    """

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of each axis; None where a graph does not know it."""

    @property
    def dtype(self) -> Any:
        """The backend's name for what the elements are; `ops.cast` takes it."""

    def __array__(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Tensor: ...
    def __add__(self, other: Any, /) -> Tensor: ...
    def __radd__(self, other: Any, /) -> Tensor: ...
    def __sub__(self, other: Any, /) -> Tensor: ...
    def __rsub__(self, other: Any, /) -> Tensor: ...
    def __mul__(self, other: Any, /) -> Tensor: ...
    def __rmul__(self, other: Any, /) -> Tensor: ...
    def __matmul__(self, other: Any, /) -> Tensor: ...
    def __truediv__(self, other: Any, /) -> Tensor: ...
    def __rtruediv__(self, other: Any, /) -> Tensor: ...
    def __floordiv__(self, other: Any, /) -> Tensor: ...
    def __rfloordiv__(self, other: Any, /) -> Tensor: ...
    def __mod__(self, other: Any, /) -> Tensor: ...
    def __rmod__(self, other: Any, /) -> Tensor: ...
    def __pow__(self, other: Any, /) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __and__(self, other: Any, /) -> Tensor: ...
    def __rand__(self, other: Any, /) -> Tensor: ...
    def __or__(self, other: Any, /) -> Tensor: ...
    # A tensor; `object` has a bool here.
    def __eq__(self, other: Any, /) -> Any: ...
    def __ne__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Tensor: ...
    def __le__(self, other: Any, /) -> Tensor: ...
    def __gt__(self, other: Any, /) -> Tensor: ...
    def __ge__(self, other: Any, /) -> Tensor: ...


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
