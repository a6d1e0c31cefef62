"""What the pictures of trellis networks share: colours, and boxes in rows with arrows between them.

A box is at a step (x) in a row (y): row 0 and below is input, row i is level i.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from docs import palette

RISE = 1.2
HALF = 0.31
SIZE = 17  # of words: legible where a picture of 9 inches is 390 pixels wide


def height(row: float) -> float:
    """Returns where a row is drawn."""
    return row * RISE


def box(axes: Axes, x: float, y: float, text: str, face: str, edge: str) -> None:
    """Draws a symbol in a rounded box; an empty box shows the ground."""
    ink = palette.MUTED if face in (palette.NOTHING, "none") else palette.INK
    style = f"round,pad=0,rounding_size={HALF / 2}"
    corner = (x - HALF, y - HALF)
    axes.add_patch(
        FancyBboxPatch(
            corner, 2 * HALF, 2 * HALF, style, fc=face, ec=edge, lw=1.5, zorder=4
        )
    )
    axes.text(x, y, text, ha="center", va="center", fontsize=SIZE, color=ink, zorder=5)


def arrow(axes: Axes, start: tuple, end: tuple, color: str, width: float = 2.0) -> None:
    """Draws an arrow."""
    style = "-|>,head_width=3.4,head_length=5.5"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle=style,
            color=color,
            lw=width,
            shrinkA=0,
            shrinkB=0,
            zorder=3,
        )
    )


def label(axes: Axes, row: float, text: str, right: float = -0.6) -> None:
    """Writes what a row is, left of it."""
    axes.text(
        right,
        height(row),
        text,
        ha="right",
        va="center",
        fontsize=SIZE,
        color=palette.MUTED,
    )


def output(axes: Axes, step: int, row: int, text: str) -> None:
    """Draws what leaves the top row."""
    top = height(row)
    arrow(axes, (step, top + HALF), (step, top + 0.85), palette.MUTED)
    axes.text(step, top + 0.95, text, ha="center", fontsize=SIZE, color=palette.MUTED)


def time_axis(axes: Axes, start: float, end: float, y: float) -> None:
    """Draws the direction of time."""
    axes.annotate(
        "time",
        (end, y),
        (start, y),
        va="center",
        color=palette.MUTED,
        fontsize=SIZE,
        arrowprops={"arrowstyle": "-|>", "color": palette.MUTED},
    )


def title(axes: Axes, text: str) -> None:
    """Writes what a panel shows, above it."""
    axes.set_title(text, fontsize=SIZE, color=palette.MUTED)


def save(figure: Figure, path: Path) -> None:
    """Writes the picture, on transparent ground."""
    figure.savefig(path, dpi=110, bbox_inches="tight", transparent=True)
