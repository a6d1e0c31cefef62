"""TensorFlow: masks by name, assertions in graphs, ragged tensors.

A mask is a pure function of a seed and a name, the same eagerly, in a graph and under XLA. The
generator is always Philox, since TensorFlow's default differs under XLA.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from keras_trellis.types import Number

_GENERATOR = "philox"

Shape: TypeAlias = Sequence[Number] | tf.Tensor


def is_ragged(value: Any) -> bool:
    """Returns whether a value is a ragged tensor, whose `to_tensor` makes it dense."""
    return isinstance(value, tf.RaggedTensor)


def is_sparse(value: Any) -> bool:
    """Returns whether a value is a sparse tensor."""
    return isinstance(value, tf.SparseTensor)


def to_tensor(value: Any) -> tf.Tensor:
    """Returns a value as a tensor, of its own dtype.

    Raises:
        TypeError, ValueError: it is no array.
    """
    return tf.convert_to_tensor(value)


def dtype_name(dtype: Any) -> str:
    """Returns the name of any dtype, such as "float32"."""
    return tf.as_dtype(dtype).name


def static_shape(tensor: tf.Tensor) -> tuple[int | None, ...] | None:
    """Returns the sizes that are known, None in the place of others; None: the rank is unknown."""
    if tensor.shape.rank is None:
        return None
    return tuple(tensor.shape)


def with_dynamic_shape(
    tensor: tf.Tensor,
    wanted: Sequence[Number | None],
    static: Sequence[int | None],
    message: str,
) -> tf.Tensor:
    """Returns a tensor once a graph has checked its shape as it runs.

    Args:
        tensor: of any shape.
        wanted: the size of each axis, an integer or a scalar; None: any size.
        static: the sizes that are known.
        message: of the error, before the shape.
    """
    shape = tf.shape(tensor)
    numbers = tf.stack([-1 if size is None else size for size in wanted])
    fits = (shape == numbers) | (numbers < 0)
    holds = (tf.size(shape) == len(static)) & tf.reduce_all(fits)
    tensor = verified(tensor, holds, message, shape, "instead of", numbers)
    if None not in wanted:
        tensor = tf.reshape(tensor, numbers)  # XLA refuses other sizes here
    # After `tf.ensure_shape` XLA does not know the sizes any more.
    tensor.set_shape(static)
    return tensor


def static_value(number: Number) -> int | None:
    """Returns an integer, or the value of a scalar if it is known."""
    known = tf.get_static_value(number)
    return None if known is None else int(known)


def with_static_shape(tensor: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Gives a tensor the static shape of another one: a loop variable has to keep its own."""
    known = tensor.shape.is_subtype_of(other.shape)
    # LiteRT has no such operation.
    if known:
        return tensor
    return tf.ensure_shape(tensor, other.shape)


Trackable: TypeAlias = tf.Module
"""What an object with variables of its own derives from, so that it is exported."""


def cache_variables(begin: Callable[[], Any]) -> Any:
    """Returns variables, not among a layer's weights, with the values of a nest of tensors."""
    with tf.init_scope():
        return tf.nest.map_structure(_cache_variable, begin())


