"""Preparation of kernels: weight normalisation, DropConnect, the groups of Theorem 1.

A kernel is [k, input channels, output channels]; tap k - 1 reads the present step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


def norm(kernel: tf.Tensor) -> tf.Tensor:
    """Returns the Euclidean norm of each output channel's weights, [output channels]."""
    return tf.sqrt(tf.reduce_sum(tf.square(kernel), axis=(0, 1)))


def weight_normalized(kernel: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Returns scale * kernel / ||kernel||, with a norm for each output channel.

    A channel whose weights are all zero (dropped, or outside of every group) stays zero and gets a
    zero gradient, not NaN. Source: Salimans and Kingma 2016, as used by Bai et al. 2019.

    Args:
        kernel: the direction v, [k, input, output].
        scale: the length g, [output].
    """
    squared = tf.reduce_sum(tf.square(kernel), axis=(0, 1))
    empty = tf.equal(squared, 0)
    inverse = tf.math.rsqrt(tf.where(empty, tf.ones_like(squared), squared))
    return kernel * (scale * tf.where(empty, tf.zeros_like(inverse), inverse))


def drop_past_taps(kernel: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Applies DropConnect to the taps that read the past, or to the only tap.

    Args:
        kernel: [k, input, output].
        mask: the dropout mask, [max(k - 1, 1), input, output].
    """
    if kernel.shape[0] == 1:
        return kernel * mask
    return tf.concat([kernel[:-1] * mask, kernel[-1:]], axis=0)


def expand_group_input(kernel: tf.Tensor, blocks: int, groups: int) -> tf.Tensor:
    """Places the input kernel of the first group among the channels of all groups.

    Args:
        kernel: [1, p, blocks * units / groups].
        blocks: the gate's number of blocks.
        groups: the number of groups, G.

    Returns:
        [1, p, blocks * units], zero for the groups 2 to G.
    """
    taps, inputs, channels = kernel.shape
    kernel = tf.reshape(kernel, [taps, inputs, blocks, channels // blocks])
    width = channels // blocks * (groups - 1)
    return tf.reshape(tf.pad(kernel, [[0, 0]] * 3 + [[0, width]]), [taps, inputs, -1])


class MatrixForm(NamedTuple):
    """A kernel as a matrix [k * input channels, output channels], and back.

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

    def matrix(self, kernel: Any) -> tf.Tensor:
        """Returns a kernel as [k * input channels, output channels]."""
        kernel = tf.convert_to_tensor(kernel)
        if self.groups > 1:
            kernel = expand_group_hidden(kernel, self.blocks, self.groups)
        return tf.reshape(kernel, [-1, kernel.shape[-1]])

    def kernel(self, matrix: tf.Tensor) -> tf.Tensor:
        """Returns the kernel of a matrix: the inverse of `matrix`."""
        if self.groups == 1:
            return tf.reshape(matrix, self.shape)
        return contract_group_hidden(matrix, self.shape, self.blocks, self.groups)

    def constraint(self, constraint: Callable | None) -> Callable | None:
        """Turns a constraint on the matrix into one on the kernel."""
        return constraint and (lambda kernel: self.kernel(constraint(self.matrix(kernel))))

    def regularizer(self, regularizer: Callable | None) -> Callable | None:
        """Turns a regularizer of the matrix into one of the kernel."""
        return regularizer and (lambda kernel: regularizer(self.matrix(kernel)))

    def initializer(self, initializer: Callable) -> Callable:
        """Turns an initializer that makes matrices into one of the kernel."""

        def initialize(shape: Any, dtype: Any = None) -> tf.Tensor:
            matrix_shape = self.matrix(tf.zeros(self.shape)).shape
            return self.kernel(initializer(matrix_shape, dtype=dtype))

        return initialize


def contract_group_hidden(
    matrix: tf.Tensor, shape: Sequence[int], blocks: int, groups: int
) -> tf.Tensor:
    """Returns the blocks of a dense kernel: the inverse of `expand_group_hidden`.

    Args:
        matrix: the dense kernel, [k * units, blocks * units]; values outside the groups' places are
            ignored.
        shape: the kernel's shape.
        blocks: the gate's number of blocks.
        groups: the number of groups, G.
    """
    count, inputs, channels = shape
    past = (count - (groups - 1)) // groups
    taps = tf.reshape(matrix, [past + 1, groups, inputs, blocks, groups, channels // blocks])
    place = _group_places(past, groups, tf.bool)
    taps = tf.reduce_sum(tf.where(place, taps, tf.zeros_like(taps)), axis=4)
    return tf.reshape(taps, [-1, inputs, channels])[:count]


def _group_places(past: int, groups: int, dtype: tf.DType) -> tf.Tensor:
    """Returns which group reads which, on each tap: [k, G, 1, 1, G, 1]."""
    here = tf.eye(groups)
    above = tf.pad(here[1:], [[0, 1], [0, 0]])
    place = tf.stack([here] * past + [above])
    return tf.cast(tf.reshape(place, [past + 1, groups, 1, 1, groups, 1]), dtype)


def expand_group_hidden(kernel: tf.Tensor, blocks: int, groups: int) -> tf.Tensor:
    """Builds the dense hidden kernel of a mixed group convolution (Theorem 1, appendix A).

    Args:
        kernel: [(k - 1) * G + (G - 1), units / G, blocks * units / G]: for each past tap, oldest
            first, the G blocks that connect each group to itself; then the G - 1 blocks of the
            present tap, of which block g connects group g to group g + 1.
        blocks: the gate's number of blocks.
        groups: the number of groups, G.

    Returns:
        [k, units, blocks * units], block diagonal on the past taps, block sub-diagonal on the
        present tap.
    """
    count, inputs, channels = kernel.shape
    past = (count - (groups - 1)) // groups
    kernel = tf.reshape(kernel, [count, inputs, blocks, 1, channels // blocks])
    present = tf.concat([kernel[past * groups :], tf.zeros_like(kernel[:1])], axis=0)
    taps = tf.concat([kernel[: past * groups], present], axis=0)
    taps = tf.reshape(taps, [past + 1, groups, inputs, blocks, 1, channels // blocks])
    place = _group_places(past, groups, kernel.dtype)
    return tf.reshape(taps * place, [past + 1, groups * inputs, groups * channels])
