"""Where DRAW looks and draws: a grid of Gaussian filters over an image.

Source: Gregor et al. 2015, "DRAW: A Recurrent Neural Network For Image Generation", section 3.2.
Taps and pixels are counted from 1, so that the grid lies evenly around its centre.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_trellis.types import Tensor

PARAMETERS = 5  # g~X, g~Y, log variance, log delta~, log gamma
_EPSILON = 1e-8  # added to a row's sum, which is 0 for a tap far outside


class Grid(NamedTuple):
    """A grid of N x N taps for each of B images.

    Attributes:
        centre: (gX, gY), `[B, 2]`, in pixels counted from 1.
        spacing: delta, `[B]`, the pixels between two taps.
        variance: `[B]`, of each filter, in pixels squared.
        intensity: gamma, `[B]`.
    """

    centre: Tensor
    spacing: Tensor
    variance: Tensor
    intensity: Tensor


class Filters(NamedTuple):
    """The filters of a grid.

    Attributes:
        rows: F_Y, `[B, N, height]`.
        columns: F_X, `[B, N, width]`.
        intensity: gamma, `[B]`.
    """

    rows: Tensor
    columns: Tensor
    intensity: Tensor


def grid(parameters: Tensor, taps: int, height: int, width: int) -> Grid:
    """Returns the grid of five numbers a network has computed.

    Args:
        parameters: `[B, 5]`, in the order g~X, g~Y, log variance, log delta~, log gamma. Zeros are
            a grid over the whole of the longer side, around the image's centre.
        taps: N.
        height: of the image, in pixels.
        width: the same.
    """
    x, y, log_variance, log_spacing, log_intensity = tf.unstack(parameters, axis=-1)
    centre_x = (width + 1) / 2 * (x + 1)
    centre_y = (height + 1) / 2 * (y + 1)
    longer_side = max(width, height)
    # One tap has no spacing; any number will do.
    whole = (longer_side - 1) / max(taps - 1, 1)
    return Grid(
        centre=tf.stack([centre_x, centre_y], -1),
        spacing=whole * tf.exp(log_spacing),
        variance=tf.exp(log_variance),
        intensity=tf.exp(log_intensity),
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


def filters(where: Grid, taps: int, height: int, width: int) -> Filters:
    """Returns the filters of a grid of N = `taps` over images of a size."""
    x, y = tf.unstack(where.centre, axis=-1)
    row_places = tap_places(y, where.spacing, taps)
    column_places = tap_places(x, where.spacing, taps)
    return Filters(
        rows=bank(row_places, where.variance, height),
        columns=bank(column_places, where.variance, width),
        intensity=where.intensity,
    )


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
