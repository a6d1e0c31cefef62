"""Draws docs/streaming.png: `python -m docs.draw_streaming`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from docs import drawing, palette

NOW = 6
TAPS = 3
ROWS = {
    "input, 6 channels": ("x", ""),
    "Conv1D(16, 3)": ("c", "keeps its last 2 inputs: 2 · 6 · 4 = 48 bytes"),
    "LSTM(32)": ("h", "keeps h and c: 2 · 32 · 4 = 256 bytes"),
    "Dense(7)": ("y", "keeps nothing"),
}
CACHE = "#f2b632"


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
        drawing.box(axes, step, y, text, palette.SHADE, CACHE)
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
        Patch(fc=palette.SHADE, ec=CACHE, label="the cache: what is kept of the past"),
        Patch(fc=palette.CELLS[1], ec=palette.PRESENT, label="computed now"),
        Patch(fc=palette.NOTHING, ec="#d5dae2", label="computed once, and forgotten"),
    ]
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.02),
        ncols=3,
        frameon=False,
        fontsize=11,
        labelcolor=palette.INK,
    )


def draw(path: Path) -> None:
    """Draws a model at one step and writes the picture."""
    figure, axes = plt.subplots(figsize=(11, 5.6))
    for row, (name, (symbol, text)) in enumerate(ROWS.items()):
        drawing.label(axes, row, name)
        for step in range(1, NOW + 1):
            place(axes, step, row, symbol)
        axes.text(
            NOW + 0.65,
            drawing.height(row),
            text,
            va="center",
            color=palette.PAST,
            fontsize=11,
        )
    computation(axes)
    drawing.output(axes, NOW, len(ROWS) - 1, f"$y_{NOW}$")
    axes.axvline(
        NOW - 0.5, 0.1, 0.93, color=palette.MUTED, lw=1, ls=(0, (4, 3)), zorder=1
    )
    drawing.time_axis(axes, 1, NOW - 0.8, drawing.height(-1) + 0.45)
    axes.text(
        NOW,
        drawing.height(-1) + 0.45,
        "now",
        ha="center",
        va="center",
        color=palette.MUTED,
    )
    legend(axes)
    axes.set_xlim(-2.1, NOW + 4.6)
    axes.set_ylim(drawing.height(-1) - 0.1, drawing.height(len(ROWS)) + 0.35)
    axes.axis("off")
    drawing.save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("streaming.png"))
