"""Draws docs/streaming.png: `python -m docs.draw_streaming`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from docs import drawing, palette

FIRST, NOW = 3, 6
TAPS = 3
ROWS = {
    "input": "x",
    "Conv1D keeps 2 inputs: 48 bytes": "c",
    "LSTM keeps h and c: 256 bytes": "h",
    "Dense keeps nothing": "y",
}
CACHE, CACHE_FACE = "#f2b632", "#ffe7a8"
SIZE = 17


def is_cached(step: int, row: int) -> bool:
    """Returns whether the next chunk needs a number of the past."""
    of_input = row == 0 and NOW - TAPS < step < NOW
    return of_input or (row == 2 and step == NOW - 1)


def place(axes: Axes, step: int, row: int, symbol: str) -> None:
    """Draws the numbers of a layer at a step."""
    text = f"${symbol}_{step}$"
    y = drawing.height(row)
    if step == NOW:
        face = palette.INPUT_FACE if row == 0 else palette.CELLS[row - 1]
        drawing.box(
            axes, step, y, text, face, palette.INPUT if row == 0 else palette.PRESENT
        )
    elif is_cached(step, row):
        drawing.box(axes, step, y, text, CACHE_FACE, CACHE)
    else:
        drawing.box(axes, step, y, text, palette.NOTHING, "#d5dae2")


def computation(axes: Axes) -> None:
    """Draws what the chunk of one step reads."""
    for step in range(NOW - TAPS + 1, NOW + 1):
        end = NOW - 0.11 * (NOW - step)
        color = palette.INPUT if step == NOW else CACHE
        drawing.arrow(
            axes,
            (step, drawing.height(0) + drawing.HALF),
            (end, drawing.height(1) - drawing.HALF),
            color,
        )
    for row in (1, 2):
        drawing.arrow(
            axes,
            (NOW, drawing.height(row) + drawing.HALF),
            (NOW, drawing.height(row + 1) - drawing.HALF),
            palette.PRESENT,
        )
    drawing.arrow(
        axes,
        (NOW - 1 + drawing.HALF, drawing.height(2)),
        (NOW - drawing.HALF, drawing.height(2)),
        CACHE,
    )


def legend(axes: Axes) -> None:
    """Says what each colour stands for."""
    handles = [
        Patch(fc=CACHE_FACE, ec=CACHE, label="the cache: what is kept of the past"),
        Patch(fc=palette.CELLS[1], ec=palette.PRESENT, label="computed now"),
        Patch(fc=palette.NOTHING, ec="#d5dae2", label="computed once, and forgotten"),
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0.03),
        frameon=False,
        fontsize=SIZE,
        labelcolor=palette.MUTED,
    )


def draw(path: Path) -> None:
    """Draws a model at one step and writes the picture."""
    figure, axes = plt.subplots(figsize=(7, 8.8))
    left = FIRST - drawing.HALF
    for row, (name, symbol) in enumerate(ROWS.items()):
        above = drawing.height(row) + drawing.HALF + 0.1
        axes.text(left, above, name, color=palette.MUTED, fontsize=SIZE)
        for step in range(FIRST, NOW + 1):
            place(axes, step, row, symbol)
    computation(axes)
    below = drawing.height(0) - drawing.HALF - 0.3
    drawing.time_axis(axes, left, NOW - 0.8, below)
    now = axes.text(NOW, below, "now", color=palette.MUTED, fontsize=SIZE)
    now.set(ha="center", va="center")
    legend(axes)
    axes.set_xlim(left - 0.1, NOW + drawing.HALF + 0.1)
    axes.set_ylim(below - 0.3, drawing.height(len(ROWS)) - 0.3)
    axes.axis("off")
    drawing.save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("streaming.png"))
