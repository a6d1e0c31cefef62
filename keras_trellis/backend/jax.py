"""JAX: masks that are TensorFlow's, checks of values that are known."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import jax
import jax.experimental.sparse
import keras
import numpy as np
from jax import Array as Tensor
from jax import numpy as jnp

from keras_trellis.backend.shared import *  # noqa: F403
from keras_trellis.formats import philox

NAME = "jax"

_Words: TypeAlias = tuple[Tensor, ...]


def is_sparse(value: Any) -> bool:
    """Returns whether a value is a sparse array of JAX."""
    return isinstance(value, jax.experimental.sparse.JAXSparse)


def to_tensor(value: Any) -> Tensor:
    """Returns a value as an array, of its own dtype if JAX has it.

    Raises:
        TypeError, ValueError: it is no array, or holds integers that JAX would cut off.
    """
    if isinstance(value, keras.Variable):
        return value.value
    if isinstance(value, jax.Array):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "iu":
        widest = jax.dtypes.canonicalize_dtype(array.dtype)
        if not np.array_equal(array, array.astype(widest)):
            raise ValueError(
                f"integers beyond {widest}, the widest without JAX_ENABLE_X64=1"
            )
    return jnp.asarray(array)


def read(variable: keras.Variable) -> Tensor:
    """Returns the value of a variable of `cache_variables`."""
    return variable.value


def jitted(function: Callable, static: Sequence[str]) -> Callable:
    """Returns a function that is compiled once for each shape and each static value.

    Called eagerly, a loop of JAX is compiled again each time, which takes seconds. Within another
    program it is a part of that.

    Args:
        function: a function of arrays alone: the value of a variable that it read would stay.
        static: the names of the arguments that are no arrays, and can be hashed.
    """
    program = jax.jit(function, static_argnames=static)

    def call(*arguments: Any, **named: Any) -> Any:
        leaves = jax.tree.leaves((arguments, named))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return function(*arguments, **named)
        return program(*arguments, **named)

    return call


def repeat(body: Callable[[Any, Any], Any], state: Any, turns: int) -> Any:
    """Returns what a number of turns make of a state, by one loop, which is compiled once."""
    if turns == 0:
        return state
    if turns == 1:
        return body(0, state)

    def turn(state: Any, number: Tensor) -> tuple[Any, None]:
        return body(number, state), None

    # It is what `jax.lax.fori_loop` becomes; but the exporter to ONNX takes none of those that
    # reads outer arrays.
    numbers = jnp.arange(turns, dtype="int32")
    state, _ = jax.lax.scan(turn, state, numbers)
    return state


def while_loop(goes_on: Callable, body: Callable, state: Any, most: int) -> Any:
    """Runs a body while something holds; see TensorFlow's."""
    return keras.ops.while_loop(goes_on, body, state, maximum_iterations=most)


def saving_products(function: Callable) -> Callable:
    """Returns a function whose gradient saves the results of its matrix products alone.

    The rest is computed again, which is cheaper than to write it to new memory: a training step
    of a trellis network takes a fifth less processor time.
    """
    # Within a loop, XLA does not undo the second computation.
    policy = jax.checkpoint_policies.dots_saveable
    return jax.checkpoint(function, policy=policy, prevent_cse=False)


sigmoid = keras.activations.sigmoid


def tanh(tensor: Tensor) -> Tensor:
    """Returns the hyperbolic tangent; Keras's takes that of float64 in float32."""
    return jnp.tanh(tensor)


def mean(values: Tensor) -> Tensor:
    """Returns the mean over the last axis, which stays; Keras's has the precision of float32."""
    return jnp.mean(values, axis=-1, keepdims=True)


def gather_steps(sequences: Tensor, places: Tensor) -> Tensor:
    """Returns the steps of `[B, T, ...]` at places `[B, n]` of each row: `[B, n, ...]`."""
    channels = sequences.ndim - places.ndim
    ones = (1,) * channels
    places = places.reshape(places.shape + ones)
    return jnp.take_along_axis(sequences, places, axis=1)


def inverse_permutation(places: Tensor) -> Tensor:
    """Returns which step stands at each place, `[B, T]`; see TensorFlow's."""
    # Faster than a sort, and exported to ONNX for any number of steps.
    rows = jax.lax.broadcasted_iota(places.dtype, places.shape, 0)
    steps = jax.lax.broadcasted_iota(places.dtype, places.shape, 1)
    none = jnp.zeros_like(places)
    return none.at[rows, places].set(
        steps, mode="promise_in_bounds", unique_indices=True
    )


def integers(count: Any, dtype: str) -> Tensor:
    """Returns 0, 1, ..., `[count]`."""
    # The exporter to ONNX loses a number that is unknown in `jnp.arange`.
    return jax.lax.iota(dtype, count)


