"""Draws docs/cells.png: `python -m docs.draw_cells`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from docs import palette
from docs.drawing import SIZE, arrow, save, title

SUM_FACE = "#f4f6f9"
HALF_WIDTH, HALF_HEIGHT = 1.25, 0.36
MEMORY, ENTRY = (0.0, 3.6), (0.0, 0.0)
GATES, CANDIDATE, RESULT = (6.1, 3.6), (6.1, 0.0), (9.0, 1.8)
CORRECTED = (3.1, 1.9)


def node(axes: Axes, place: tuple, text: str, face: str, edge: str) -> None:
    """Draws what is computed at a place."""
    x, y = place
    axes.add_patch(
        FancyBboxPatch(
            (x - HALF_WIDTH, y - HALF_HEIGHT),
            2 * HALF_WIDTH,
            2 * HALF_HEIGHT,
            "round,pad=0,rounding_size=0.14",
            fc=face,
            ec=edge,
            lw=1.3,
            zorder=4,
        )
    )
    axes.text(
        x, y, text, ha="center", va="center", fontsize=SIZE, color=palette.INK, zorder=5
    )


def edge(
    axes: Axes,
    start: tuple,
    end: tuple,
    color: str,
    text: str = "",
    share: float = 0.5,
) -> None:
    """Draws what a node reads of another; the weights stand at a share of the way."""
    (x, y), (to_x, to_y) = start, end
    begin = (x + HALF_WIDTH, y)
    stop = (to_x - HALF_WIDTH, to_y)
    arrow(axes, begin, stop, color)
    place = tuple(a + share * (b - a) for a, b in zip(begin, stop, strict=True))
    axes.annotate(
        text,
        place,
        ha="center",
        va="center",
        fontsize=SIZE,
        color=color,
        bbox={"boxstyle": "round,pad=0.15", "fc": SUM_FACE, "ec": "none"},
        zorder=6,
    )


def frame(axes: Axes, name: str, gates: str) -> None:
    """Draws what all cells have."""
    node(axes, MEMORY, "memory $h'$", "#f1e6f6", palette.PAST)
    node(axes, ENTRY, "input $x$", palette.INPUT_FACE, palette.INPUT)
    node(axes, GATES, gates, palette.WEIGHTS[0], palette.PRESENT)
    node(axes, CANDIDATE, "candidate $a$", palette.WEIGHTS[0], palette.PRESENT)
    node(axes, RESULT, "new $h$", palette.WEIGHTS[0], palette.PRESENT)
    for place in (GATES, CANDIDATE):
        edge(axes, place, RESULT, palette.MUTED)
    top = MEMORY[1] + 0.75  # the gates mix the memory with the candidate
    axes.plot(
        [MEMORY[0], MEMORY[0], RESULT[0]],
        [MEMORY[1] + HALF_HEIGHT, top, top],
        color=palette.PAST,
        lw=2,
        zorder=2,
    )
    arrow(axes, (RESULT[0], top), (RESULT[0], RESULT[1] + HALF_HEIGHT), palette.PAST)
    title(axes, name)
    axes.set(xlim=(-1.4, 10.3), ylim=(-0.6, 4.6), aspect="equal")
    axes.axis("off")


def gated(axes: Axes) -> None:
    """Draws a gated cell, which has two matrices for each gate."""
    frame(axes, "a gated cell", "gates")
    edge(axes, MEMORY, GATES, palette.PAST, "$U$ for each gate")
    edge(axes, ENTRY, GATES, palette.INPUT, "$W$", 0.75)
    edge(axes, MEMORY, CANDIDATE, palette.PAST, "$U_A$", 0.25)
    edge(axes, ENTRY, CANDIDATE, palette.INPUT, "$W_A$")


def residual(axes: Axes) -> None:
    """Draws a cell with an input residual connection."""
    frame(axes, "input residual connection", "gates")
    node(axes, CORRECTED, "$v = x + u$", SUM_FACE, palette.MUTED)
    edge(axes, MEMORY, CORRECTED, palette.PAST, r"$u = \alpha * U_V h'$")
    edge(axes, ENTRY, CORRECTED, palette.INPUT)
    edge(axes, CORRECTED, GATES, palette.MUTED, "$W$")
    edge(axes, ENTRY, CANDIDATE, palette.INPUT, "$W_A$")


def highway(axes: Axes) -> None:
    """Draws a cell with an input highway connection."""
    frame(axes, "input highway connection", "gates")
    node(axes, CORRECTED, "$(1-g)x + gu$", SUM_FACE, palette.MUTED)
    edge(axes, MEMORY, CORRECTED, palette.PAST, r"$u = U_V h'$,  $\Gamma h'$")
    edge(axes, ENTRY, CORRECTED, palette.INPUT, "$W_G$")
    edge(axes, CORRECTED, GATES, palette.MUTED, "$W$")
    edge(axes, ENTRY, CANDIDATE, palette.INPUT, "$W_A$")


def draw(path: Path) -> None:
    """Draws the three cells, and writes the picture."""
    figure, panels = plt.subplots(3, figsize=(9, 12.6), layout="constrained")
    for axes, drawing in zip(panels, (gated, residual, highway), strict=True):
        drawing(axes)
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("cells.png"))
