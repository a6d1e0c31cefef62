"""Draws docs/repackaging.png: `python -m docs.draw_repackaging`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from docs import palette
from docs.drawing import HALF, SIZE, box, height, save, title

STEPS = 3  # of a window
LEVELS = 2
GAP = 1.4  # between two windows, in which their history stands


def window(
    axes: Axes, start: float, first: int, rows: int, unscored: int = 0
) -> list[float]:
    """Draws a window: inputs, and rows of cells above them; returns where its steps are.

    Args:
        axes: where.
        start: the place of its first step.
        first: the number of its first step.
        rows: how many rows of cells.
        unscored: how many outputs at its beginning are not scored.
    """
    places = [start + step for step in range(STEPS)]
    name = "first window" if start == 0 else "second window"
    middle = start + (STEPS - 1) / 2
    axes.text(
        middle,
        -0.7,
        name,
        ha="center",
        va="center",
        fontsize=SIZE,
        color=palette.MUTED,
    )
    for step, x in enumerate(places):
        box(
            axes,
            x,
            height(0),
            f"$x_{{{first + step}}}$",
            palette.INPUT_FACE,
            palette.INPUT,
        )
        for row in range(1, rows + 1):
            box(axes, x, height(row), "", palette.WEIGHTS[0], palette.PRESENT)
        scored = step >= unscored
        text = f"$y_{{{first + step}}}$" if scored else "–"
        y = height(rows) + 0.68
        axes.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=SIZE,
            color=palette.MUTED,
        )
    return places


def taken(axes: Axes, x: float, row: int, text: str = "") -> None:
    """Draws what stands left of a window in a row."""
    box(axes, x, height(row), text, palette.NOTHING, palette.PAST)


def carry(axes: Axes, start: tuple, end: tuple, bend: float = 0.0) -> None:
    """Draws the way of a state from one window to the next."""
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>,head_width=3.4,head_length=5.5",
            connectionstyle=f"arc3,rad={bend}",
            color=palette.PAST,
            lw=2,
            shrinkA=0,
            shrinkB=0,
            zorder=6,
        )
    )


def finish(axes: Axes, name: str, right: float, rows: int) -> None:
    """Sets the title and the limits of a panel."""
    title(axes, name)
    axes.set(xlim=(-0.5, right + 0.5), ylim=(-1.0, height(rows) + 1.0), aspect="equal")
    axes.axis("off")


def recurrent(axes: Axes) -> None:
    """Draws a recurrent layer, whose state goes from window to window."""
    first = window(axes, 0, 1, 1)
    second = window(axes, STEPS + GAP, STEPS + 1, 1)
    taken(axes, second[0] - 1, 1, "$h$")
    carry(axes, (first[-1] + HALF, height(1)), (second[0] - 1 - HALF, height(1)))
    finish(axes, "recurrent layer: its state", second[-1], 1)


def repackaged(axes: Axes) -> None:
    """Draws a trellis network, whose top level's last state stands left of all levels."""
    first = window(axes, 0, 1, LEVELS)
    second = window(axes, STEPS + GAP, STEPS + 1, LEVELS)
    corner = (first[-1] + HALF, height(LEVELS))
    for level in range(1, LEVELS + 1):
        taken(axes, second[0] - 1, level, "$h$")
        carry(axes, corner, (second[0] - 1 - HALF, height(level)))
    box(axes, first[-1], height(LEVELS), "$h$", palette.WEIGHTS[0], palette.PAST)
    finish(axes, "repackaging: the top level's state", second[-1], LEVELS)


def overlapping(axes: Axes, unscored: int = 2) -> None:
    """Draws windows that overlap, each with zeros to its left."""
    window(axes, 0, 1, LEVELS, unscored)
    start = STEPS + GAP
    second = window(axes, start, STEPS + 1 - unscored, LEVELS, unscored)
    for x in (second[0] - 1,):
        for level in range(1, LEVELS + 1):
            box(axes, x, height(level), "$0$", palette.NOTHING, palette.MUTED)
    finish(axes, f"overlap: {unscored} outputs not scored", second[-1], LEVELS)


def exact(axes: Axes) -> None:
    """Draws the cache: each level goes on from its own past."""
    first = window(axes, 0, 1, LEVELS)
    second = window(axes, STEPS + GAP, STEPS + 1, LEVELS)
    for level in range(1, LEVELS + 1):
        taken(axes, second[0] - 1, level, "$h$")
        start = (first[-1] + HALF, height(level))
        carry(axes, start, (second[0] - 1 - HALF, height(level)))
        box(
            axes,
            first[-1],
            height(level),
            "$h$",
            palette.WEIGHTS[0],
            palette.PAST,
        )
    finish(axes, "cache: each level's own past", second[-1], LEVELS)


def draw(path: Path) -> None:
    """Draws how windows get their past, and writes the picture."""
    figure, panels = plt.subplots(2, 2, figsize=(9.4, 6.6), layout="constrained")
    drawings = (recurrent, repackaged, overlapping, exact)
    for axes, drawing in zip(panels.ravel(), drawings, strict=True):
        drawing(axes)
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("repackaging.png"))
