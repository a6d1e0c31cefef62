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
from trainers.models import residual as depths

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
        starts: the mean and the deviation of each part at the start; (): 0 and `DEVIATION`.
    """

    images: Images
    batch_size: int
    shapes: Sequence[Sequence[int]]
    logits: Callable[[tf.Tensor, list[tf.Tensor]], tf.Tensor]
    starts: Sequence[tuple[float, float]] = ()

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

        return Draw(self._start(draws, theta_seed), loss)

    def _start(self, draws: int, seed: tf.Tensor) -> tf.Tensor:
        if not self.starts:
            return _start(draws, self.size, seed)
        parts = tf.split(
            tf.random.stateless_normal([draws, self.size], seed),
            list(map(math.prod, self.shapes)),
            axis=1,
        )
        pairs = zip(parts, self.starts, strict=True)
        return tf.concat(
            [mean + deviation * part for part, (mean, deviation) in pairs], 1
        )

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
    classes: int = 10,
) -> Networks:
    """Returns networks of dense layers.

    Args:
        images: what they classify.
        batch_size: images of a step.
        units: those of each hidden layer.
        activation: one of `ACTIVATIONS`.
        classes: the number of classes.

    Raises:
        ValueError: a label is of no class.
    """
    _check_classes(classes, images)
    bend = ACTIVATIONS[activation]
    widths = [math.prod(images.pixels.shape[1:]), *units, classes]

    def logits(values: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        for number, (kernel, bias) in enumerate(_pairs(parts)):
            values = tf.matmul(bend(values) if number else values, kernel)
            values += bias[:, None]
        return values

    return Networks(images, batch_size, _dense_shapes(widths), logits)


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
        activation: one of `ACTIVATIONS`.
        classes: the number of classes.

    Raises:
        ValueError: a label is of no class.
    """
    _check_classes(classes, images)
    bend = ACTIVATIONS[activation]
    _, pixels, colours = images.pixels.shape
    side = math.isqrt(pixels)
    shapes: list[Sequence[int]] = []
    for inputs in (colours, channels, channels):
        shapes += [(5, 5, inputs, channels), (channels,)]
    ends = channels * (-(-side // 8)) ** 2
    shapes += _dense_shapes([ends, 32, classes])

    def features(values: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        """Returns those of the images of one draw."""
        values = tf.reshape(values, [-1, side, side, colours])
        for kernel, shift in _pairs(parts):
            values = _normalized(tf.nn.conv2d(values, kernel, 1, "SAME")) + shift
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


class Block(NamedTuple):
    """Two convolutions and the shortcut past them; it changes nothing, or is a convolution."""

    inputs: int
    outputs: int
    stride: int

    @property
    def has_convolution(self) -> bool:
        """Whether the shortcut is a convolution, as channels or pixels change."""
        return self.inputs != self.outputs or self.stride > 1

    def kernels(self) -> list[tuple[int, ...]]:
        """Returns the shapes of its kernels."""
        own = [(3, 3, self.inputs, self.outputs), (3, 3, self.outputs, self.outputs)]
        shortcut = [(1, 1, self.inputs, self.outputs)] * self.has_convolution
        return [*own, *shortcut]


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
    _, pixels, colours = images.pixels.shape
    side = math.isqrt(pixels)
    blocks = _blocks(depths.stages(depth), channels)
    entry: tuple[int, ...] = (3, 3, colours, channels)
    kernels = [entry, *(shape for block in blocks for shape in block.kernels())]
    width = blocks[-1].outputs
    shapes: list[Sequence[int]] = []
    starts = []
    for kernel in kernels:
        shapes += [kernel, kernel[-1:], kernel[-1:]]
        # Of relus' kernels: He et al. 2015.
        starts += [(0.0, math.sqrt(2 / math.prod(kernel[:-1]))), (1.0, 0.0), (0.0, 0.0)]
    shapes += _dense_shapes([width, classes])
    starts += [(0.0, math.sqrt(1 / width)), (0.0, 0.0)]

    def logits(values: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        draws = zip(*map(tf.unstack, parts[:-2]), strict=True)
        by_draw = []
        for own_images, own in zip(tf.unstack(values), draws, strict=True):
            own_images = tf.reshape(own_images, [-1, side, side, colours])
            convolutions = _Convolutions(own)
            by_draw.append(_residual_features(own_images, convolutions, blocks))
        kernel, bias = parts[-2:]
        return tf.matmul(tf.stack(by_draw), kernel) + bias[:, None]

    return Networks(images, batch_size, shapes, logits, starts)


def _blocks(stages: Sequence[int], channels: int) -> list[Block]:
    """Returns the blocks of all stages, whose channels double."""
    blocks: list[Block] = []
    for stage, count in enumerate(stages):
        outputs = channels * 2**stage
        for number in range(count):
            inputs = blocks[-1].outputs if blocks else channels
            blocks.append(Block(inputs, outputs, 2 if stage and not number else 1))
    return blocks


class _Convolutions:
    """The convolutions of one network, in their order, each with its normalization."""

    def __init__(self, parts: Sequence[tf.Tensor]) -> None:
        self._parts = iter(parts)

    def next(self, values: tf.Tensor, stride: int = 1) -> tf.Tensor:
        """Applies the next one to images `[B, height, width, channels]`."""
        kernel, scale, shift = (next(self._parts) for _ in range(3))
        values = tf.nn.conv2d(values, kernel, stride, "SAME")
        return _normalized(values) * scale + shift


def _residual_features(
    values: tf.Tensor, convolutions: _Convolutions, blocks: Sequence[Block]
) -> tf.Tensor:
    """Returns what the dense layer reads of images, `[B, width]`."""
    values = tf.nn.relu(convolutions.next(values))
    for block in blocks:
        inner = tf.nn.relu(convolutions.next(values, block.stride))
        inner = convolutions.next(inner)
        if block.has_convolution:
            values = convolutions.next(values, block.stride)
        values = tf.nn.relu(values + inner)
    return tf.reduce_mean(values, [1, 2])


def _normalized(values: tf.Tensor) -> tf.Tensor:
    """Returns images of mean 0 and variance 1 in each channel of the batch."""
    mean, variance = tf.nn.moments(values, [0, 1, 2])
    return (values - mean) * tf.math.rsqrt(variance + 1e-3)


def _check_classes(classes: int, images: Images) -> None:
    largest = int(tf.reduce_max(images.labels))
    if not largest < classes:
        raise ValueError(
            f"`classes` must be above {largest}, the largest label of the images. "
            f"Received: classes={classes!r}"
        )


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
