"""Kernels: their arguments, weight normalisation, DropConnect, the groups of Theorem 1.

A kernel is `[k, input channels, output channels]`; tap k - 1 reads the present step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_trellis import arguments
from keras_trellis.core.convolution import rows, where
from keras_trellis.types import Tensor

_Map: TypeAlias = Callable[[Tensor], Tensor]

_KINDS = ("initializer", "regularizer", "constraint")
_PREFIXES = ("kernel", "recurrent", "bias")

ARGUMENTS = tuple(f"{prefix}_{kind}" for kind in _KINDS for prefix in _PREFIXES)
"""The arguments of a `WeightArguments`."""

TRAINING_ARGUMENTS = (
    *("dropout", "recurrent_dropout", "weight_dropout", "activity_regularizer"),
    *ARGUMENTS[len(_PREFIXES) :],
)
"""The arguments of recurrent layers, and of those of levels, that act in training alone."""


class WeightArguments(keras.layers.Layer):
    """A layer or a cell with an initializer, a regularizer and a constraint of each kind of weight.

    Args:
        kernel_initializer: of what multiplies the input.
        recurrent_initializer: of what multiplies the state.
        bias_initializer: of the bias.
        kernel_regularizer: of what multiplies the input, and so on.
        recurrent_regularizer: see above.
        bias_regularizer: see above.
        kernel_constraint: see above.
        recurrent_constraint: see above.
        bias_constraint: see above.
        **kwargs: the arguments of the next base class.
    """

    def __init__(
        self,
        *,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = keras.regularizers.get(recurrent_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.recurrent_constraint = keras.constraints.get(recurrent_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def _new_weight(
        self,
        name: str,
        shape: tuple[int, ...],
        prefix: str,
        initializer: Any = None,
        **others: Any,
    ) -> keras.Variable:
        """Adds a variable as the arguments of its kind of weight say.

        Args:
            name: the variable's.
            shape: the variable's.
            prefix: its kind, "kernel", "recurrent" or "bias".
            initializer: None for that of its kind.
            **others: further arguments of `add_weight`.
        """
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer or getattr(self, f"{prefix}_initializer"),
            regularizer=getattr(self, f"{prefix}_regularizer"),
            constraint=getattr(self, f"{prefix}_constraint"),
            **others,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments: the attributes of the same names."""
        config: dict[str, Any] = super().get_config()
        of_keras = inspect.signature(keras.layers.Layer.__init__).parameters
        for name in arguments.named(type(self)):
            if name not in of_keras and hasattr(self, name):
                value = getattr(self, name)
                value = list(value) if isinstance(value, tuple) else value
                config[name] = keras.saving.serialize_keras_object(value)
        return config


def norm(kernel: Tensor) -> Tensor:
    """Returns the Euclidean norm of each output channel's weights, `[output channels]`."""
    return ops.sqrt(_squared_norm(kernel))


def _squared_norm(kernel: Tensor) -> Tensor:
    return ops.sum(ops.square(kernel), axis=(0, 1))


def weight_normalized(kernel: Tensor, scale: Tensor) -> Tensor:
    """Returns scale * kernel / ||kernel||, with a norm for each output channel.

    A channel whose weights are all zero (dropped, or outside of every group) stays zero and gets a
    zero gradient, not NaN. Source: Salimans and Kingma 2016, as used by Bai et al. 2019.

    Args:
        kernel: the direction v, `[k, input, output]`.
        scale: the length g, `[output]`.
    """
    squared = _squared_norm(kernel)
    filled = ops.not_equal(squared, 0)
    # Replaced before and after: the gradient of rsqrt at 0 is infinite, and times 0 it is NaN.
    positive = where(filled, squared, 1)
    inverse = ops.rsqrt(positive)
    inverse = where(filled, inverse, 0)
    return kernel * (scale * inverse)


def drop_past_taps(kernel: Tensor, mask: Tensor) -> Tensor:
    """Applies DropConnect to the taps that read the past, or to the only tap.

    Args:
        kernel: `[k, input, output]`.
        mask: the dropout mask, `[max(k - 1, 1), input, output]`.
    """
    if kernel.shape[0] == 1:
        return kernel * mask
    past = kernel[:-1] * mask
    present = kernel[-1:]
    return ops.concatenate([past, present], axis=0)


