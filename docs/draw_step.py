"""Draws docs/step.png, the delay lines that a step reads: `python -m docs.draw_step`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from docs import palette
from docs.drawing import HALF, SIZE, arrow, box, height, output, save

STEPS = 6  # the last one is computed now
DILATIONS = (1, 2, 4)
FORGOTTEN = (palette.NOTHING, palette.MUTED)
KEPT = (palette.KEPT_FACE, palette.KEPT)
READ = (palette.KEPT, palette.INK)


def reads(row: int) -> set[int]:
    """Returns which past steps of a row the level above it reads; the input all levels read."""
    dilations = DILATIONS if row == 0 else DILATIONS[row : row + 1]
    return {STEPS - dilation for dilation in dilations}


def cell(axes: Axes, step: int, row: int) -> None:
    """Draws an input, or the output of a level."""
    read = reads(row)
    colours = FORGOTTEN
    if step == STEPS:
        colours = (palette.WEIGHTS[0], palette.PRESENT)
        if row == 0:
            colours = (palette.INPUT_FACE, palette.INPUT)
    elif step in read:
        colours = READ
    elif read and step > min(read):
        colours = KEPT
    back = STEPS - step
    text = f"$x_{{t{f'-{back}' if back else ''}}}$" if row == 0 else ""
    box(axes, step, height(row), text, *colours)


def taps(axes: Axes) -> None:
    """Draws what each level reads."""
    for row in range(1, len(DILATIONS) + 1):
        top = (STEPS, height(row) - HALF)
        arrow(axes, (STEPS, height(row - 1) + HALF), top, palette.PRESENT)
        if row > 1:
            (step,) = reads(row - 1)
            start = (step, height(row - 1) + HALF)
            arrow(axes, start, (STEPS - HALF, height(row) - HALF), palette.PAST)


def draw(path: Path) -> None:
    """Draws the network and its lines, and writes the picture."""
    figure, axes = plt.subplots(figsize=(9, 6.4), layout="constrained")
    for row in range(len(DILATIONS) + 1):
        for step in range(1, STEPS + 1):
            cell(axes, step, row)
        name = f"level {row}, distance {DILATIONS[row - 1]}" if row else "input"
        axes.text(
            0.3,
            height(row),
            name,
            ha="right",
            va="center",
            size=SIZE,
            color=palette.TEXT,
        )
    taps(axes)
    output(axes, STEPS, len(DILATIONS), "$y_t$")
    axes.set(
        xlim=(-2.6, STEPS + 0.7),
        ylim=(-0.6, height(len(DILATIONS)) + 1.4),
        aspect="equal",
    )
    axes.axis("off")
    handles = {
        "read now": READ,
        "kept for later steps": KEPT,
        "computed now": (palette.WEIGHTS[0], palette.PRESENT),
        "forgotten": FORGOTTEN,
    }
    figure.legend(
        handles=[Patch(fc=fc, ec=ec, label=name) for name, (fc, ec) in handles.items()],
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=SIZE,
        labelcolor=palette.TEXT,
        handlelength=1.2,
        columnspacing=1.2,
    )
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("step.png"))
