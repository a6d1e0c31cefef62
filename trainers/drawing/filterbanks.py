"""Where DRAW looks and draws: a grid of Gaussian filters over an image.

Source: Gregor et al. 2015, "DRAW: A Recurrent Neural Network For Image Generation", section 3.2.
Taps and pixels are counted from 1, so that the grid lies evenly around its centre.
"""

from typing import NamedTuple

import tensorflow as tf

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

    centre: tf.Tensor
    spacing: tf.Tensor
    variance: tf.Tensor
    intensity: tf.Tensor


class Filters(NamedTuple):
    """The filters of a grid.

    Attributes:
        rows: F_Y, `[B, N, height]`.
        columns: F_X, `[B, N, width]`.
        intensity: gamma, `[B]`.
    """

    rows: tf.Tensor
    columns: tf.Tensor
    intensity: tf.Tensor


def grid(parameters: tf.Tensor, taps: int, height: int, width: int) -> Grid:
    """Returns the grid of five numbers a network has computed.

    Args:
        parameters: `[B, 5]`, in the order g~X, g~Y, log variance, log delta~, log gamma. Zeros are
            a grid over the whole of the longer side, around the image's centre.
        taps: N.
        height: of the image, in pixels.
        width: the same.
    """
    x, y, log_variance, log_spacing, log_intensity = tf.unstack(parameters, axis=-1)
    centre = tf.stack([(width + 1) / 2 * (x + 1), (height + 1) / 2 * (y + 1)], -1)
    # One tap has no spacing; any number will do.
    whole = (max(width, height) - 1) / max(taps - 1, 1)
    spacing = whole * tf.exp(log_spacing)
    return Grid(centre, spacing, tf.exp(log_variance), tf.exp(log_intensity))


def tap_places(centre: tf.Tensor, spacing: tf.Tensor, taps: int) -> tf.Tensor:
    """Returns the places `[B, N]` of N taps along an axis, for centres `[B]` and spacings `[B]`."""
    numbers = tf.range(1, taps + 1, dtype=centre.dtype)
    offsets = numbers - taps / 2 - 0.5
    return centre[:, None] + offsets * spacing[:, None]


def bank(places: tf.Tensor, variance: tf.Tensor, length: int) -> tf.Tensor:
    """Returns filters along an axis, `[B, N, length]`, whose rows sum to 1.

    Args:
        places: of the taps, `[B, N]`.
        variance: `[B]`.
        length: the number of pixels.
    """
    pixels = tf.range(1, length + 1, dtype=places.dtype)
    squares = tf.square(pixels - places[..., None])
    weights = tf.exp(-squares / (2 * variance[:, None, None]))
    return weights / (tf.reduce_sum(weights, -1, keepdims=True) + _EPSILON)


def filters(where: Grid, taps: int, height: int, width: int) -> Filters:
    """Returns the filters of a grid of N = `taps` over images of a size."""
    x, y = tf.unstack(where.centre, axis=-1)
    rows = bank(tap_places(y, where.spacing, taps), where.variance, height)
    columns = bank(tap_places(x, where.spacing, taps), where.variance, width)
    return Filters(rows, columns, where.intensity)


def read(images: tf.Tensor, by: Filters) -> tf.Tensor:
    """Returns the patches gamma F_Y x F_X^T, `[B, N, N, C]`, of images `[B, height, width, C]`."""
    patches = tf.einsum("bnh,bhwc,bmw->bnmc", by.rows, images, by.columns)
    return _scaled(patches, by.intensity)


def write(patches: tf.Tensor, by: Filters) -> tf.Tensor:
    """Returns F_Y^T patch F_X / gamma, `[B, height, width, C]`, of patches `[B, N, N, C]`."""
    images = tf.einsum("bnh,bnmc,bmw->bhwc", by.rows, patches, by.columns)
    return _scaled(images, 1 / by.intensity)


def _scaled(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    return images * factor[:, None, None, None]
