"""Functions to optimize, drawn from a seed, several at once.

Sources: Andrychowicz et al. 2016, sections 3.1 to 3.3, and their program; what is marked
"recalled" has not been checked against them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf

from trainers.learned_optimizers.core import Loss

DEVIATION = 0.01  # of coordinates at the start; recalled

ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "sigmoid": tf.sigmoid,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
}


class Draw(NamedTuple):
    """Functions to optimize at once.

    Attributes:
        theta: where to start, `[draws, coordinates]`.
        loss: takes such coordinates and a step's number; returns `[draws]`. The gradient of
            each depends on its own coordinates alone.
    """

    theta: tf.Tensor
    loss: Loss


class Optimizee(Protocol):
    """A family of functions."""

    @property
    def size(self) -> int:
        """The number of coordinates."""

    def draw(self, seed: tf.Tensor, draws: int) -> Draw:
        """Draws functions; the same ones for the same seed, two integers."""


@dataclasses.dataclass(frozen=True)
class Quadratics:
    """|W theta - y|^2 with normally distributed W and y.

    Attributes:
        size: the number of dimensions.
    """

    size: int

    def draw(self, seed: tf.Tensor, draws: int) -> Draw:
        """Draws functions."""
        matrix_seed, vector_seed, theta_seed = _seeds(seed, 3)
        matrix = tf.random.stateless_normal([draws, self.size, self.size], matrix_seed)
        vector = tf.random.stateless_normal([draws, self.size], vector_seed)

        def loss(theta: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
            del step
            errors = tf.linalg.matvec(matrix, theta) - vector
            return tf.reduce_sum(tf.square(errors), -1)

        return Draw(_start(draws, self.size, theta_seed), loss)


class Images(NamedTuple):
    """Images that networks classify.

    Attributes:
        pixels: `[N, height * width, C]`, uint8.
        labels: `[N]`, int32.
    """

    pixels: tf.Tensor
    labels: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Networks:
    """Classifiers of images, each step of other images.

    Attributes:
        images: the images.
        batch_size: images of a step.
        shapes: those of the weights and biases, which are parts of the coordinates in this order.
        logits: takes images `[draws, B, pixels]` and the parts, each with the draws in front;
            returns `[draws, B, classes]`.
    """

    images: Images
    batch_size: int
    shapes: Sequence[Sequence[int]]
    logits: Callable[[tf.Tensor, list[tf.Tensor]], tf.Tensor]

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return sum(map(math.prod, self.shapes))

    def draw(self, seed: tf.Tensor, draws: int) -> Draw:
        """Draws networks and the images of each step."""
        theta_seed, images_seed = _seeds(seed, 2)
        count = self.images.labels.shape[0]

        def loss(theta: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
            step_seed = tf.random.fold_in(images_seed, step)
            shape = [draws, self.batch_size]
            chosen = tf.random.stateless_uniform(shape, step_seed, 0, count, tf.int32)
            pixels, labels = (tf.gather(array, chosen) for array in self.images)
            pixels = tf.cast(tf.reshape(pixels, [*shape, -1]), theta.dtype) / 255
            logits = self.logits(pixels, self.parts(theta))
            return tf.reduce_mean(_cross_entropy(labels, logits), -1)

        return Draw(_start(draws, self.size, theta_seed), loss)

    def parts(self, theta: tf.Tensor) -> list[tf.Tensor]:
        """Cuts coordinates `[draws, size]` into weights and biases."""
        parts = tf.split(theta, list(map(math.prod, self.shapes)), axis=1)
        return [
            tf.reshape(part, [theta.shape[0], *shape])
            for part, shape in zip(parts, self.shapes, strict=True)
        ]


def perceptrons(
    images: Images,
    batch_size: int,
    units: Sequence[int] = (20,),
    activation: str = "sigmoid",
) -> Networks:
    """Returns networks of dense layers.

    Args:
        images: what they classify, into ten classes.
        batch_size: images of a step.
        units: those of each hidden layer.
        activation: one of `ACTIVATIONS`.
    """
    bend = ACTIVATIONS[activation]
    widths = [math.prod(images.pixels.shape[1:]), *units, 10]

    def logits(values: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        for number, (kernel, bias) in enumerate(_pairs(parts)):
            values = tf.matmul(bend(values) if number else values, kernel)
            values += bias[:, None]
        return values

    return Networks(images, batch_size, _dense_shapes(widths), logits)


def convolutional(
    images: Images, batch_size: int, channels: int = 16, activation: str = "relu"
) -> Networks:
    """Returns the published small networks on colour images; "recalled" where not said.

    Three times a convolution of 5 x 5, batch normalization by the batch's own moments with a
    trained shift, the activation, and pooling of 2 x 2; then dense layers of 32 and 10. That the
    normalization precedes the activation, pads, and has a shift alone is recalled.

    Args:
        images: what they classify, into ten classes.
        batch_size: images of a step.
        channels: those of each convolution.
        activation: one of `ACTIVATIONS`.
    """
    bend = ACTIVATIONS[activation]
    _, pixels, colours = images.pixels.shape
    side = math.isqrt(pixels)
    shapes: list[Sequence[int]] = []
    for inputs in (colours, channels, channels):
        shapes += [(5, 5, inputs, channels), (channels,)]
    ends = channels * (-(-side // 8)) ** 2
    shapes += _dense_shapes([ends, 32, 10])

    def features(values: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        """Returns those of the images of one draw."""
        values = tf.reshape(values, [-1, side, side, colours])
        for kernel, shift in _pairs(parts):
            values = tf.nn.conv2d(values, kernel, 1, "SAME")
            mean, variance = tf.nn.moments(values, [0, 1, 2])
            values = (values - mean) * tf.math.rsqrt(variance + 1e-3) + shift
            values = tf.nn.max_pool2d(bend(values), 2, 2, "SAME")
        return tf.reshape(values, [batch_size, ends])

    def logits(values: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        draws = zip(*map(tf.unstack, parts[:6]), strict=True)
        by_draw = [
            features(images, list(own))
            for images, own in zip(tf.unstack(values), draws, strict=True)
        ]
        kernel, bias, last_kernel, last_bias = parts[6:]
        hidden = bend(tf.matmul(tf.stack(by_draw), kernel) + bias[:, None])
        return tf.matmul(hidden, last_kernel) + last_bias[:, None]

    return Networks(images, batch_size, shapes, logits)


def _dense_shapes(widths: Sequence[int]) -> list[Sequence[int]]:
    shapes: list[Sequence[int]] = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        shapes += [(inputs, outputs), (outputs,)]
    return shapes


def _pairs(parts: list[tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns each kernel with its bias."""
    return list(zip(parts[::2], parts[1::2], strict=True))


def _seeds(seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    return tf.unstack(tf.random.split(seed, count))


def _start(draws: int, size: int, seed: tf.Tensor) -> tf.Tensor:
    return DEVIATION * tf.random.stateless_normal([draws, size], seed)


def _cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns that of each image, with a gradient that XLA and determinism allow."""
    chosen = tf.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(chosen, logits)
