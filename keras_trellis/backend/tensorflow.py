"""TensorFlow: masks by name, assertions in graphs, ragged tensors.

A mask is a pure function of a seed and a name, the same eagerly, in a graph and under XLA. The
generator is always Philox, since TensorFlow's default differs under XLA.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_trellis.backend.direct import *  # noqa: F403
from keras_trellis.types import Number, Tensor

NAME = "tensorflow"

_GENERATOR = "philox"
ONNX_OPSET = 18

Shape: TypeAlias = Sequence[Number] | Tensor


def is_ragged(value: Any) -> bool:
    """Returns whether a value is a ragged tensor, whose `to_tensor` makes it dense."""
    return isinstance(value, tf.RaggedTensor)


def is_sparse(value: Any) -> bool:
    """Returns whether a value is a sparse tensor."""
    return isinstance(value, tf.SparseTensor)


def to_tensor(value: Any) -> Tensor:
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
) -> Tensor:
    """Returns a tensor once a graph has checked its shape as it runs.

    Args:
        tensor: of any shape.
        wanted: the size of each axis, an integer or a scalar; None: any size.
        static: the sizes that are known.
        message: of the error, before the shape.
    """
    shape = tf.shape(tensor)
    numbers = tf.stack([-1 if size is None else size for size in wanted])
    has_rank = tf.size(shape) == len(static)
    fits = (shape == numbers) | (numbers < 0)
    holds = has_rank & tf.reduce_all(fits)
    tensor = verified(tensor, holds, message, shape, "instead of", numbers)
    if None not in wanted:
        tensor = tf.reshape(tensor, numbers)  # XLA refuses other sizes here
    # After `tf.ensure_shape` XLA does not know the sizes any more.
    tensor.set_shape(static)
    return tensor


def static_value(number: Number) -> int | None:
    """Returns an integer, or the value of a scalar if it is known."""
    known = tf.get_static_value(number)
    if known is None:
        return None
    return int(known)


def with_static_shape(tensor: tf.Tensor, other: Tensor) -> Tensor:
    """Gives a tensor the static shape of another one: a loop variable has to keep its own."""
    known = tensor.shape.is_subtype_of(other.shape)
    # LiteRT has no such operation.
    if known:
        return tensor
    return tf.ensure_shape(tensor, other.shape)


def with_sizes(tensor: Tensor, sizes: Sequence[int | None]) -> Tensor:
    """Returns a tensor whose graph knows these sizes; None: any size."""
    return tf.ensure_shape(tensor, sizes)


Trackable: TypeAlias = tf.Module
"""What an object with variables of its own derives from, so that it is exported."""


def cache_variables(begin: Callable[[], Any]) -> Any:
    """Returns variables, not among a layer's weights, with the values of a nest of tensors."""
    with tf.init_scope():
        return tf.nest.map_structure(_cache_variable, begin())


