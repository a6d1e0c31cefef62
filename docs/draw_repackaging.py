"""Draws docs/repackaging.png: `python -m docs.draw_repackaging`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from docs import palette
from docs.drawing import HALF, box, height, save

STEPS = 4  # of a window
LEVELS = 3
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
    axes.text(middle, -0.65, name, ha="center", va="center", color=palette.MUTED)
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
            box(axes, x, height(row), "", palette.CELLS[1], palette.PRESENT)
        scored = step >= unscored
        text = f"$y_{{{first + step}}}$" if scored else "–"
        y = height(rows) + 0.62
        color = palette.INK if scored else palette.MUTED
        axes.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            color=color,
        )
    return places


def taken(axes: Axes, x: float, row: int, text: str = "") -> None:
    """Draws what stands left of a window in a row."""
    box(axes, x, height(row), text, "white", palette.PAST)


def carry(axes: Axes, start: tuple, end: tuple, bend: float = 0.0) -> None:
    """Draws the way of a state from one window to the next."""
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>,head_width=2.6,head_length=4.2",
            connectionstyle=f"arc3,rad={bend}",
            color=palette.PAST,
            lw=1.5,
            shrinkA=0,
            shrinkB=0,
            zorder=6,
        )
    )


def finish(axes: Axes, title: str, right: float, rows: int) -> None:
    """Sets the title and the limits of a panel."""
    axes.set_title(title, fontsize=12.5, color=palette.INK)
    axes.set(xlim=(-0.7, right + 0.7), ylim=(-0.9, height(rows) + 1.1), aspect="equal")
    axes.axis("off")


def recurrent(axes: Axes) -> None:
    """Draws a recurrent layer, whose state goes from window to window."""
    first = window(axes, 0, 1, 1)
    second = window(axes, STEPS + GAP, STEPS + 1, 1)
    taken(axes, second[0] - 1, 1, "$h$")
    carry(axes, (first[-1] + HALF, height(1)), (second[0] - 1 - HALF, height(1)))
    finish(axes, "a recurrent layer: its state is carried", second[-1], 1)


def repackaged(axes: Axes) -> None:
    """Draws a trellis network, whose top level's last state stands left of all levels."""
    first = window(axes, 0, 1, LEVELS)
    second = window(axes, STEPS + GAP, STEPS + 1, LEVELS)
    corner = (first[-1] + HALF, height(LEVELS))
    for level in range(1, LEVELS + 1):
        taken(axes, second[0] - 1, level, "$h$")
        carry(axes, corner, (second[0] - 1 - HALF, height(level)))
    box(axes, first[-1], height(LEVELS), "$h$", palette.CELLS[3], palette.PAST)
    title = "history repackaging: the top level's last state, for every level"
    finish(axes, title, second[-1], LEVELS)


def overlapping(axes: Axes, unscored: int = 2) -> None:
    """Draws windows that overlap, each with zeros to its left."""
    window(axes, 0, 1, LEVELS, unscored)
    start = STEPS + GAP
    second = window(axes, start, STEPS + 1 - unscored, LEVELS, unscored)
    for x in (second[0] - 1,):
        for level in range(1, LEVELS + 1):
            box(axes, x, height(level), "$0$", palette.NOTHING, palette.MUTED)
    title = f"overlapping windows: the first {unscored} outputs are not scored"
    finish(axes, title, second[-1], LEVELS)


def exact(axes: Axes) -> None:
    """Draws the cache: each level goes on from its own past."""
    first = window(axes, 0, 1, LEVELS)
    second = window(axes, STEPS + GAP, STEPS + 1, LEVELS)
    for level in range(1, LEVELS + 1):
        taken(axes, second[0] - 1, level, f"$h^{{({level})}}$")
        start = (first[-1] + HALF, height(level))
        carry(axes, start, (second[0] - 1 - HALF, height(level)))
        box(
            axes,
            first[-1],
            height(level),
            f"$h^{{({level})}}$",
            palette.CELLS[3],
            palette.PAST,
        )
    finish(axes, "the cache: the past of each level, exact", second[-1], LEVELS)


def draw(path: Path) -> None:
    """Draws how windows get their past, and writes the picture."""
    figure, panels = plt.subplots(2, 2, figsize=(14, 9), layout="constrained")
    drawings = (recurrent, repackaged, overlapping, exact)
    for axes, drawing in zip(panels.ravel(), drawings, strict=True):
        drawing(axes)
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("repackaging.png"))
