"""The layers with which DRAW reads an image and writes on its canvas."""

import math
from typing import Any

import keras
import tensorflow as tf

from keras_trellis.types import Tensor
from trainers.drawing import filterbanks
from trainers.drawing.filterbanks import Filters

Shape = tuple[int, int, int]
PLACE = 4
"""Numbers of a place: its centre's x and y, its side, the deviation of its filters."""


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
            filterbanks.PARAMETERS, name="parameters", dtype=self.dtype_policy
        )

    def build(self, output_shape: Any) -> None:
        """Creates the variables for decoder outputs of shape `[B, units]`."""
        self.parameters.build(output_shape)

    def call(self, output: Tensor) -> tuple[Filters, Tensor]:
        """Returns the filters and their place, `[B, 4]`, for outputs `[B, units]`."""
        parameters = self.parameters(output)
        grid = filterbanks.grid(parameters, self.taps, *self.size)
        side = grid.spacing * (self.taps - 1)
        deviation = tf.sqrt(grid.variance)
        extent = tf.stack([side, deviation], -1)
        place = tf.concat([grid.centre, extent], -1)
        filters = filterbanks.filters(grid, self.taps, *self.size)
        return filters, place


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
            by, place = self.window(output)
            patches = [filterbanks.read(patch, by) for patch in patches]
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
        by, place = self.window(output)
        return filterbanks.write(patch, by), place


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