def _cache_variable(value: Tensor) -> tf.Variable:
    # Under a strategy every replica goes on with its own rows.
    return tf.Variable(
        value,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def read(variable: tf.Variable) -> Tensor:
    """Returns the value of a variable of `cache_variables`."""
    return variable.read_value()


def value(variable: keras.Variable) -> Tensor:
    """Returns the value of one of Keras's variables.

    `ops.convert_to_tensor` returns the variable, which Keras on TensorFlow counts as a tensor.
    """
    return tf.convert_to_tensor(variable)


def register_as_tensor(kind: type) -> None:
    """Lets TensorFlow take objects with a `value` for tensors."""

    def convert(
        state: Any,
        dtype: Any = None,
        name: str | None = None,
        as_ref: bool = False,
    ) -> Tensor:
        return tf.convert_to_tensor(state.value, dtype)

    tf.register_tensor_conversion_function(kind, convert)


def mean(values: Tensor) -> Tensor:
    """Returns the mean over the last axis, which stays."""
    return tf.reduce_mean(values, axis=-1, keepdims=True)


def gather_steps(sequences: Tensor, places: Tensor) -> Tensor:
    """Returns the steps of `[B, T, ...]` at places `[B, n]` of each row: `[B, n, ...]`."""
    return tf.gather(sequences, places, axis=1, batch_dims=1)


def inverse_permutation(places: Tensor) -> Tensor:
    """Returns which step stands at each place, `[B, T]`.

    Args:
        places: the place of each step, `[B, T]`; all places of a row differ.
    """
    return tf.argsort(places, axis=1)


def integers(count: Number, dtype: str) -> Tensor:
    """Returns 0, 1, ..., `[count]`."""
    return tf.range(count, dtype=dtype)


def join(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Returns tensors of one dtype joined along an axis, 0 or more."""
    return tf.concat(tensors, axis)


def split(tensor: Tensor, sizes: Sequence[int], axis: int = -1) -> list[Tensor]:
    """Returns the parts of a tensor that have these sizes along an axis."""
    return tf.split(tensor, sizes, axis)


def crop(sequences: Tensor, before: Number, after: int = 0) -> Tensor:
    """Returns `[B, T, ...]` without the first `before` and the last `after` steps."""
    # The gradient of a split takes a fraction of the time of that of an index. ONNX Runtime has no
    # split of size -1 where T is unknown.
    steps = sequences.shape[1]
    if steps is None:
        steps = tf.shape(sequences)[1]
    sizes = [before, steps - before - after, *([after] if after else [])]
    return tf.split(sequences, sizes, axis=1)[1]


def take(values: Tensor, places: Any, axis: int = 0) -> Tensor:
    """Returns the slices along an axis at places, integers of any shape, each within the axis."""
    return tf.gather(values, places, axis=axis)


def argmax(values: Tensor) -> Tensor:
    """Returns the place of the largest of `[..., N]`, of equals the first: int32 `[...]`."""
    return tf.argmax(values, axis=-1, output_type=tf.int32)


def matmul(
    one: Tensor,
    other: Tensor,
    transpose_one: bool = False,
    transpose_other: bool = False,
) -> Tensor:
    """Returns the product of two matrices, each transposed first if it says so."""
    return tf.matmul(one, other, transpose_a=transpose_one, transpose_b=transpose_other)


def rows(sequences: Tensor) -> Tensor:
    """Returns `[B, T, C]` as `[B * T, C]`."""
    return tf.reshape(sequences, [-1, sequences.shape[-1]])


def multiply(sequences: Tensor, matrix: Tensor, transpose: bool = False) -> Tensor:
    """Returns `[B, T, C]` times `[C, C']` (or its transpose), `[B, T, C']`, as one 2-D product.

    A product of three dimensions is slower, and XLA cannot differentiate `tf.tensordot` in a loop
    with unknown sizes.
    """
    products = tf.matmul(rows(sequences), matrix, transpose_b=transpose)
    channels = products.shape[-1]
    steps = sequences.shape[1]
    if steps:  # fewer operations, which counts where there is a single step
        return tf.reshape(products, [-1, steps, channels])
    rows_and_steps = tf.shape(sequences)[:2]
    shape = tf.concat([rows_and_steps, [channels]], axis=0)
    return tf.reshape(products, shape)


def custom_gradient(function: Callable) -> Callable:
    """Returns a function with a gradient of its own.

    Args:
        function: from tensors to a tuple of tensors, and to the function from the gradients with
            respect to these to those with respect to the arguments.
    """
    return tf.custom_gradient(function)


def compiled(function: Callable, model: Any, sizes: Sequence[str]) -> Callable:
    """Returns a function as a graph, which is traced once for all sizes and lengths.

    Args:
        function: a function of tensors that reads the variables of a model.
        model: the model.
        sizes: the names of the arguments that are sizes, given by name.
    """
    graph = tf.function(function, reduce_retracing=True, autograph=False)

    def call(*arguments: Any, **named: Any) -> Any:
        for name in sizes:
            named[name] = tf.convert_to_tensor(named[name])
        return graph(*arguments, **named)

    return call


def multiply_adds(function: Callable, *arguments: Any) -> int:
    """Returns the multiply-adds of the matrix products in a call of a function of tensors."""
    transposed = {"MatMul": "transpose_a", "BatchMatMulV2": "adj_x"}
    traced = tf.function(function, autograph=False).get_concrete_function(*arguments)
    total = 0
    for op in traced.graph.get_operations():
        if op.type in transposed:
            axis = -2 if op.get_attr(transposed[op.type]) else -1
            total += op.inputs[0].shape[axis] * op.outputs[0].shape.num_elements()
    return total


class _Block(NamedTuple):
    """Consecutive rows, or words, of `[N, ...]`.

    `slice` cuts twice: first `most` rows from `begin`, then `size` of these from `offset`. XLA
    knows `most`, so it computes no more rows than that.
    """

    begin: Tensor
    most: Tensor
    offset: Tensor
    size: Tensor

    def slice(self, values: Tensor, other: float = 0) -> Tensor:
        """Returns the block's rows of `[N, ...]`; there are no others."""
        ahead = _cut(values, self.begin, self.most)
        return _cut(ahead, self.offset, self.size)

    def places(self, size: Tensor | int) -> Tensor:
        """Returns which of N rows the block has, int32."""
        return self.slice(tf.range(size))

    def only(self, values: Tensor, other: float) -> Tensor:
        """Returns `[..., rows of the block]`: all of them count."""
        return values

    def add_to(self, values: Tensor, rows: Tensor) -> Tensor:
        """Adds rows to `[N, ...]` at the places of the block."""
        count = tf.shape(values)[0]
        indices = self.places(count)[:, None]
        return tf.tensor_scatter_nd_add(values, indices, rows)


def _cut(values: Tensor, begin: Tensor, size: Tensor) -> Tensor:
    others = tf.shape(values)[1:]
    begins = tf.concat([[begin], tf.zeros_like(others)], axis=0)
    sizes = tf.concat([[size], others], axis=0)
    return tf.slice(values, begins, sizes)


def fold_blocks(
    body: Callable[[Any, Any], Any],
    sums: Any,
    row_range: tuple[Number, Number],
    limit: int,
    size: Number,
) -> Any:
    """Applies a function to one block of rows after another.

    Args:
        body: (block, sums) to the next sums. A block has `slice`, `places`, `only` and `add_to`.
        sums: a nest of tensors.
        row_range: the first row, and the one after the last.
        limit: the most rows of a block.
        size: N, the number of all rows.

    Returns:
        the last sums.
    """
    start, stop = row_range

    def step(first: Tensor, sums: Any) -> tuple:
        most = tf.minimum(size, limit)
        begin = tf.minimum(first, size - most)
        block = _Block(
            begin=begin,
            most=most,
            offset=first - begin,
            size=tf.minimum(limit, stop - first),
        )
        sums = body(block, sums)
        return first + block.size, sums

    def unfinished(first: Tensor, _: Any) -> Tensor:
        return first < stop

    loop = (tf.convert_to_tensor(start), sums)
    # One block at a time: TensorFlow would start the next ones early, and hold their results.
    _, sums = tf.while_loop(unfinished, step, loop, parallel_iterations=1)
    return sums


def while_loop(goes_on: Callable, body: Callable, state: Any, most: int) -> Any:
    """Runs a body while something holds.

    Args:
        goes_on: from the state to whether it does.
        body: from the state to the next.
        state: a tuple.
        most: how many turns there are at most.
    """
    return keras.ops.while_loop(goes_on, body, state, maximum_iterations=most)


def scan(
    step: Callable[[Any, Any], tuple[Any, Tensor]], state: tuple, inputs: tuple
) -> tuple[tuple, Tensor]:
    """Runs a step over the first axis of inputs; returns the last state and all outputs.

    Keras takes for the outputs what has the state's shapes. So they are made a part of it.
    """
    first = tuple(tensor[0] for tensor in inputs)
    _, output = step(state, first)

    def advance(carried: tuple, now: tuple) -> tuple[tuple, tuple]:
        *before, _ = carried
        after, output = step(tuple(before), now)
        results = (*after, output)
        return results, results

    begin = (*state, keras.ops.zeros_like(output))
    (*last, _), (*_, outputs) = keras.ops.scan(advance, begin, inputs)
    return tuple(last), outputs


def num_replicas() -> int:
    """Returns how many replicas of a model train together."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def replica_sum(value: Tensor) -> Tensor:
    """Returns the sum of a value over all replicas."""
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return value
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, value)


def verified(tensor: Tensor, holds: Tensor, message: str, *data: Any) -> Tensor:
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
            words = [message, *map(_text, data)]
            raise ValueError(" ".join(words))
        return tensor
    # `tf.debugging.Assert` would put a tf.cond around it, two functions more in the graph.
    assertion = tf.raw_ops.Assert(condition=holds, data=[message, *data], summarize=8)
    with tf.control_dependencies([assertion]):
        return tf.identity(tensor)


def _text(value: Any) -> str:
    if tf.is_tensor(value):
        value = value.numpy()
    return str(value)


def next_seed(seed_generator: keras.random.SeedGenerator) -> Tensor:
    """Advances the generator and returns a seed, int32 `[2]`; every replica gets another one."""
    seed = tf.cast(seed_generator.next(), tf.int32)
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, replica.replica_id_in_sync_group)


def stream_seed(seed: Tensor, name: str) -> Tensor:
    """Returns the seed `[2]` of the random stream `name`, derived from `seed` `[2]`.

    The name is hashed the same way in every process. Give each use a name of its own.
    """
    return fold_in(seed, zlib.crc32(name.encode()) >> 1)  # an int32


def fold_in(seed: Tensor, data: Number) -> Tensor:
    """Returns a new seed `[2]` that depends on `seed` `[2]` and on an integer."""
    return tf.random.fold_in(seed, data, alg=_GENERATOR)


def dropout_mask(
    seed: Tensor, name: str, rate: float, shape: Shape, dtype: tf.DType | str
) -> Tensor:
    """Returns a mask of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        seed: int32 `[2]`, as `next_seed` returns it.
        name: the name of the random stream.
        rate: the probability of a zero, in [0, 1).
        shape: the mask's shape.
        dtype: the mask's type.
    """
    least = tf.constant(int(rate * 2**32), tf.uint32)
    bits = uniform_bits(shape, stream_seed(seed, name))
    is_retained = bits >= least
    scale = 1.0 / (1.0 - rate)
    return tf.cast(is_retained, dtype) * scale


def uniform_bits(shape: Shape, seed: Tensor) -> Tensor:
    """Returns uniform uint32 numbers.

    They are integers: XLA and TensorFlow's kernels turn the same bits into different floats.

    Args:
        shape: the result's shape.
        seed: int32 `[2]`.
    """
    return tf.random.stateless_uniform(
        shape,
        seed,
        minval=None,
        maxval=None,
        dtype=tf.uint32,
        alg=_GENERATOR,
    )


def random_words() -> Tensor:
    """Returns two random words, int32 `[2]`."""
    return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)


def row_bits(seeds: Tensor, numbers: Tensor, count: Number) -> Tensor:
    """Returns uniform uint32 numbers `[B, count]`, as `formats.philox.bits`.

    Args:
        seeds: int32 `[B, 3]`, the words of a row's seed, the lower one first, and the row.
        numbers: int32 `[B]`.
        count: how many to draw for each row.
    """

    def bits(row: tuple[Tensor, Tensor]) -> Tensor:
        key, counter = row
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[count],
            key=key,
            counter=counter,
            alg=tf.random.Algorithm.PHILOX.value,
            dtype=tf.uint32,
        )

    # TensorFlow counts up from two words of 64 bits, the lower one first.
    zeros = tf.zeros_like(numbers)
    counters = tf.stack([zeros, seeds[:, 2], numbers, zeros], axis=-1)
    counters = tf.bitcast(tf.reshape(counters, [-1, 2, 2]), tf.uint64)
    keys = tf.bitcast(seeds[:, None, :2], tf.uint64)
    known = count if isinstance(count, int) else None
    spec = tf.TensorSpec([known], tf.uint32)
    return tf.map_fn(bits, (keys, counters), fn_output_signature=spec)


class Buffers:
    """Numbers that a function reads and updates in place.

    Args:
        model: the model whose weights the function reads.
        begun: the buffers at first, each `[N, ...]`, by name.
        places: integers that it updates too.
        run: the function, of what reads entries of a buffer at places, of the integers, and of the
            inputs; it returns its outputs, for each buffer the places to write and what to write
            there, and the next integers.
    """

    def __init__(
        self,
        model: Any,
        begun: Mapping[str, Any],
        places: Any,
        run: Callable[..., Any],
    ) -> None:
        self._buffers = {
            name: tf.Variable(entries, trainable=False)
            for name, entries in begun.items()
        }
        self._places = tf.Variable(places, trainable=False)
        self._run = run
        self._advance = tf.function(self._traced, autograph=False)

    def advance(self, inputs: list[Tensor]) -> list[Tensor]:
        """Calls the function, and returns its outputs."""
        return self._advance(inputs)

    def overwrite(self, name: str, chosen: Tensor, entries: Any) -> None:
        """Writes the entries of a buffer where `chosen`, bool `[N]`, is true."""
        buffer = self._buffers[name]
        chosen = tf.reshape(chosen, [-1] + [1] * (buffer.shape.rank - 1))
        buffer.assign(tf.where(chosen, entries, buffer))

    def _traced(self, inputs: list[Tensor]) -> list[Tensor]:
        outputs, written, places = self._run(self._read, self._places.value(), inputs)
        for name, (where, entries) in written.items():
            updates = tf.IndexedSlices(_flat(entries), tf.reshape(where, [-1]))
            self._buffers[name].scatter_update(updates)
        self._places.assign(places)
        return outputs

    def _read(self, name: str, places: Tensor) -> Tensor:
        return self._buffers[name].sparse_read(places)


def _flat(entries: Tensor) -> Tensor:
    return tf.reshape(entries, tf.concat([[-1], tf.shape(entries)[2:]], 0))


def onnx_model(
    call: Callable[..., Mapping[str, Tensor]], specs: Sequence[tf.TensorSpec]
) -> Any:
    """Returns a function as an ONNX model, by tf2onnx.

    Args:
        call: from tensors to tensors by name. In ONNX no output has the name of an input: one that
            has gets `NEXT` before it.
        specs: of the inputs, with their names.

    Raises:
        Exception: whatever the converter raises, or the check of what it returns.
    """
    import onnx
    import tf2onnx

    from keras_trellis.formats.names import NEXT

    taken = {spec.name for spec in specs}

    def named(*values: Tensor) -> dict[str, Tensor]:
        return {
            f"{NEXT}{name}" if name in taken else name: tf.identity(value)
            for name, value in call(*values).items()
        }

    function = tf.function(named, input_signature=specs, autograph=False)
    model, _ = tf2onnx.convert.from_function(
        function,
        input_signature=specs,
        opset=ONNX_OPSET,
        custom_op_handlers={"Erfc": (_erfc, [])},
    )
    _hold_constants(model.graph, function.get_concrete_function())
    onnx.checker.check_model(model)  # the converter leaves in what it does not know
    return model


def _erfc(context: Any, node: Any, name: str, args: Any) -> None:
    """Writes 1 - erf(x) for TensorFlow's Erfc, which a GELU becomes and ONNX does not have."""
    node.type = "Erf"
    one = context.make_const(f"{name}__one", np.array(1, np.float32))
    (output,) = node.output
    result = context.make_node("Sub", [one.output[0], output], name=f"{name}__erfc")
    others = [other for other in context.get_nodes() if other is not result]
    context.replace_all_inputs(output, result.output[0], ops=others)


def _hold_constants(graph: Any, function: Any) -> None:
    """Puts the tensors of layers that are no variables into an ONNX graph, which asks for them."""
    from onnx import numpy_helper

    values = function.captured_inputs
    first = len(function.inputs) - len(values)
    names = [tensor.name for tensor in function.inputs[first:]]
    captured = dict(zip(names, values, strict=True))
    asked = [tensor for tensor in graph.input if tensor.name in captured]
    for tensor in asked:
        value = captured[tensor.name].numpy()
        constant = numpy_helper.from_array(value, tensor.name)
        graph.initializer.append(constant)
        graph.input.remove(tensor)
