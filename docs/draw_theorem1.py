"""Draws docs/theorem1.png: `python -m docs.draw_theorem1`."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from docs import palette
from docs.drawing import HALF, SIZE, arrow, box, height, save, title

STEPS = 4
RECENT = 3  # M: how many steps the layers are truncated to
LAYERS = 2
LEVELS = RECENT + LAYERS - 1
PITCH = 1.9  # between two steps of the trellis network
APART = 0.37  # from the middle of a step to that of a group


def recurrent_layers(axes: Axes) -> None:
    """Draws two recurrent layers over time; the first step is cut off."""
    begin = STEPS - RECENT + 1
    for step in range(begin, STEPS + 1):
        box(axes, step, height(0), f"$x_{step}$", palette.INPUT_FACE, palette.INPUT)
        arrow(axes, (step, height(0) + HALF), (step, height(1) - HALF), palette.INPUT)
        arrow(axes, (step, height(1) + HALF), (step, height(2) - HALF), palette.PRESENT)
        for layer in range(1, LAYERS + 1):
            y = height(layer)
            box(
                axes,
                step,
                y,
                f"$h^{layer}_{step}$",
                palette.WEIGHTS[layer - 1],
                palette.PRESENT,
            )
            if step > begin:
                arrow(axes, (step - 1 + HALF, y), (step - HALF, y), palette.PAST)
    title(axes, f"two RNN layers, {RECENT} steps")
    axes.set(xlim=(begin - 0.7, STEPS + 0.7), ylim=(-0.5, height(LAYERS) + 0.5))
    axes.set_aspect("equal")
    axes.axis("off")


def place(step: int, group: int) -> float:
    """Returns where a group of a step is drawn."""
    return step * PITCH + (APART if group == 2 else -APART)


def unit(step: int, level: int, group: int) -> bool:
    """Returns whether a group of a level is a unit that the last output depends on."""
    return level >= group and STEPS - step == LEVELS - LAYERS + group - level


def trellis_network(axes: Axes) -> None:
    """Draws levels of two groups; colour marks the units of the recurrent layers."""
    for step in range(1, STEPS + 1):
        box(
            axes,
            step * PITCH,
            height(0),
            f"$x_{step}$",
            palette.INPUT_FACE,
            palette.INPUT,
        )
        for level in range(1, LEVELS + 1):
            for group in range(1, LAYERS + 1):
                cell(axes, step, level, group)
    for level in range(1, LEVELS + 1):
        axes.text(
            PITCH - 0.85,
            height(level),
            f"level {level}",
            ha="right",
            va="center",
            fontsize=SIZE,
            color=palette.MUTED,
        )
    title(axes, f"a trellis network: two groups, {RECENT} + {LAYERS} - 1 levels")
    axes.set(xlim=(PITCH - 2.5, STEPS * PITCH + 1.1), ylim=(-0.7, height(LEVELS) + 0.7))
    axes.set_aspect("equal")
    axes.axis("off")


def cell(axes: Axes, step: int, level: int, group: int) -> None:
    """Draws a group, and what it reads if it is a unit of the recurrent layers."""
    x, y = place(step, group), height(level)
    if not unit(step, level, group):
        corner = (x - HALF, y - HALF)
        shape = Rectangle(
            corner, 2 * HALF, 2 * HALF, fc=palette.NOTHING, ec="none", zorder=1
        )
        axes.add_patch(shape)
        return
    box(axes, x, y, f"$h^{group}_{step}$", palette.WEIGHTS[group - 1], palette.PRESENT)
    below = height(level - 1) + HALF
    if unit(step - 1, level - 1, group):
        start = (place(step - 1, group) + HALF, height(level - 1) + HALF / 2)
        arrow(axes, start, (x - HALF * 0.7, y - HALF), palette.PAST)
    if group == 2:
        arrow(
            axes, (place(step, 1) + 0.1, below), (x - 0.05, y - HALF), palette.PRESENT
        )
        return
    rail = x - HALF - 0.12  # the input passes the levels below
    axes.plot(
        [x, rail, rail],
        [height(0) + 0.45, height(0) + 0.45, y],
        color=palette.INPUT,
        lw=2,
    )
    axes.plot(
        [step * PITCH, step * PITCH, x], [HALF, 0.45, 0.45], color=palette.INPUT, lw=2
    )
    arrow(axes, (rail, y), (x - HALF, y), palette.INPUT)


def kernels(axes: Axes) -> None:
    """Draws the blocks of the kernel: rows are what a level computes, columns what it reads."""
    taps = {
        "past": (
            {(0, 0): "$B_1$", (1, 1): "$B_2$"},
            palette.PAST,
            ("$h^1$", "$h^2$"),
        ),
        "present": ({(1, 0): "$A_2$"}, palette.PRESENT, ("$h^1$", "$h^2$")),
        "input": ({(0, 0): "$A_1$"}, palette.INPUT, ("$x$",)),
    }
    left = 0.0
    for name, (blocks, colour, columns) in taps.items():
        axes.text(
            left + len(columns) / 2,
            2.8,
            name,
            ha="center",
            fontsize=SIZE,
            color=colour,
        )
        for column, text in enumerate(columns):
            axes.text(
                left + column + 0.5,
                2.15,
                text,
                ha="center",
                fontsize=SIZE,
                color=palette.MUTED,
            )
            for row in range(LAYERS):
                content = blocks.get((row, column), "0")
                filled = (row, column) in blocks
                axes.add_patch(
                    Rectangle(
                        (left + column, 1 - row),
                        1,
                        1,
                        fc=colour if filled else palette.NOTHING,
                        ec=palette.MUTED,
                    )
                )
                axes.text(
                    left + column + 0.5,
                    1.5 - row,
                    content,
                    ha="center",
                    va="center",
                    fontsize=SIZE,
                    color="white" if filled else palette.MUTED,
                )
        left += len(columns) + 0.8
    for row in range(LAYERS):
        axes.text(
            -0.2,
            1.5 - row,
            f"$h^{row + 1}$",
            ha="right",
            va="center",
            fontsize=SIZE,
            color=palette.MUTED,
        )
    title(axes, "the network's kernel")
    axes.set(xlim=(-0.7, left), ylim=(-0.3, 3.4), aspect="equal")
    axes.axis("off")


def draw(path: Path) -> None:
    """Draws the layers, the network and the kernel, and writes the picture."""
    mosaic: Any = [["layers", "kernels"], ["network", "network"]]
    figure, axes = plt.subplot_mosaic(
        mosaic, figsize=(9, 9.4), height_ratios=(1, 1.7), layout="constrained"
    )
    recurrent_layers(axes["layers"])
    trellis_network(axes["network"])
    kernels(axes["kernels"])
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("theorem1.png"))
