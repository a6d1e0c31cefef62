"""torch: eager, so that values are seen and loops are Python's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import torch
from keras import ops
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from keras_trellis.backend.direct import *  # noqa: F403
from keras_trellis.backend.shared import *  # noqa: F403
from keras_trellis.formats import philox

NAME = "torch"


def is_sparse(value: Any) -> bool:
    """Returns whether a value is a sparse tensor of torch."""
    return isinstance(value, torch.Tensor) and value.layout != torch.strided


def to_tensor(value: Any) -> Tensor:
    """Returns a value as a tensor, of its own dtype.

    Raises:
        TypeError, ValueError: it is no array.
    """
    if isinstance(value, (keras.Variable, torch.Tensor)):
        return ops.convert_to_tensor(value)
    array = np.asarray(value)
    return ops.convert_to_tensor(array, dtype=array.dtype.name)


def read(variable: keras.Variable) -> Tensor:
    """Returns the value of a variable of `cache_variables`.

    It is a copy: an assignment changes the tensor itself, which a gradient may still need.
    """
    return torch.clone(variable.value)


def mean(values: Tensor) -> Tensor:
    """Returns the mean over the last axis, which stays; Keras's has the precision of float32."""
    return torch.mean(values, -1, keepdim=True)


def gather_steps(sequences: Tensor, places: Tensor) -> Tensor:
    """Returns the steps of `[B, T, ...]` at places `[B, n]` of each row: `[B, n, ...]`."""
    channels = sequences.shape[2:]
    ones = (1,) * len(channels)
    places = places.reshape(places.shape + ones).long()
    # `torch.take_along_dim` broadcasts them itself, but is not exported to ONNX.
    return torch.gather(sequences, 1, places.expand(*places.shape[:2], *channels))


def inverse_permutation(places: Tensor) -> Tensor:
    """Returns which step stands at each place, `[B, T]`, of the place of each step, `[B, T]`."""
    # A sort would do too, but ONNX has none that torch exports.
    steps = torch.arange(places.shape[1], dtype=places.dtype, device=places.device)
    none = torch.zeros_like(places)
    return none.scatter(1, places.long(), steps.expand_as(places))


def integers(count: int, dtype: str) -> Tensor:
    """Returns 0, 1, ..., `[count]`."""
    return ops.arange(count, dtype=dtype)


def join(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Returns tensors of one dtype joined along an axis, 0 or more."""
    return torch.cat(list(tensors), axis)


def split(tensor: Tensor, sizes: Sequence[int], axis: int = -1) -> list[Tensor]:
    """Returns the parts of a tensor that have these sizes along an axis."""
    return list(torch.split(tensor, list(sizes), axis))


def crop(sequences: Tensor, before: int, after: int = 0) -> Tensor:
    """Returns `[B, T, ...]` without the first `before` and the last `after` steps."""
    return sequences[:, before : sequences.shape[1] - after]


def take(values: Tensor, places: Any, axis: int = 0) -> Tensor:
    """Returns the slices along an axis at places, integers of any shape, each within the axis."""
    return ops.take(values, places, axis)


def tanh(tensor: Tensor) -> Tensor:  # type: ignore[no-redef]
    """Returns the hyperbolic tangent; Keras's checks its argument first, which takes as long."""
    return torch.tanh(tensor)


def sigmoid(tensor: Tensor) -> Tensor:  # type: ignore[no-redef]
    """Returns the logistic function, as `tanh`."""
    return torch.sigmoid(tensor)


def argmax(values: Tensor) -> Tensor:
    """Returns the place of the largest of `[..., N]`, of equals the first: int32 `[...]`."""
    return torch.argmax(values, -1).int()


def while_loop(goes_on: Callable, body: Callable, state: Any, most: int) -> Any:
    """Runs a body while something holds; see TensorFlow's.

    Raises:
        NotImplementedError: a model is exported.
    """
    # The file would make as many turns as the example that torch traces, and be wrong in silence.
    if torch.jit.is_tracing() or torch.compiler.is_exporting():
        raise NotImplementedError(
            "torch cannot export a loop that ends once its values have settled, as an "
            "`EquilibriumTrellisLayer` without `groups` has one. Export the model from TensorFlow "
            "or JAX: both load its .keras file."
        )
    return ops.while_loop(goes_on, body, state, maximum_iterations=most)


def custom_gradient(function: Callable) -> Callable:
    """Returns a function with a gradient of its own; see TensorFlow's."""

    class WithRule(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Tensor) -> tuple:
            results, ctx.rule = function(*arguments)
            nodes = []
            for result in results:
                # A result that is an argument needs a node of its own.
                if any(result is argument for argument in arguments):
                    result = result.view_as(result)
                nodes.append(result)
            return tuple(nodes)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *sums: Tensor) -> tuple:
            return tuple(ctx.rule(*sums))

    return WithRule.apply


