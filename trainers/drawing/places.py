"""Where DRAW looks and draws: a grid of Gaussian filters over an image, and layers with one.

Source: Gregor et al. 2015, "DRAW: A Recurrent Neural Network For Image Generation", section 3.2.
Taps and pixels are counted from 1, so that the grid lies evenly around its centre.
"""

import math
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_trellis.types import Tensor

Shape = tuple[int, int, int]
PARAMETERS = 5  # g~X, g~Y, log variance, log delta~, log gamma
PLACE = 4
"""Numbers of a place: its centre's x and y, its side, the deviation of its filters."""
_EPSILON = 1e-8  # added to a row's sum, which is 0 for a tap far outside


class Filters(NamedTuple):
    """The filters of a grid of N x N taps for each of B images.

    Attributes:
        rows: F_Y, `[B, N, height]`.
        columns: F_X, `[B, N, width]`.
        intensity: gamma, `[B]`.
        place: `[B, 4]`, in pixels counted from 1: the centre's x and y, the side of the grid, and
            the deviation of each filter.
    """

    rows: Tensor
    columns: Tensor
    intensity: Tensor
    place: Tensor


def filters(parameters: Tensor, taps: int, height: int, width: int) -> Filters:
    """Returns the filters of five numbers a network has computed.

    Args:
        parameters: `[B, 5]`, in the order g~X, g~Y, log variance, log delta~, log gamma. Zeros are
            a grid over the whole of the longer side, around the image's centre.
        taps: N.
        height: of the image, in pixels.
        width: the same.
    """
    x, y, log_variance, log_spacing, log_intensity = tf.unstack(parameters, axis=-1)
    x, y = (width + 1) / 2 * (x + 1), (height + 1) / 2 * (y + 1)
    # One tap has no spacing; any number will do.
    whole = (max(width, height) - 1) / max(taps - 1, 1)
    spacing, variance = whole * tf.exp(log_spacing), tf.exp(log_variance)
    return Filters(
        rows=bank(tap_places(y, spacing, taps), variance, height),
        columns=bank(tap_places(x, spacing, taps), variance, width),
        intensity=tf.exp(log_intensity),
        place=tf.stack([x, y, spacing * (taps - 1), tf.sqrt(variance)], -1),
    )


def tap_places(centre: Tensor, spacing: Tensor, taps: int) -> Tensor:
    """Returns the places `[B, N]` of N taps along an axis, for centres `[B]` and spacings `[B]`."""
    numbers = tf.range(1, taps + 1, dtype=centre.dtype)
    offsets = numbers - taps / 2 - 0.5
    return centre[:, None] + offsets * spacing[:, None]


def bank(places: Tensor, variance: Tensor, length: int) -> Tensor:
    """Returns filters along an axis, `[B, N, length]`, whose rows sum to 1.

    Args:
        places: of the taps, `[B, N]`.
        variance: `[B]`.
        length: the number of pixels.
    """
    pixels = tf.range(1, length + 1, dtype=places.dtype)
    squares = tf.square(pixels - places[..., None])
    variance = variance[:, None, None]
    weights = tf.exp(-squares / (2 * variance))
    sums = tf.reduce_sum(weights, -1, keepdims=True)
    return weights / (sums + _EPSILON)


def read(images: Tensor, by: Filters) -> Tensor:
    """Returns the patches gamma F_Y x F_X^T, `[B, N, N, C]`, of images `[B, height, width, C]`."""
    patches = tf.einsum("bnh,bhwc,bmw->bnmc", by.rows, images, by.columns)
    return _scaled(patches, by.intensity)


def write(patches: Tensor, by: Filters) -> Tensor:
    """Returns F_Y^T patch F_X / gamma, `[B, height, width, C]`, of patches `[B, N, N, C]`."""
    images = tf.einsum("bnh,bnmc,bmw->bhwc", by.rows, patches, by.columns)
    return _scaled(images, 1 / by.intensity)


def _scaled(images: Tensor, factor: Tensor) -> Tensor:
    return images * factor[:, None, None, None]


