"""Pictures of drawings: sheets of all steps, and an animation that shows where DRAW looks."""

import logging
import pathlib
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
from etils import epath
from matplotlib import animation, figure, patches

from trainers.data.files import write_atomically
from trainers.drawing.model import DRAW, Drawing

ROWS, STEPS = 8, 10  # of a sheet
_SCALE = 2  # pixels of a sheet for each of an image
_READ, _WRITTEN = "tab:green", "tab:red"
_FRAMES_A_SECOND, _AT_THE_END = 8, 8

# It tells at each animation which writer it has.
logging.getLogger("matplotlib.animation").setLevel(logging.WARNING)


def sheet(model: DRAW, images: tf.Tensor, seed: int) -> np.ndarray:
    """Returns a picture, uint8 `[H, W, C]`, of samples above and reconstructions below.

    A row is an image after some of its steps, the last one included. The images of the lower rows
    stand left of them.

    Args:
        model: what draws.
        images: what it copies, some of `[N, height, width, C]`, from 0 to 1.
        seed: the seed of the samples.
    """
    copied = images[:ROWS]
    generated = model.generate(len(copied), seed)
    reconstructed = model.reconstruct(copied, seed)
    samples = _chosen_steps(generated.canvases)
    copies = _chosen_steps(reconstructed.canvases)
    originals = np.asarray(copied)[:, None]
    nothing = np.ones_like(originals)
    rows = [
        np.concatenate([nothing, samples], axis=1),
        np.concatenate([originals, copies], axis=1),
    ]
    tiles = np.concatenate(rows)
    frame = [(0, 0), (0, 0), (1, 1), (1, 1), (0, 0)]
    tiles = np.pad(tiles, frame, constant_values=0.5)
    count, steps, height, width, channels = tiles.shape
    shape = [count * height, steps * width, channels]
    whole = tiles.transpose(0, 2, 1, 3, 4).reshape(shape)
    pixels = np.rint(255 * whole).astype(np.uint8)
    pixels = pixels.repeat(_SCALE, axis=0)
    return pixels.repeat(_SCALE, axis=1)


def save_sheet(pixels: np.ndarray, path: epath.Path) -> None:
    """Writes a sheet as PNG, whole or not at all."""
    content = tf.io.encode_png(pixels).numpy()
    write_atomically(path, lambda file: file.write(content))


def save_animation(model: DRAW, images: tf.Tensor, seed: int, path: epath.Path) -> None:
    """Writes a GIF: above samples grow, below copies of images, with the places of each step.

    A green frame is where the model looks, a red one where it draws.

    Args:
        model: what draws.
        images: what it copies, `[N, height, width, C]`, from 0 to 1.
        seed: the seed of the samples.
        path: the file.
    """
    samples = model.generate(len(images), seed)
    copies = model.reconstruct(images, seed)
    picture = figure.Figure(figsize=(len(images), 2), dpi=80)
    picture.subplots_adjust(0, 0, 1, 1, 0.05, 0.05)
    axes = picture.subplots(2, len(images), squeeze=False)

    def draw(step: int) -> list:
        shown = min(step, model.steps - 1)
        for row, drawing in zip(axes, (samples, copies), strict=True):
            for number, panel in enumerate(row):
                _draw_step(panel, drawing, number, shown)
        return []

    frames = model.steps + _AT_THE_END
    moving = animation.FuncAnimation(picture, draw, frames, init_func=lambda: [])
    with tempfile.TemporaryDirectory() as folder:
        local = pathlib.Path(folder, "drawing.gif")
        moving.save(local, animation.PillowWriter(_FRAMES_A_SECOND))
        content = local.read_bytes()
    write_atomically(path, lambda file: file.write(content))


def _draw_step(axes: Any, drawing: Drawing, number: int, step: int) -> None:
    """Draws one image after a step, with the frames of that step."""
    axes.clear()
    axes.set_axis_off()
    canvas = np.squeeze(drawing.canvases[number, step])
    axes.imshow(canvas, "gray", vmin=0, vmax=1)
    ends = np.array(canvas.shape[1::-1]) - 0.5  # matplotlib counts pixels from 0
    for places, colour in ((drawing.read, _READ), (drawing.written, _WRITTEN)):
        if places is not None:
            place = np.asarray(places[number, step])
            axes.add_patch(_frame(place, ends, colour))


def _frame(place: np.ndarray, ends: np.ndarray, colour: str) -> patches.Rectangle:
    """Returns the frame around a place, of which it shows what lies in the image."""
    *centre, side, deviation = place
    reach = np.array([[-1.0], [1.0]]) * (side / 2 + deviation)
    corners = np.array(centre) - 1 + reach
    corner, opposite = np.clip(corners, -0.5, ends)
    width, height = opposite - corner
    return patches.Rectangle(corner, width, height, fill=False, edgecolor=colour)


def _chosen_steps(canvases: tf.Tensor) -> np.ndarray:
    """Returns the canvases of at most `STEPS` steps, the last one included."""
    steps = canvases.shape[1]
    count = min(STEPS, steps)
    chosen = np.linspace(0, steps - 1, count).round().astype(int)
    return np.asarray(canvases)[:, chosen]
