"""Functions to optimize, drawn from a seed, several at once.

Sources: Andrychowicz et al. 2016, sections 3.1 to 3.3, and their program; what is marked
"recalled" has not been checked against them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf

from keras_trellis.types import Tensor
from trainers.learned_optimizers.core import Loss
from trainers.models import residual as depths

DEVIATION = 0.01  # of coordinates at the start; recalled

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
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

    theta: Tensor
    loss: Loss


class Optimizee(Protocol):
    """A family of functions."""

    @property
    def size(self) -> int:
        """The number of coordinates."""

    def draw(self, seed: Tensor, draws: int) -> Draw:
        """Draws functions; the same ones for the same seed, two integers."""


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

        theta = _start(draws, self.size, theta_seed)
        return Draw(theta, loss)


class Images(NamedTuple):
    """Images that networks classify.

    Attributes:
        pixels: `[N, height * width, C]`, uint8.
        labels: `[N]`, int32.
    """

    pixels: Tensor
    labels: Tensor


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
    logits: Callable[[Tensor, list[Tensor]], Tensor]
    starts: Sequence[tuple[float, float]] = ()

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        """The number of coordinates of each part."""
        return [math.prod(shape) for shape in self.shapes]

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

        theta = self._start(draws, theta_seed)
        return Draw(theta, loss)

    def _start(self, draws: int, seed: Tensor) -> Tensor:
        if not self.starts:
            return _start(draws, self.size, seed)
        values = tf.random.stateless_normal([draws, self.size], seed)
        scaled = []
        parts = tf.split(values, self._sizes, axis=1)
        for part, (mean, deviation) in zip(parts, self.starts, strict=True):
            scaled.append(mean + deviation * part)
        return tf.concat(scaled, 1)

    def parts(self, theta: Tensor) -> list[Tensor]:
        """Cuts coordinates `[draws, size]` into weights and biases."""
        draws = theta.shape[0]
        parts = tf.split(theta, self._sizes, axis=1)
        pairs = zip(parts, self.shapes, strict=True)
        return [tf.reshape(part, [draws, *shape]) for part, shape in pairs]


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
    inputs = math.prod(images.pixels.shape[1:])
    shapes = _dense_shapes([inputs, *units, classes])

    def logits(values: Tensor, parts: list[Tensor]) -> Tensor:
        for number, (kernel, bias) in enumerate(_pairs(parts)):
            if number:
                values = bend(values)
            values = _dense(values, kernel, bias)
        return values

    return Networks(images, batch_size, shapes, logits)


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
    pooled_side = -(-side // 8)
    ends = channels * pooled_side**2
    shapes += _dense_shapes([ends, 32, classes])

    def features(values: Tensor, parts: list[Tensor]) -> Tensor:
        """Returns those of the images of one draw."""
        values = tf.reshape(values, [-1, side, side, colours])
        for kernel, shift in _pairs(parts):
            values = tf.nn.conv2d(values, kernel, 1, "SAME")
            values = bend(_normalized(values) + shift)
            values = tf.nn.max_pool2d(values, 2, 2, "SAME")
        return tf.reshape(values, [batch_size, ends])

    def logits(values: Tensor, parts: list[Tensor]) -> Tensor:
        by_draw = []
        for own_images, own_parts in _by_draw(values, parts[:6]):
            by_draw.append(features(own_images, own_parts))
        kernel, bias, last_kernel, last_bias = parts[6:]
        hidden = bend(_dense(tf.stack(by_draw), kernel, bias))
        return _dense(hidden, last_kernel, last_bias)

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
        kernels: list[tuple[int, ...]] = []
        for inputs in (self.inputs, self.outputs):
            kernels.append((3, 3, inputs, self.outputs))
        if self.has_convolution:
            kernels.append((1, 1, self.inputs, self.outputs))
        return kernels


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
    kernels: list[tuple[int, ...]] = [(3, 3, colours, channels)]
    for block in blocks:
        kernels += block.kernels()
    width = blocks[-1].outputs
    shapes: list[Sequence[int]] = []
    starts = []
    for kernel in kernels:
        *fan_in, outputs = kernel
        shapes += [kernel, (outputs,), (outputs,)]
        # Of relus' kernels: He et al. 2015.
        deviation = math.sqrt(2 / math.prod(fan_in))
        starts += [(0.0, deviation), (1.0, 0.0), (0.0, 0.0)]
    shapes += _dense_shapes([width, classes])
    deviation = math.sqrt(1 / width)
    starts += [(0.0, deviation), (0.0, 0.0)]

    def logits(values: Tensor, parts: list[Tensor]) -> Tensor:
        by_draw = []
        for own_images, own_parts in _by_draw(values, parts[:-2]):
            own_images = tf.reshape(own_images, [-1, side, side, colours])
            convolutions = _Convolutions(own_parts)
            features = _residual_features(own_images, convolutions, blocks)
            by_draw.append(features)
        kernel, bias = parts[-2:]
        return _dense(tf.stack(by_draw), kernel, bias)

    return Networks(images, batch_size, shapes, logits, starts)


def _blocks(stages: Sequence[int], channels: int) -> list[Block]:
    """Returns the blocks of all stages, whose channels double."""
    blocks: list[Block] = []
    inputs = channels
    for stage, count in enumerate(stages):
        outputs = channels * 2**stage
        for number in range(count):
            stride = 2 if stage and not number else 1
            blocks.append(Block(inputs, outputs, stride))
            inputs = outputs
    return blocks


class _Convolutions:
    """The convolutions of one network, in their order, each with its normalization."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self._parts = iter(parts)

    def next(self, values: Tensor, stride: int = 1) -> Tensor:
        """Applies the next one to images `[B, height, width, channels]`."""
        kernel, scale, shift = itertools.islice(self._parts, 3)
        values = tf.nn.conv2d(values, kernel, stride, "SAME")
        return _normalized(values) * scale + shift


