"""Draws docs/one_grid.png, three networks over one grid: `python -m docs.draw_one_grid`."""

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from docs import palette
from docs.drawing import HALF, SIZE, arrow, box, height, save, title

STEPS = 4
LEVELS = 3
MARGIN = HALF + 0.12


def grid(axes: Axes, faces: tuple[str, ...]) -> None:
    """Draws inputs, and a cell for each level and step, in the colour of the level's weights."""
    for step in range(1, STEPS + 1):
        box(axes, step, height(0), "", palette.INPUT_FACE, palette.INPUT)
        for level, face in enumerate(faces, 1):
            box(axes, step, height(level), "", face, palette.PRESENT)


def up(axes: Axes, step: int, level: int) -> None:
    """Draws what a cell reads of its own step in the row below."""
    color = palette.INPUT if level == 1 else palette.PRESENT
    ends = height(level - 1) + HALF, height(level) - HALF
    arrow(axes, (step, ends[0]), (step, ends[1]), color)


def diagonal(axes: Axes, step: int, level: int) -> None:
    """Draws what a cell reads of the step before in the row below."""
    color = palette.INPUT if level == 1 else palette.PAST
    start = (step - 1 + HALF * 0.6, height(level - 1) + HALF)
    arrow(axes, start, (step - HALF * 0.6, height(level) - HALF), color)


def along(axes: Axes, step: int, level: int) -> None:
    """Draws what a cell reads of the step before in its own row."""
    y = height(level)
    arrow(axes, (step - 1 + HALF, y), (step - HALF, y), palette.PAST)


def injection(axes: Axes, step: int) -> None:
    """Draws the input's way past the first level to those above it."""
    rail, top = step + 0.47, height(LEVELS)
    way = [step + HALF, rail, rail], [height(0), height(0), top]
    axes.plot(*way, color=palette.INPUT, lw=2, zorder=2)
    for level in range(2, LEVELS + 1):
        y = height(level)
        arrow(axes, (rail, y), (step + HALF - 0.02, y), palette.INPUT)


def shade(axes: Axes, left: float, bottom: float, width: float, rise: float) -> None:
    """Shades what is computed at once."""
    axes.add_patch(Rectangle((left, bottom), width, rise, fc=palette.SHADE, zorder=0))


def column(axes: Axes) -> None:
    """Shades one step of one layer."""
    shade(axes, 3 - MARGIN, height(2) - MARGIN, 2 * MARGIN, 2 * MARGIN)


def level(axes: Axes) -> None:
    """Shades a level, all steps of it."""
    shade(axes, 1 - MARGIN, height(2) - MARGIN, STEPS - 1 + 2 * MARGIN, 2 * MARGIN)


Part = Callable[[Axes, int, int], None]
NETWORKS: dict[str, tuple[tuple[str, ...], Callable[[Axes], None], Part, bool]] = {
    "stacked RNN": (palette.WEIGHTS, column, along, False),
    "TCN": (palette.WEIGHTS, level, diagonal, False),
    "trellis network": (palette.WEIGHTS[:1] * LEVELS, level, diagonal, True),
}


def network(axes: Axes, name: str) -> None:
    """Draws a network: what its cells read, and what is computed at once."""
    faces, at_once, past, injected = NETWORKS[name]
    at_once(axes)
    grid(axes, faces)
    for step in range(1, STEPS + 1):
        for row in range(1, LEVELS + 1):
            up(axes, step, row)
            if step > 1:
                past(axes, step, row)
        if injected:
            injection(axes, step)
    title(axes, name)
    axes.set(xlim=(0.5, STEPS + 0.6), ylim=(-0.5, height(LEVELS) + 0.5), aspect="equal")
    axes.axis("off")


def draw(path: Path) -> None:
    """Draws the three networks and writes the picture."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 4.2), layout="constrained")
    for axes, name in zip(panels, NETWORKS, strict=True):
        network(axes, name)
    figure.supxlabel("time", fontsize=SIZE, color=palette.MUTED)
    figure.supylabel("depth", fontsize=SIZE, color=palette.MUTED)
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("one_grid.png"))
