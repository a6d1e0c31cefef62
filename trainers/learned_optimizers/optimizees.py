"""Functions to optimize, drawn from a seed, several at once.

Sources: Andrychowicz et al. 2016, sections 3.1 to 3.3, and their program; what is marked
"recalled" has not been checked against them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.types import Tensor
from trainers.data.image_files import Images
from trainers.learned_optimizers.core import Loss
from trainers.models import residual as depths

DEVIATION = 0.01  # of coordinates at the start; recalled


class Draw(NamedTuple):
    """Functions to optimize at once.

    Attributes:
        theta: where to start, `[draws, coordinates]`.
        loss: takes such coordinates and a step's number; returns `[draws]`. The gradient of
            each depends on its own coordinates alone.
    """

    theta: Tensor
    loss: Loss


@dataclasses.dataclass(frozen=True)
class Quadratics:
    """|W theta - y|^2 with normally distributed W and y.

    Attributes:
        size: the number of dimensions.
    """

    size: int

    def draw(self, seed: Tensor, draws: int) -> Draw:
        """Draws functions."""
        matrix_seed, vector_seed, theta_seed = _seeds(seed, 3)
        matrix_shape = [draws, self.size, self.size]
        matrix = tf.random.stateless_normal(matrix_shape, matrix_seed)
        vector = tf.random.stateless_normal([draws, self.size], vector_seed)

        def loss(theta: Tensor, step: Tensor) -> Tensor:
            del step
            errors = tf.linalg.matvec(matrix, theta) - vector
            return tf.reduce_sum(tf.square(errors), -1)

        theta = tf.random.stateless_normal([draws, self.size], theta_seed)
        return Draw(DEVIATION * theta, loss)


def _small(shape: Sequence[int], name: str) -> tuple[float, float]:
    """Returns where all coordinates of most networks start."""
    del shape, name
    return 0.0, DEVIATION


@dataclasses.dataclass(frozen=True)
class Networks:
    """Classifiers of images, each step of other images.

    Attributes:
        images: the images, as tensors.
        batch_size: images of a step.
        model: takes images `[B, pixels]`, returns logits `[B, classes]`. Its own weights do not
            matter.
        layers: those of its layers that have weights. The weights and biases are parts of the
            coordinates in this order.
        starts: takes the shape of a part and its name; returns the mean and the deviation of its
            coordinates at the start.
    """

    images: Images
    batch_size: int
    model: keras.Model
    layers: Sequence[keras.layers.Layer]
    starts: Callable[[Sequence[int], str], tuple[float, float]] = _small

    @functools.cached_property
    def _variables(self) -> list[keras.Variable]:
        return [weight for layer in self.layers for weight in layer.trainable_variables]

    @functools.cached_property
    def _sizes(self) -> list[int]:
        """The number of coordinates of each part."""
        return [math.prod(variable.shape) for variable in self._variables]

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return sum(self._sizes)

    def draw(self, seed: Tensor, draws: int) -> Draw:
        """Draws networks and the images of each step."""
        theta_seed, images_seed = _seeds(seed, 2)
        count = self.images.labels.shape[0]

        def loss(theta: Tensor, step: Tensor) -> Tensor:
            step_seed = tf.random.fold_in(images_seed, step)
            shape = [draws, self.batch_size]
            chosen = tf.random.stateless_uniform(shape, step_seed, 0, count, tf.int32)
            pixels = tf.gather(self.images.pixels, chosen)
            labels = tf.gather(self.images.labels, chosen)
            pixels = tf.reshape(pixels, [*shape, -1])
            pixels = tf.cast(pixels, theta.dtype) / 255
            logits = self.logits(pixels, self.parts(theta))
            losses = _cross_entropy(labels, logits)
            return tf.reduce_mean(losses, -1)

        values = tf.random.stateless_normal([draws, self.size], theta_seed)
        scaled = []
        parts = tf.split(values, self._sizes, axis=1)
        for part, variable in zip(parts, self._variables, strict=True):
            mean, deviation = self.starts(variable.shape, variable.name)
            scaled.append(mean + deviation * part)
        return Draw(tf.concat(scaled, 1), loss)

    def parts(self, theta: Tensor) -> list[Tensor]:
        """Cuts coordinates `[draws, size]` into weights and biases."""
        draws = theta.shape[0]
        parts = tf.split(theta, self._sizes, axis=1)
        pairs = zip(parts, self._variables, strict=True)
        return [tf.reshape(part, [draws, *variable.shape]) for part, variable in pairs]

    def logits(self, images: Tensor, parts: Sequence[Tensor]) -> Tensor:
        """Returns the logits `[draws, B, classes]` of images `[draws, B, pixels]`.

        Args:
            images: those of each draw.
            parts: from `parts`.
        """
        by_draw = []
        for own, *weights in zip(*map(tf.unstack, (images, *parts)), strict=True):
            values = list(zip(self._variables, weights, strict=True))
            with keras.StatelessScope(values):
                by_draw.append(self.model(own, training=True))
        return tf.stack(by_draw)


Optimizee = Quadratics | Networks
"""A family of functions: its `size`, and `draw`, the same functions for the same seed."""


def perceptrons(
    images: Images,
    batch_size: int,
    units: Sequence[int] = (20,),
    activation: str = "sigmoid",
    classes: int = 10,
) -> Networks:
    """Returns networks of dense layers.

    Args:
        images: what they classify.
        batch_size: images of a step.
        units: those of each hidden layer.
        activation: Keras's name of one.
        classes: the number of classes.

    Raises:
        ValueError: a label is of no class.
    """
    _check_classes(classes, images)
    layers = [_dense(width, activation) for width in units]
    layers.append(_dense(classes))
    inputs = keras.Input([math.prod(images.pixels.shape[1:])])
    return Networks(images, batch_size, keras.Sequential([inputs, *layers]), layers)


def convolutional(
    images: Images,
    batch_size: int,
    channels: int = 16,
    activation: str = "relu",
    classes: int = 10,
) -> Networks:
    """Returns the published small networks on colour images; "recalled" where not said.

    Three times a convolution of 5 x 5, batch normalization by the batch's own moments with a
    trained shift, the activation, and pooling of 2 x 2; then dense layers of 32 and 10. That the
    normalization precedes the activation, pads, and has a shift alone is recalled.

    Args:
        images: what they classify.
        batch_size: images of a step.
        channels: those of each convolution.
        activation: Keras's name of one.
        classes: the number of classes.

    Raises:
        ValueError: a label is of no class.
    """
    _check_classes(classes, images)
    layers = _pixels(images)
    for _ in range(3):
        layers += [
            _convolution(channels, 5),
            keras.layers.BatchNormalization(scale=False),
            keras.layers.Activation(activation),
            keras.layers.MaxPooling2D(padding="same"),
        ]
    layers += [keras.layers.Flatten(), _dense(32, activation), _dense(classes)]
    return Networks(images, batch_size, keras.Sequential(layers), layers[2:])


def residual(
    images: Images,
    batch_size: int,
    depth: int = 34,
    channels: int = 64,
    classes: int = 10,
) -> Networks:
    """Returns residual networks on colour images (He et al. 2016), as Kuo et al. 2020 have them.

    An entry convolution; blocks of two convolutions with a shortcut each; the mean over the pixels;
    a dense layer. A stage has twice the channels of the one before and half its height and width.
    Every convolution is normalized by the batch's own moments, with a trained scale and shift.
    That the entry is 3 x 3 without pooling, as for small images, is ours; Kuo et al. say no more
    than the number of blocks.

    Args:
        images: what they classify.
        batch_size: images of a step.
        depth: the number of layers, see `trainers.models.residual`.
        channels: those of the first stage.
        classes: the number of classes.

    Raises:
        ValueError: no network is so deep, or a label is of no class.
    """
    _check_classes(classes, images)
    layers: list[keras.layers.Layer] = []

    def convolved(values: Any, width: int, size: int = 3, stride: int = 1) -> Any:
        """Returns a convolution of images, normalized."""
        layers.append(_convolution(width, size, stride))
        layers.append(keras.layers.BatchNormalization())
        return layers[-1](layers[-2](values))

    inputs, reshaped = _pixels(images)
    values = keras.ops.relu(convolved(reshaped(inputs), channels))
    for stage, count in enumerate(depths.stages(depth)):
        width = channels * 2**stage
        for number in range(count):
            stride = 2 if stage and not number else 1
            inner = keras.ops.relu(convolved(values, width, stride=stride))
            inner = convolved(inner, width)
            if stride > 1:  # channels and pixels change, and with them the shortcut
                values = convolved(values, width, 1, stride)
            values = keras.ops.relu(values + inner)
    layers.append(_dense(classes))
    values = layers[-1](keras.layers.GlobalAveragePooling2D()(values))
    model = keras.Model(inputs, values)
    return Networks(images, batch_size, model, layers, _of_relus)


def _of_relus(shape: Sequence[int], name: str) -> tuple[float, float]:
    """Returns where coordinates of a residual network start: He et al. 2015."""
    *fan_in, _ = shape
    if not fan_in:
        return float(name == "gamma"), 0.0
    power = 2 if len(fan_in) > 1 else 1  # no relu follows the dense layer
    return 0.0, math.sqrt(power / math.prod(fan_in))


def _pixels(images: Images) -> list[Any]:
    """Returns the input of a network of convolutions, and what makes square images of it."""
    _, pixels, colours = images.pixels.shape
    side = math.isqrt(pixels)
    square = keras.layers.Reshape([side, side, colours])
    return [keras.Input([pixels * colours]), square]


# Zeros: initial weights that Keras draws would change what a run draws after them.


def _dense(units: int, activation: str | None = None) -> keras.layers.Layer:
    return keras.layers.Dense(units, activation, kernel_initializer="zeros")


def _convolution(channels: int, size: int, stride: int = 1) -> keras.layers.Layer:
    return keras.layers.Conv2D(
        channels,
        size,
        stride,
        "same",
        use_bias=False,
        kernel_initializer="zeros",
    )


def _check_classes(classes: int, images: Images) -> None:
    largest = int(tf.reduce_max(images.labels))
    if not largest < classes:
        expected = f"above {largest}, the largest label of the images"
        raise arguments.refusal("classes", classes, expected)


def _seeds(seed: Tensor, count: int) -> list[Tensor]:
    seeds = tf.random.split(seed, count)
    return tf.unstack(seeds)


def _cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """Returns that of each image, with a gradient that XLA and determinism allow."""
    classes = logits.shape[-1]
    chosen = tf.one_hot(labels, classes, dtype=logits.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(chosen, logits)
