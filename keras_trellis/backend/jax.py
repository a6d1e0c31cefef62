"""JAX: masks by draws of Keras's generator, checks of values that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.experimental.sparse
import keras
import numpy as np
from jax import numpy as jnp

from keras_trellis.backend.jax_fixed_point import fixed_point as fixed_point
from keras_trellis.backend.shared import *  # noqa: F403

NAME = "jax"


def is_sparse(value: Any) -> bool:
    """Returns whether a value is a sparse array of JAX."""
    return isinstance(value, jax.experimental.sparse.JAXSparse)


def to_tensor(value: Any) -> jax.Array:
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
        is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        return (function if is_traced else program)(*arguments, **named)

    return call


def repeat(body: Callable[[Any, Any], Any], state: Any, turns: int) -> Any:
    """Returns what a number of turns make of a state, by one loop, which is compiled once."""
    if turns > 1:
        return jax.lax.fori_loop(0, turns, body, state)
    return body(0, state) if turns else state


def saving_products(function: Callable) -> Callable:
    """Returns a function whose gradient saves the results of its matrix products alone.

    The rest is computed again, which is cheaper than to write it to new memory: a training step
    of a trellis network takes a fifth less processor time.
    """
    # Within a loop, XLA does not undo the second computation.
    policy = jax.checkpoint_policies.dots_saveable
    return jax.checkpoint(function, policy=policy, prevent_cse=False)


def tanh(tensor: jax.Array) -> jax.Array:
    """Returns the hyperbolic tangent; Keras's takes that of float64 in float32."""
    return jnp.tanh(tensor)


def mean(values: jax.Array) -> jax.Array:
    """Returns the mean over the last axis, which stays; Keras's has the precision of float32."""
    return jnp.mean(values, axis=-1, keepdims=True)


def gather_steps(sequences: jax.Array, places: jax.Array) -> jax.Array:
    """Returns the steps of `[B, T, ...]` at places `[B, n]` of each row: `[B, n, ...]`."""
    channels = sequences.ndim - places.ndim
    places = places.reshape(places.shape + (1,) * channels)
    return jnp.take_along_axis(sequences, places, axis=1)


def split(tensor: jax.Array, sizes: Sequence[int], axis: int = -1) -> list[jax.Array]:
    """Returns the parts of a tensor that have these sizes along an axis."""
    return jnp.split(tensor, np.cumsum(sizes)[:-1], axis)


def take(values: jax.Array, places: Any, axis: int = 0) -> jax.Array:
    """Returns the slices along an axis at places, integers of any shape, each within the axis."""
    return jnp.take(values, jnp.asarray(places), axis=axis)


def argmax(values: jax.Array) -> jax.Array:
    """Returns the place of the largest of `[..., N]`, of equals the first: int32 `[...]`."""
    return jnp.argmax(values, axis=-1).astype("int32")


def custom_gradient(function: Callable) -> Callable:
    """Returns a function with a gradient of its own; see TensorFlow's."""

    def with_rule(*arguments: jax.Array) -> tuple:
        results, gradient = function(*arguments)
        return results, lambda sums: tuple(gradient(*sums))

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
        mapping = list(zip(model.variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function(*arguments, **named)

    program = jax.jit(stateless, static_argnames=sizes)

    def call(*arguments: Any, **named: Any) -> Any:
        values = [variable.value for variable in model.variables]
        return program(values, *arguments, **named)

    return call


class _Block(NamedTuple):
    """Consecutive rows, or words, of `[N, ...]`.

    An array has a size that is known when it is compiled. So a block has always `most` rows, from
    `begin` on, of which those that `counts` says are meant.
    """

    begin: jax.Array
    most: int
    counts: jax.Array

    def slice(self, values: jax.Array, other: float = 0) -> jax.Array:
        """Returns the block's rows of `[N, ...]`, `other` in those that do not count."""
        rows = jax.lax.dynamic_slice_in_dim(values, self.begin, self.most)
        return jnp.where(self._columns(rows), rows, other)

    def places(self, size: int) -> jax.Array:
        """Returns which of N rows the block has, int32."""
        return self.begin + jnp.arange(self.most, dtype="int32")

    def only(self, values: jax.Array, other: float) -> jax.Array:
        """Returns `[..., rows of the block]`, `other` in those that do not count."""
        return jnp.where(self.counts, values, other)

    def add_to(self, values: jax.Array, rows: jax.Array) -> jax.Array:
        """Adds rows to `[N, ...]` at the places of the block."""
        before = jax.lax.dynamic_slice_in_dim(values, self.begin, self.most)
        rows = jnp.where(self._columns(rows), rows, 0)
        return jax.lax.dynamic_update_slice_in_dim(
            values, before + rows, self.begin, axis=0
        )

    def _columns(self, rows: jax.Array) -> jax.Array:
        return self.counts.reshape([-1] + [1] * (rows.ndim - 1))


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
        return first + limit, body(_Block(begin, most, counts), sums)

    def unfinished(loop: tuple) -> jax.Array:
        return loop[0] < stop

    loop = jnp.asarray(start, "int32"), sums
    _, sums = jax.lax.while_loop(unfinished, step, loop)
    return sums


def verified(tensor: jax.Array, holds: Any, message: str, *data: Any) -> Any:
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
        if jnp.issubdtype(tensor.dtype, jnp.integer):
            return jnp.where(holds, tensor, jnp.iinfo(tensor.dtype).max)
        return jnp.where(holds, tensor, jnp.nan)
    if not holds:
        raise ValueError(" ".join([message, *map(str, data)]))
    return tensor


def row_seeds(number: int | None, rows: int) -> jax.Array:
    """Returns one key a row, `[B]`.

    Args:
        number: any integer, of which 64 bits count; None: drawn at random.
        rows: B.
    """
    if number is None:
        low, high = keras.random.randint([2], 0, 2**31 - 1)
    else:
        low, high = number & (2**32 - 1), number >> 32 & (2**32 - 1)
    words = jnp.stack([jnp.asarray(high, "uint32"), jnp.asarray(low, "uint32")])
    # By name, so that a seed means the same whatever JAX's default generator is.
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(rows))


def row_bits(seeds: jax.Array, numbers: jax.Array, count: int) -> jax.Array:
    """Returns uniform uint32 numbers `[B, count]`; a row's depend on its seed and number alone.

    Args:
        seeds: from `row_seeds`.
        numbers: integers `[B]`.
        count: how many to draw for each row.
    """

    def bits(seed: jax.Array, number: jax.Array) -> jax.Array:
        return jax.random.bits(jax.random.fold_in(seed, number), (count,), "uint32")

    return jax.vmap(bits)(seeds, numbers)