def compiled(function: Callable, model: Any, sizes: Sequence[str]) -> Callable:
    """Returns a function that records nothing for a gradient.

    Args:
        function: a function of tensors that reads the variables of a model.
        model: the model.
        sizes: the names of the arguments that are sizes, given by name.
    """
    return torch.no_grad()(function)


def multiply_adds(function: Callable, *arguments: Any) -> int:
    """Returns the multiply-adds of the products in a call; see TensorFlow's."""
    with FlopCounterMode(display=False) as counter:
        function(*arguments)
    return counter.get_total_flops() // 2


class _Block(NamedTuple):
    """Consecutive rows, or words, of `[N, ...]`: those from `begin` to `end`."""

    begin: int
    end: int

    def slice(self, values: Tensor, other: float = 0) -> Tensor:
        """Returns the block's rows of `[N, ...]`; there are no others."""
        return values[self.begin : self.end]

    def places(self, size: int) -> Tensor:
        """Returns which of N rows the block has, int32."""
        return ops.arange(self.begin, self.end, dtype="int32")

    def only(self, values: Tensor, other: float) -> Tensor:
        """Returns `[..., rows of the block]`: all of them count."""
        return values

    def add_to(self, values: Tensor, rows: Tensor) -> Tensor:
        """Adds rows to `[N, ...]` at the places of the block."""
        values = values.clone()
        values[self.begin : self.end] += rows
        return values


def fold_blocks(
    body: Callable[[Any, Any], Any],
    sums: Any,
    row_range: tuple[Any, Any],
    limit: int,
    size: int,
) -> Any:
    """Applies a function to one block of rows after another; see TensorFlow's."""
    start, stop = map(int, row_range)
    for begin in range(start, stop, limit):
        end = min(begin + limit, stop)
        sums = body(_Block(begin, end), sums)
    return sums


def verified(tensor: Tensor, holds: Any, message: str, *data: Any) -> Tensor:
    """Returns a tensor once something holds.

    Args:
        tensor: what is returned.
        holds: a bool scalar.
        message: of the error, which `data` ends.
        *data: tensors and strings.

    Raises:
        ValueError: it does not hold.
    """
    has_values = getattr(holds, "device", None) != torch.device("meta")
    if has_values and not holds:
        words = [message, *map(_text, data)]
        raise ValueError(" ".join(words))
    return tensor


def _text(value: Any) -> str:
    if torch.is_tensor(value):
        value = ops.convert_to_numpy(value)
    return str(value)


def row_bits(seeds: Tensor, numbers: Tensor, count: int) -> Tensor:
    """Returns uniform numbers of 32 bits, int64 `[B, count]`; see TensorFlow's."""
    seeds, numbers = map(ops.convert_to_numpy, (seeds, numbers))
    keys = np.ascontiguousarray(seeds[:, :2]).view(np.int64)
    bits = philox.bits(keys, numbers, count, seeds[:, 2])
    return ops.convert_to_tensor(bits, dtype="int64")


def next_seed(
    seed_generator: keras.random.SeedGenerator,
) -> keras.random.SeedGenerator:
    """Returns the generator, of which each mask is a draw."""
    return seed_generator


def dropout_mask(
    seed: keras.random.SeedGenerator,
    name: str,
    rate: float,
    shape: Sequence[int],
    dtype: Any,
) -> Any:
    """Returns a mask of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        seed: the generator, which is advanced.
        name: the name of the random stream, which decides nothing here.
        rate: the probability of a zero, in [0, 1).
        shape: the mask's shape.
        dtype: the mask's type.
    """
    is_retained = keras.random.uniform(shape, seed=seed) >= rate
    return ops.cast(is_retained, dtype) / ops.cast(1 - rate, dtype)


class Buffers:
    """Numbers that a function reads and updates in place; see the one of TensorFlow."""

    def __init__(
        self,
        model: Any,
        begun: Mapping[str, Any],
        places: Any,
        run: Callable[..., Any],
    ) -> None:
        self._buffers: dict[str, Any] = {
            name: ops.convert_to_tensor(entries) for name, entries in begun.items()
        }
        self._places = ops.convert_to_tensor(places)
        self._run = run

    @torch.no_grad()
    def advance(self, inputs: list[Tensor]) -> list[Tensor]:
        """Calls the function, and returns its outputs."""
        outputs, written, self._places = self._run(self._read, self._places, inputs)
        for name, (places, entries) in written.items():
            self._buffers[name][places] = entries
        return outputs

    def overwrite(self, name: str, chosen: Tensor, entries: Any) -> None:
        """Writes the entries of a buffer where `chosen`, bool `[N]`, is true."""
        self._buffers[name][chosen] = ops.convert_to_tensor(entries)[chosen]

    def _read(self, name: str, places: Tensor) -> Tensor:
        return self._buffers[name][places]