def _residual_features(
    values: Tensor, convolutions: _Convolutions, blocks: Sequence[Block]
) -> Tensor:
    """Returns what the dense layer reads of images, `[B, width]`."""
    values = tf.nn.relu(convolutions.next(values))
    for block in blocks:
        inner = tf.nn.relu(convolutions.next(values, block.stride))
        inner = convolutions.next(inner)
        if block.has_convolution:
            values = convolutions.next(values, block.stride)
        values = tf.nn.relu(values + inner)
    return tf.reduce_mean(values, [1, 2])


def _by_draw(
    values: Tensor, parts: Sequence[Tensor]
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yields the images of each draw, and its own weights and biases."""
    unstacked = [tf.unstack(part) for part in parts]
    for draw, own_values in enumerate(tf.unstack(values)):
        yield own_values, [part[draw] for part in unstacked]


def _dense(values: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Applies the dense layer of each draw to `[draws, B, inputs]`."""
    return tf.matmul(values, kernel) + bias[:, None]


def _normalized(values: Tensor) -> Tensor:
    """Returns images of mean 0 and variance 1 in each channel of the batch."""
    mean, variance = tf.nn.moments(values, [0, 1, 2])
    inverse = tf.math.rsqrt(variance + 1e-3)
    return (values - mean) * inverse


def _check_classes(classes: int, images: Images) -> None:
    largest = int(tf.reduce_max(images.labels))
    if not largest < classes:
        raise ValueError(
            f"`classes` must be above {largest}, the largest label of the images. "
            f"Received: classes={classes!r}"
        )


def _dense_shapes(widths: Sequence[int]) -> list[Sequence[int]]:
    shapes: list[Sequence[int]] = []
    for inputs, outputs in itertools.pairwise(widths):
        shapes += [(inputs, outputs), (outputs,)]
    return shapes


def _pairs(parts: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Returns each kernel with its bias."""
    kernels = parts[::2]
    biases = parts[1::2]
    return list(zip(kernels, biases, strict=True))


def _seeds(seed: Tensor, count: int) -> list[Tensor]:
    seeds = tf.random.split(seed, count)
    return tf.unstack(seeds)


def _start(draws: int, size: int, seed: Tensor) -> Tensor:
    values = tf.random.stateless_normal([draws, size], seed)
    return DEVIATION * values


def _cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """Returns that of each image, with a gradient that XLA and determinism allow."""
    classes = logits.shape[-1]
    chosen = tf.one_hot(labels, classes, dtype=logits.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(chosen, logits)