def join(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Returns tensors of one dtype joined along an axis, 0 or more."""
    # The exporter to ONNX loses a size that is unknown in `jnp.concatenate`.
    return jax.lax.concatenate(tensors, axis)


def split(tensor: Tensor, sizes: Sequence[int], axis: int = -1) -> list[Tensor]:
    """Returns the parts of a tensor that have these sizes along an axis."""
    ends = np.cumsum(sizes)[:-1]
    return jnp.split(tensor, ends, axis)


def crop(sequences: Tensor, before: int, after: int = 0) -> Tensor:
    """Returns `[B, T, ...]` without the first `before` and the last `after` steps."""
    return sequences[:, before : sequences.shape[1] - after]


def take(values: Tensor, places: Any, axis: int = 0) -> Tensor:
    """Returns the slices along an axis at places, integers of any shape, each within the axis."""
    indices = jnp.asarray(places)
    return jnp.take(values, indices, axis=axis)


def argmax(values: Tensor) -> Tensor:
    """Returns the place of the largest of `[..., N]`, of equals the first: int32 `[...]`."""
    places = jnp.argmax(values, axis=-1)
    return places.astype("int32")


def custom_gradient(function: Callable) -> Callable:
    """Returns a function with a gradient of its own; see TensorFlow's."""

    def with_rule(*arguments: Tensor) -> tuple:
        results, gradient = function(*arguments)

        def pull_back(sums: tuple) -> tuple:
            return tuple(gradient(*sums))

        return results, pull_back

    return jax.custom_gradient(with_rule)


def compiled(function: Callable, model: Any, sizes: Sequence[str]) -> Callable:
    """Returns a function compiled by `jax.jit`, once for each of the shapes and sizes it gets.

    Args:
        function: a function of tensors that reads the variables of a model.
        model: the model.
        sizes: the names of the arguments that are sizes, given by name.
    """

    # A variable that a compiled function reads by itself would stay what it was then.
    def stateless(values: list, *arguments: Any, **named: Any) -> Any:
        pairs = zip(model.variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(pairs)):
            return function(*arguments, **named)

    program = jax.jit(stateless, static_argnames=sizes)

    def call(*arguments: Any, **named: Any) -> Any:
        values = [variable.value for variable in model.variables]
        return program(values, *arguments, **named)

    return call


def multiply_adds(function: Callable, *arguments: Any) -> int:
    """Returns the multiply-adds of the matrix products in a call; see TensorFlow's."""
    return _products(jax.make_jaxpr(function)(*arguments))


def _products(program: Any) -> int:
    total = 0
    for step in program.eqns:
        if step.primitive.name == "dot_general":
            (summed, _), _ = step.params["dimension_numbers"]
            shape = step.invars[0].aval.shape
            depth = math.prod(shape[axis] for axis in summed)
            total += depth * step.outvars[0].aval.size
        inner = [value for value in step.params.values() if hasattr(value, "eqns")]
        total += step.params.get("length", 1) * sum(map(_products, inner))
    return total


class _Block(NamedTuple):
    """Consecutive rows, or words, of `[N, ...]`.

    An array has a size that is known when it is compiled. So a block has always `most` rows, from
    `begin` on, of which those that `counts` says are meant.
    """

    begin: Tensor
    most: int
    counts: Tensor

    def slice(self, values: Tensor, other: float = 0) -> Tensor:
        """Returns the block's rows of `[N, ...]`, `other` in those that do not count."""
        rows = jax.lax.dynamic_slice_in_dim(values, self.begin, self.most)
        return jnp.where(self._columns(rows), rows, other)

    def places(self, size: int) -> Tensor:
        """Returns which of N rows the block has, int32."""
        return self.begin + jnp.arange(self.most, dtype="int32")

    def only(self, values: Tensor, other: float) -> Tensor:
        """Returns `[..., rows of the block]`, `other` in those that do not count."""
        return jnp.where(self.counts, values, other)

    def add_to(self, values: Tensor, rows: Tensor) -> Tensor:
        """Adds rows to `[N, ...]` at the places of the block."""
        before = jax.lax.dynamic_slice_in_dim(values, self.begin, self.most)
        rows = jnp.where(self._columns(rows), rows, 0)
        after = before + rows
        return jax.lax.dynamic_update_slice_in_dim(values, after, self.begin, axis=0)

    def _columns(self, rows: Tensor) -> Tensor:
        ones = [1] * (rows.ndim - 1)
        return self.counts.reshape([-1, *ones])


def fold_blocks(
    body: Callable[[Any, Any], Any],
    sums: Any,
    row_range: tuple[Any, Any],
    limit: int,
    size: int,
) -> Any:
    """Applies a function to one block of rows after another; see TensorFlow's."""
    start, stop = row_range
    most = min(size, limit)

    def step(loop: tuple) -> tuple:
        first, sums = loop
        begin = jnp.minimum(first, size - most)
        places = begin + jnp.arange(most, dtype="int32")
        counts = (places >= first) & (places < stop)
        sums = body(_Block(begin, most, counts), sums)
        return first + limit, sums

    def unfinished(loop: tuple) -> Tensor:
        return loop[0] < stop

    loop = jnp.asarray(start, "int32"), sums
    _, sums = jax.lax.while_loop(unfinished, step, loop)
    return sums


def verified(tensor: Tensor, holds: Any, message: str, *data: Any) -> Tensor:
    """Returns a tensor once something holds.

    Under `jit` the values are not there to be checked: real numbers become NaN, and integers the
    largest one, which is no id of a word, so that what is looked up with it is NaN.

    Args:
        tensor: what is returned.
        holds: a bool scalar.
        message: of the error, which `data` ends.
        *data: arrays and strings.

    Raises:
        ValueError: it is known not to hold.
    """
    if isinstance(holds, jax.core.Tracer):
        mark = jnp.nan
        if jnp.issubdtype(tensor.dtype, jnp.integer):
            mark = jnp.iinfo(tensor.dtype).max
        return jnp.where(holds, tensor, mark)
    if not holds:
        raise ValueError(" ".join([message, *map(str, data)]))
    return tensor


def next_seed(seed_generator: keras.random.SeedGenerator) -> Tensor:
    """Advances the generator and returns a seed, int32 `[2]`."""
    return jnp.asarray(seed_generator.next()).astype("int32")


class Buffers:
    """Numbers that a function reads and updates in place; see the one of TensorFlow.

    Reading and writing are two programs: XLA copies a buffer that one program does both to. Weights
    are constants of the first: as arguments their parts would be copied at each call. It is
    compiled anew when they have changed.
    """

    def __init__(
        self,
        model: Any,
        begun: Mapping[str, Any],
        places: Any,
        run: Callable[..., Any],
    ) -> None:
        self._variables = model.variables
        self._buffers = {name: jnp.asarray(entries) for name, entries in begun.items()}
        self._places = jnp.asarray(places)
        self._run = run
        self._values: list[Tensor] = []
        self._compute = jax.jit(self._traced)

    def advance(self, inputs: list[Tensor]) -> list[Tensor]:
        """Calls the function, and returns its outputs."""
        values = [variable.value for variable in self._variables]
        if list(map(id, values)) != list(map(id, self._values)):
            self._values = values
            self._compute = jax.jit(self._traced)
        outputs, written, self._places = self._compute(
            self._buffers, self._places, inputs
        )
        self._buffers = _written(self._buffers, written)
        return outputs

    def overwrite(self, name: str, chosen: Tensor, entries: Any) -> None:
        """Writes the entries of a buffer where `chosen`, bool `[N]`, is true."""
        buffer = self._buffers[name]
        chosen = chosen.reshape([-1] + [1] * (buffer.ndim - 1))
        self._buffers[name] = jnp.where(chosen, entries, buffer)

    def _traced(
        self, buffers: dict[str, Tensor], places: Tensor, inputs: list[Tensor]
    ) -> Any:
        # Keras's cells advance their seeds, at inference too.
        with keras.StatelessScope():
            return self._run(lambda name, where: buffers[name][where], places, inputs)


@functools.partial(jax.jit, donate_argnums=0)
def _written(
    buffers: dict[str, Tensor], written: Mapping[str, Any]
) -> dict[str, Tensor]:
    after = {}
    for name, (places, entries) in written.items():
        flat = entries.reshape([-1, *entries.shape[2:]])
        after[name] = buffers[name].at[places.reshape([-1])].set(flat)
    return after


# Random bits that are TensorFlow's: `formats.philox` of a seed and a place


def stream_seed(seed: Tensor, name: str) -> Tensor:
    """Returns the seed `[2]` of the random stream `name`; see TensorFlow's."""
    return fold_in(seed, zlib.crc32(name.encode()) >> 1)


def fold_in(seed: Tensor, data: int) -> Tensor:
    """Returns a new seed `[2]` that depends on a seed, int32 `[2]`, and on an integer."""
    first = uniform_bits([1], seed)[0].astype("int32")
    return jnp.stack([first, jnp.asarray(data, "int32")])


def dropout_mask(
    seed: Tensor, name: str, rate: float, shape: Sequence[int], dtype: Any
) -> Tensor:
    """Returns a mask of inverted dropout; see TensorFlow's, whose bits it has."""
    bits = uniform_bits(shape, stream_seed(seed, name))
    is_retained = bits >= np.uint32(int(rate * 2**32))
    return is_retained.astype(dtype) * (1.0 / (1.0 - rate))


def uniform_bits(shape: Sequence[int], seed: Tensor) -> Tensor:
    """Returns the uint32 numbers of `tf.random.stateless_uniform`.

    Args:
        shape: the result's shape, of less than 2**34 numbers.
        seed: int32 `[2]`.
    """
    seed = jnp.asarray(seed, "int32")[:, None]
    low, high = seed.astype("uint32"), (seed >> 31).astype("uint32")  # of 64 bits each
    words = low[0], high[0], low[1], high[1]
    return philox.seeded(words, math.prod(shape), jnp, _philox).reshape(shape)


def row_bits(seeds: Tensor, numbers: Tensor, count: int) -> Tensor:
    """Returns uniform uint32 numbers `[B, count]`; see TensorFlow's."""
    *key, row = seeds.astype("uint32").T[..., None]
    number = numbers.astype("uint32")[:, None]
    others = row, number, jnp.zeros_like(number)
    return philox.stream(key, others, count, jnp, _philox)


def _philox(counters: _Words, key: _Words) -> _Words:
    """Returns the four words of the block of each counter, of four words, and a key of two."""

    # A loop: without one, XLA computes most of each round again in the next.
    def turn(_: Any, state: tuple[_Words, _Words]) -> tuple[_Words, _Words]:
        return philox.turned(*state, _word_product)

    words, _ = jax.lax.fori_loop(0, philox.ROUNDS, turn, (counters, key))
    return words


def _word_product(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """Returns both words of a product of two: JAX has no longer integers unless it is told to."""
    half = np.uint32(0xFFFF)
    low, high = np.uint32(multiplier & 0xFFFF), np.uint32(multiplier >> 16)
    below, above = word & half, word >> 16
    middle = above * low + (below * low >> 16)
    carried = below * high + (middle & half)
    return (
        above * high + (middle >> 16) + (carried >> 16),
        word * np.uint32(multiplier),
    )


# The gradient of a fixed point


def fixed_point(
    find: Callable[..., tuple[Tensor, Any]],
    function: Callable[[Tensor, Any], Tensor],
    guess: Tensor,
    parameters: Any,
    solved: Tensor | None,
) -> tuple[Tensor, Any]:
    """Returns z with z = f(z, a), and how far it came; differentiable with respect to a.

    For dL/dz = v the gradient is u df/da, where u solves u = v + u df/dz. That system is solved as
    z was, on products of u with the Jacobian of f at z.

    The solver is a `jax.lax.while_loop`, which has no derivative in reverse. So the gradient is
    that of the implicit function theorem always, in training and not: its memory is that of one
    application of the map, for any number of iterations. As it takes the fixed point for exact, it
    has an error of the size of the tolerance. It cannot be differentiated itself.

    Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
    https://arxiv.org/abs/1909.01377, theorem 1.

    Args:
        find: `core.fixed_point.solve` with its tolerance and bound.
        function: f, which depends on no other array that has a gradient.
        guess: the first iterate.
        parameters: a, a nest of arrays.
        solved: as for `solve`.
    """

    @jax.custom_vjp
    def apply(parameters: Any, guess: Tensor, solved: Tensor | None) -> Any:
        def iterate(z: Tensor) -> Tensor:
            return function(z, parameters)

        return find(iterate, guess, solved=solved)

    def forward(parameters: Any, guess: Tensor, solved: Tensor | None) -> Any:
        state, convergence = apply(parameters, guess, solved)
        return (state, convergence), (state, parameters)

    def backward(residuals: Any, upstream: Any) -> Any:
        state, parameters = residuals
        by_after, _ = upstream

        def by_iterate(z: Tensor) -> Tensor:
            return function(z, parameters)

        _, pull_back = jax.vjp(by_iterate, state)

        def advance(u: Tensor) -> Tensor:
            (by_state,) = pull_back(u)
            return by_after + by_state

        u, _ = find(advance, by_after, reverse=True)
        by_parameters_alone = functools.partial(function, state)
        _, pull_back = jax.vjp(by_parameters_alone, parameters)
        (by_parameters,) = pull_back(_only_first(u))
        return by_parameters, None, None

    apply.defvjp(forward, backward)
    return apply(parameters, guess, solved)


@jax.custom_jvp
def _only_first(gradient: Tensor) -> Tensor:
    """Returns a gradient that cannot be differentiated."""
    return gradient


@_only_first.defjvp
def _refuse(primals: Any, tangents: Any) -> NoReturn:
    # It would miss that z, a constant in `backward`, depends on a.
    raise NotImplementedError(
        "An EquilibriumTrellisLayer has first gradients alone: its gradient cannot be "
        "differentiated."
    )