def _cache_variable(value: tf.Tensor) -> tf.Variable:
    # Under a strategy every replica goes on with its own rows.
    return tf.Variable(
        value,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def read(variable: tf.Variable) -> tf.Tensor:
    """Returns the value of a variable of `cache_variables`."""
    return variable.read_value()


def value(variable: keras.Variable) -> tf.Tensor:
    """Returns the value of one of Keras's variables.

    `ops.convert_to_tensor` returns the variable, which Keras on TensorFlow counts as a tensor.
    """
    return tf.convert_to_tensor(variable)


def register_as_tensor(kind: type) -> None:
    """Lets TensorFlow take objects with a `value` for tensors."""
    tf.register_tensor_conversion_function(
        kind,
        lambda state, dtype=None, name=None, as_ref=False: tf.convert_to_tensor(
            state.value, dtype
        ),
    )


def fixed_point(
    find: Callable[..., tuple[tf.Tensor, Any]],
    function: Callable[[tf.Tensor, Any], tf.Tensor],
    guess: tf.Tensor,
    parameters: Any,
    solved: tf.Tensor | None,
) -> tuple[tf.Tensor, Any]:
    """Returns z with z = f(z, a); its gradient is that of the iterations.

    Args:
        find: `core.fixed_point.solve` with its tolerance and bound.
        function: f.
        guess: the first iterate.
        parameters: a, a nest of tensors.
        solved: as for `solve`.

    Returns:
        z, and how far it came.
    """
    return find(lambda z: function(z, parameters), guess, solved=solved)


def jitted(function: Callable, static: Sequence[str]) -> Callable:
    """Returns the function: it needs no compilation."""
    return function


tanh = keras.activations.tanh
"""The hyperbolic tangent."""


def gather_steps(sequences: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Returns the steps of `[B, T, ...]` at places `[B, n]` of each row: `[B, n, ...]`."""
    return tf.gather(sequences, places, axis=1, batch_dims=1)


def split(tensor: tf.Tensor, sizes: Sequence[int], axis: int = -1) -> list[tf.Tensor]:
    """Returns the parts of a tensor that have these sizes along an axis."""
    return tf.split(tensor, sizes, axis)


def verified(tensor: tf.Tensor, holds: tf.Tensor, message: str, *data: Any) -> Any:
    """Returns a tensor once something holds.

    XLA leaves the assertion out.

    Args:
        tensor: what is returned.
        holds: a bool scalar.
        message: of the error, which `data` ends.
        *data: tensors and strings.

    Raises:
        ValueError: it does not hold, seen eagerly; a graph raises a
            `tf.errors.InvalidArgumentError` with the same message.
    """
    if tf.executing_eagerly():
        if not holds:
            raise ValueError(" ".join([message, *map(_text, data)]))
        return tensor
    # `tf.debugging.Assert` would put a tf.cond around it, two functions more in the graph.
    assertion = tf.raw_ops.Assert(condition=holds, data=[message, *data], summarize=8)
    with tf.control_dependencies([assertion]):
        return tf.identity(tensor)


def _text(value: Any) -> str:
    return str(value.numpy() if tf.is_tensor(value) else value)


def next_seed(seed_generator: keras.random.SeedGenerator) -> tf.Tensor:
    """Advances the generator and returns a seed, int32 `[2]`; every replica gets another one."""
    seed = tf.cast(seed_generator.next(), tf.int32)
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, replica.replica_id_in_sync_group)


def stream_seed(seed: tf.Tensor, name: str) -> tf.Tensor:
    """Returns the seed `[2]` of the random stream `name`, derived from `seed` `[2]`.

    The name is hashed the same way in every process. Give each use a name of its own.
    """
    return fold_in(seed, zlib.crc32(name.encode()) >> 1)  # an int32


def fold_in(seed: tf.Tensor, data: Number) -> tf.Tensor:
    """Returns a new seed `[2]` that depends on `seed` `[2]` and on an integer."""
    return tf.random.fold_in(seed, data, alg=_GENERATOR)


def dropout_mask(
    seed: tf.Tensor, name: str, rate: float, shape: Shape, dtype: tf.DType | str
) -> tf.Tensor:
    """Returns a mask of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        seed: int32 `[2]`, as `next_seed` returns it.
        name: the name of the random stream.
        rate: the probability of a zero, in [0, 1).
        shape: the mask's shape.
        dtype: the mask's type.
    """
    least = tf.constant(int(rate * 2**32), tf.uint32)
    is_retained = uniform_bits(shape, stream_seed(seed, name)) >= least
    return tf.cast(is_retained, dtype) * (1.0 / (1.0 - rate))


def uniform_bits(shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    """Returns uniform uint32 numbers.

    They are integers: XLA and TensorFlow's kernels turn the same bits into different floats.

    Args:
        shape: the result's shape.
        seed: int32 `[2]`.
    """
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.uint32, alg=_GENERATOR
    )
