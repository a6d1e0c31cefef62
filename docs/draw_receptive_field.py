"""Draws docs/receptive_field.png: `python -m docs.draw_receptive_field`.

What one output depends on is not computed from a formula: it is where the gradient of a real
layer's output is not zero.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from docs import palette
from docs.drawing import (
    HALF,
    arrow,
    box,
    height,
    label,
    output,
    save,
    time_axis,
    title,
)
from keras_trellis import TrellisLayer

STEPS = 17
CYCLES = ((1, 1, 1, 1), (1, 2, 4, 8))


def inputs_that_matter(dilations: Sequence[int], steps: int) -> np.ndarray:
    """Returns on which inputs the last output of a level a dilation depends; bool [steps]."""
    layer = TrellisLayer(
        8,
        depth=len(dilations),
        dilation_rate=dilations,
        return_sequences=True,
        seed=0,
    )
    sequences = tf.random.stateless_normal([1, steps, 3], seed=[0, 0])
    with tf.GradientTape() as tape:
        tape.watch(sequences)
        last = layer(sequences)[:, -1]
    gradient = tape.gradient(last, sequences)
    return np.any(gradient != 0, axis=(0, 2))


def cells_that_matter(dilations: Sequence[int], steps: int) -> np.ndarray:
    """Returns on which cells the last output depends; bool [levels + 1, steps], inputs first.

    A level reads the level below at the steps at which it reads the input. So the cells of level
    i that matter stand where the inputs of a network of the levels above it alone would matter.
    """
    rows = [
        inputs_that_matter(dilations[level:], steps) for level in range(len(dilations))
    ]
    top = np.arange(steps) == steps - 1
    return np.stack([*rows, top])


def cells(axes: Axes, matter: np.ndarray) -> None:
    """Draws the inputs and cells that matter, and a dot for each other."""
    for row, step in np.ndindex(*matter.shape):
        if not matter[row, step]:
            axes.plot(step, height(row), ".", color=palette.MUTED, alpha=0.4)
        elif row == 0:
            box(axes, step, height(row), "", palette.INPUT_FACE, palette.INPUT)
        else:
            box(axes, step, height(row), "", palette.WEIGHTS[0], palette.PRESENT)


def taps(axes: Axes, matter: np.ndarray, dilations: Sequence[int]) -> None:
    """Draws what the cells that matter read of the row below."""
    for level, step in np.argwhere(matter[1:]):
        bottom = height(level) + HALF
        top = height(level + 1) - HALF
        before = step - dilations[level]
        arrow(axes, (step, bottom), (step, top), palette.PRESENT, 1.5)
        if before >= 0:
            arrow(axes, (before + 0.12, bottom), (step - 0.14, top), palette.PAST, 1.5)


def panel(axes: Axes, dilations: Sequence[int]) -> None:
    """Draws one network and marks what its last output depends on."""
    matter = cells_that_matter(dilations, STEPS)
    levels, last = len(dilations), STEPS - 1
    reached = int(matter[0].sum())
    corner = (last - reached + 0.5, -0.5)
    axes.add_patch(Rectangle(corner, reached, 1, fc=palette.SHADE, ec="none", zorder=0))
    cells(axes, matter)
    taps(axes, matter, dilations)
    output(axes, last, levels, "$y_t$")
    label(axes, 0, "input")
    for level, dilation in enumerate(dilations, 1):
        label(axes, level, f"dilation {dilation}")
    title(axes, f"kernel_size=2, depth={levels}: the output depends on {reached} steps")
    axes.set(xlim=(-4.4, last + 0.7), ylim=(-1.4, height(levels) + 1.7), aspect="equal")
    axes.axis("off")


def draw(path: Path) -> None:
    """Draws a network of one dilation above one of a cycle of dilations, and writes the picture."""
    figure, panels = plt.subplots(len(CYCLES), figsize=(9, 6.4), layout="constrained")
    for axes, dilations in zip(panels, CYCLES, strict=True):
        panel(axes, dilations)
    time_axis(panels[-1], -0.3, STEPS - 0.5, -1.1)
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("receptive_field.png"))