def expand_group_input(kernel: Tensor, blocks: int, groups: int) -> Tensor:
    """Places the input kernel of the first group among the channels of all groups.

    Args:
        kernel: `[1, p, blocks * units / groups]`.
        blocks: the gate's number of blocks.
        groups: the number of groups, G.

    Returns:
        `[1, p, blocks * units]`, zero for the groups 2 to G.
    """
    _, inputs, channels = kernel.shape
    # Each gate block has the channels of all groups, so zeros follow the first group in each block.
    first = ops.reshape(kernel, [inputs, blocks, 1, -1])
    everywhere = ops.pad(first, [[0, 0], [0, 0], [0, groups - 1], [0, 0]])
    return ops.reshape(everywhere, [1, inputs, groups * channels])


class MatrixForm(NamedTuple):
    """A kernel as a matrix `[k * input channels, output channels]`, and back.

    The matrix treats the taps as further inputs. Constraints, regularizers and initializers that
    are written for an LSTM's kernel receive it.

    Attributes:
        shape: the kernel's shape.
        blocks: the gate's number of blocks.
        groups: the number of groups of a mixed group convolution's hidden kernel, else 1.
    """

    shape: tuple[int, ...]
    blocks: int
    groups: int = 1

    def matrix(self, kernel: Any) -> Tensor:
        """Returns a kernel as `[k * input channels, output channels]`."""
        kernel = ops.convert_to_tensor(kernel)
        dense = expand_group_hidden(kernel, self.blocks, self.groups)
        return rows(dense)

    def kernel(self, matrix: Tensor) -> Tensor:
        """Returns the kernel of a matrix: the inverse of `matrix`."""
        if self.groups == 1:
            return ops.reshape(matrix, self.shape)
        _, inputs, channels = self.shape
        width = channels // self.blocks
        # By group twice: the one that is read and, within each block, the one that is written.
        shape = [-1, self.groups, inputs, self.blocks, self.groups, width]
        taps = ops.reshape(matrix, shape)
        past = taps[:-1]
        present = taps[-1]
        # The diagonal, each group and itself: the rest of a dense kernel is zero.
        within = ops.einsum("kgibgc->kgibc", past)
        # Each group and the next one.
        across = ops.einsum("gibgc->gibc", present[:-1, :, :, 1:])
        within = ops.reshape(within, [-1, inputs, channels])
        across = ops.reshape(across, [-1, inputs, channels])
        return ops.concatenate([within, across], axis=0)

    def constraint(self, constraint: _Map | None) -> _Map | None:
        """Turns a constraint on the matrix into one on the kernel."""
        if constraint is None:
            return None
        return lambda kernel: self.kernel(constraint(self.matrix(kernel)))

    def regularizer(self, regularizer: _Map | None) -> _Map | None:
        """Turns a regularizer of the matrix into one of the kernel."""
        if regularizer is None:
            return None
        return lambda kernel: regularizer(self.matrix(kernel))

    def initializer(self, initializer: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Turns an initializer that makes matrices into one of the kernel."""

        def initialize(shape: Sequence[int], dtype: Any = None) -> Tensor:
            matrix_shape = self.matrix(ops.zeros(shape)).shape
            return self.kernel(initializer(matrix_shape, dtype=dtype))

        return initialize


def expand_group_hidden(kernel: Tensor, blocks: int, groups: int) -> Tensor:
    """Builds the dense hidden kernel of a mixed group convolution (Theorem 1, appendix A).

    Args:
        kernel: `[(k - 1) * G + (G - 1), units / G, blocks * units / G]`: for each past tap, oldest
            first, the G blocks that connect each group to itself; then the G - 1 blocks of the
            present tap, of which block g connects group g to group g + 1.
        blocks: the gate's number of blocks.
        groups: the number of groups, G.

    Returns:
        `[k, units, blocks * units]`, block diagonal on the past taps, block sub-diagonal on the
        present tap.
    """
    if groups == 1:
        return kernel
    _, inputs, channels = kernel.shape
    width = channels // blocks
    # On the present tap the last group connects to none.
    none = ops.zeros_like(kernel[:1])
    kernel = ops.concatenate([kernel, none], axis=0)
    taps = ops.reshape(kernel, [-1, groups, inputs, blocks, 1, width])
    past = taps.shape[0] - 1
    # Theorem 1's two taps, by group read and group written: B_l on the diagonal, and beside it A_l,
    # by which group g + 1 reads group g at its own step.
    within = np.eye(groups)
    across = np.eye(groups, k=1)
    places = np.stack([within] * past + [across])
    places = places.reshape([-1, groups, 1, 1, groups, 1])
    # `taps` spreads over the groups that are written, and each block stays at its place alone.
    dense = taps * ops.convert_to_tensor(places, kernel.dtype)
    shape = [-1, groups * inputs, groups * channels]
    return ops.reshape(dense, shape)
