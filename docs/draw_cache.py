"""Draws docs/cache.png, what a state and a cache keep: `python -m docs.draw_cache`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from docs import palette
from docs.drawing import HALF, SIZE, arrow, box, height, output, save, title

STEPS = 3
LEVELS = 3
FORGOTTEN = (palette.NOTHING, palette.MUTED)
KEPT = (palette.KEPT_FACE, palette.KEPT)


def cell(axes: Axes, step: int, row: int, kept: bool) -> None:
    """Draws an input, or a cell of a level; the last step is computed now."""
    if kept:
        colours = KEPT
    elif step < STEPS:
        colours = FORGOTTEN
    elif row == 0:
        colours = (palette.INPUT_FACE, palette.INPUT)
    else:
        colours = (palette.WEIGHTS[0], palette.PRESENT)
    names = {1: "t-2", 2: "t-1", 3: "t"}
    text = f"$x_{{{names[step]}}}$" if row == 0 else ""
    box(axes, step, height(row), text, *colours)


def panel(axes: Axes, kept: set[tuple[int, int]]) -> None:
    """Draws the network, and what is kept of it: steps and rows."""
    for step in range(1, STEPS + 1):
        for row in range(LEVELS + 1):
            cell(axes, step, row, (step, row) in kept)
    for row in range(1, LEVELS + 1):
        below, above = height(row - 1) + HALF, height(row) - HALF
        color = palette.INPUT if row == 1 else palette.PRESENT
        arrow(axes, (STEPS, below), (STEPS, above), color)
    output(axes, STEPS, LEVELS, "$y_t$")
    axes.axvline(STEPS - 0.5, 0.04, 0.86, color=palette.MUTED, lw=1.2, ls=(0, (4, 3)))
    axes.set(xlim=(0.5, STEPS + 0.6), ylim=(-0.5, height(LEVELS) + 1.5), aspect="equal")
    axes.axis("off")


def state(axes: Axes) -> None:
    """Draws the state: the top level's last step, which every level then reads."""
    panel(axes, {(STEPS - 1, LEVELS)})
    for row in range(1, LEVELS + 1):
        start = (STEPS - 1 + HALF, height(LEVELS) - HALF * (1 - row / LEVELS))
        end = (STEPS - HALF, height(row))
        arrow(axes, start, end, palette.PAST)
    title(axes, "state: the top level alone,\nfor all levels")


def cache(axes: Axes) -> None:
    """Draws the cache: the last step of every row, which the row above reads."""
    panel(axes, {(STEPS - 1, row) for row in range(LEVELS + 1)})
    for row in range(1, LEVELS + 1):
        start = (STEPS - 1 + HALF, height(row - 1) + HALF / 2)
        color = palette.INPUT if row == 1 else palette.PAST
        arrow(axes, start, (STEPS - HALF * 0.8, height(row) - HALF), color)
    title(axes, "cache: every level's\nown past")


def draw(path: Path) -> None:
    """Draws both panels and writes the picture."""
    figure, pair = plt.subplots(1, 2, figsize=(9, 7.4), layout="constrained")
    state(pair[0])
    cache(pair[1])
    figure.legend(
        handles=[
            Patch(fc=KEPT[0], ec=KEPT[1], label="kept"),
            Patch(
                fc=palette.WEIGHTS[0], ec=palette.PRESENT, label="computed at step $t$"
            ),
            Patch(fc=FORGOTTEN[0], ec=FORGOTTEN[1], label="forgotten"),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=SIZE,
        labelcolor=palette.MUTED,
        handlelength=1.2,
        columnspacing=1.2,
    )
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("cache.png"))