class Window(keras.layers.Layer):
    """Computes a grid of filters from the decoder's output.

    Args:
        image_shape: (height, width, channels).
        taps: N, the taps of the grid along each axis.
        **kwargs: those of `keras.layers.Layer`.
    """

    def __init__(self, image_shape: Shape, taps: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = image_shape[:2]
        self.taps = taps
        self.parameters = keras.layers.Dense(
            PARAMETERS, name="parameters", dtype=self.dtype_policy
        )

    def build(self, output_shape: Any) -> None:
        """Creates the variables for decoder outputs of shape `[B, units]`."""
        self.parameters.build(output_shape)

    def call(self, output: Tensor) -> Filters:
        """Returns the filters for outputs `[B, units]`."""
        return filters(self.parameters(output), self.taps, *self.size)


class Reader(keras.layers.Layer):
    """Reads two images through one window that the decoder's last output determines.

    Args:
        image_shape: (height, width, channels).
        taps: N, the taps of the window along each axis; None: reads the whole images.
        **kwargs: those of `keras.layers.Layer`.
    """

    def __init__(self, image_shape: Shape, taps: int | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.image_shape = image_shape
        self.size = 2 * math.prod(_patch_shape(image_shape, taps))
        self.window = _window(image_shape, taps, self.dtype_policy)

    def build(self, output_shape: Any) -> None:
        """Creates the variables for decoder outputs of shape `[B, units]`."""
        if self.window:
            self.window.build(output_shape)

    def call(
        self, images: Tensor, errors: Tensor, output: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns what is read, `[B, size]`, and the place, `[B, 4]`.

        Args:
            images: `[B, height, width, C]`.
            errors: the same, less what is drawn.
            output: the decoder's, `[B, units]`.
        """
        patches = [images, errors]
        if self.window:
            by = self.window(output)
            place = by.place
            patches = [read(patch, by) for patch in patches]
        else:
            place = _whole(output, self.image_shape)
        shape = [-1, self.size // 2]
        flat = [tf.reshape(patch, shape) for patch in patches]
        return tf.concat(flat, -1), place


class Writer(keras.layers.Layer):
    """Turns the decoder's output into a change of the canvas, written through a window.

    Args:
        image_shape: (height, width, channels).
        taps: N, the taps of the window along each axis; None: writes on the whole canvas.
        **kwargs: those of `keras.layers.Layer`.
    """

    def __init__(self, image_shape: Shape, taps: int | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.image_shape = image_shape
        self.patch_shape = _patch_shape(image_shape, taps)
        size = math.prod(self.patch_shape)
        self.patch = keras.layers.Dense(size, name="patch", dtype=self.dtype_policy)
        self.window = _window(image_shape, taps, self.dtype_policy)

    def build(self, output_shape: Any) -> None:
        """Creates the variables for decoder outputs of shape `[B, units]`."""
        self.patch.build(output_shape)
        if self.window:
            self.window.build(output_shape)

    def call(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the change `[B, height, width, C]` and the place `[B, 4]` for `[B, units]`."""
        shape = [-1, *self.patch_shape]
        patch = tf.reshape(self.patch(output), shape)
        if not self.window:
            return patch, _whole(output, self.image_shape)
        by = self.window(output)
        return write(patch, by), by.place


def _window(image_shape: Shape, taps: int | None, dtype: Any) -> Window | None:
    if taps is None:
        return None
    return Window(image_shape, taps, name="window", dtype=dtype)


def _patch_shape(image_shape: Shape, taps: int | None) -> Shape:
    if taps:
        return (taps, taps, image_shape[-1])
    return image_shape


def _whole(output: Tensor, image_shape: Shape) -> Tensor:
    """Returns the place of the whole image for each row of `output`."""
    height, width, _ = image_shape
    side = max(height, width) - 1
    centre = [(width + 1) / 2, (height + 1) / 2]
    place = tf.constant([*centre, side, 0.0], output.dtype)
    rows = tf.shape(output)[0]
    return tf.tile(place[None], [rows, 1])
