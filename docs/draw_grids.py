"""Draws docs/grids.png: `python -m docs.draw_grids`.

Two networks over the same grid of depth and time, and what one of their passes computes.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle

from docs import palette
from docs.drawing import HALF, arrow, box, height, label, output, save, title

STEPS = 4
LEVELS = 3
DELAY = LEVELS - 1
MARGIN = HALF + 0.12


def grid(axes: Axes, symbol: str) -> None:
    """Draws inputs and cells; one set of weights updates all cells."""
    for step in range(1, STEPS + 1):
        box(axes, step, height(0), f"$x_{step}$", palette.INPUT_FACE, palette.INPUT)
        for level in range(1, LEVELS + 1):
            box(
                axes,
                step,
                height(level),
                symbol,
                palette.WEIGHTS[0],
                palette.PRESENT,
            )


def trellis(axes: Axes) -> None:
    """Draws a trellis network: a level is computed over all steps at once."""
    low, high = height(2) - MARGIN, 2 * MARGIN
    axes.add_patch(
        Rectangle(
            (1 - MARGIN, low), STEPS - 1 + 2 * MARGIN, high, fc=palette.SHADE, zorder=0
        )
    )
    grid(axes, "$h$")
    for step in range(1, STEPS + 1):
        for level in range(1, LEVELS + 1):
            bottom, top = height(level - 1) + HALF, height(level) - HALF
            present, past = (
                (palette.INPUT, palette.INPUT)
                if level == 1
                else (palette.PRESENT, palette.PAST)
            )
            arrow(axes, (step, bottom), (step, top), present)
            if step > 1:
                arrow(axes, (step - 0.88, bottom), (step - 0.12, top), past)
        output(axes, step, LEVELS, f"$y_{step}$")
    title(axes, "trellis network:\nall steps at once")


def tensorized(axes: Axes) -> None:
    """Draws a tensorized LSTM: a step is computed over all positions at once."""
    bottom = height(1) - MARGIN
    rise = height(LEVELS) - height(1) + 2 * MARGIN
    corners = [(3 - MARGIN, bottom), (3 + MARGIN, bottom)]
    corners += [(x, bottom + rise) for x in (3 + MARGIN, 3 - MARGIN)]
    axes.add_patch(Polygon(corners, closed=True, fc=palette.SHADE, zorder=0))
    grid(axes, "$H$")
    for step in range(1, STEPS + 1):
        entry = (step, height(0) + HALF), (step, height(1) - HALF)
        arrow(axes, *entry, palette.INPUT)
        for level in range(1, LEVELS + 1):
            if step == 1:
                continue
            side = (step - 1 + HALF, height(level))
            arrow(axes, side, (step - HALF, height(level)), palette.PRESENT)
            for other in (level - 1, level + 1):
                if 1 <= other <= LEVELS:
                    turn = HALF if other < level else -HALF
                    start = (step - 1 + HALF, height(other) + 0.5 * turn)
                    end = (step - HALF, height(level) - 0.5 * turn)
                    arrow(axes, start, end, palette.PAST, 1.2)
        if step > DELAY:
            output(axes, step, LEVELS, f"$y_{step - DELAY}$")
    title(axes, "tensorized LSTM:\nall positions at once")


def draw(path: Path) -> None:
    """Draws both grids and writes the picture."""
    figure, pair = plt.subplots(1, 2, figsize=(9, 5.4), layout="constrained")
    for axes, part in zip(pair, (trellis, tensorized), strict=True):
        part(axes)
        word = "level" if part is trellis else "pos."
        for level in range(1, LEVELS + 1):
            label(axes, level, f"{word} {level}", 0.5)
        axes.set(
            xlim=(-0.9, STEPS + 0.5),
            ylim=(height(0) - 0.5, height(LEVELS) + 1.45),
            aspect="equal",
        )
        axes.axis("off")
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("grids.png"))
