"""Draws docs/trellis.png: `python -m docs.draw_trellis`."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, Polygon

from docs import palette
from docs.drawing import HALF, SIZE, arrow, box, height, label, output, save, time_axis

STEPS = 5
LEVELS = 3


def taps(axes: Axes, step: int, level: int, past: str, present: str | None) -> None:
    """Draws what a box reads from the row below: the step before it and its own."""
    bottom, top = height(level - 1) + HALF, height(level) - HALF
    # The history is one wide box: its arrows leave from its side.
    cut = 0.25 if step == 1 and level > 0 else 0.0
    start = (step - 0.88 + cut * 0.76, bottom + cut * (top - bottom))
    arrow(axes, start, (step - 0.12, top), past)
    if present:
        arrow(axes, (step, bottom), (step, top), present)


def injection(axes: Axes, step: int) -> None:
    """Draws the injected input's way past the levels, with a branch into each."""
    rail = step + HALF + 0.13
    axes.plot(
        [step + HALF, rail, rail],
        [height(0), height(0), height(LEVELS)],
        color=palette.INPUT,
        lw=2,
        zorder=2,
        solid_joinstyle="round",
    )
    for level in range(1, LEVELS + 1):
        arrow(axes, (rail, height(level)), (step + HALF, height(level)), palette.INPUT)


def history(axes: Axes) -> None:
    """Draws the history, left of the sequence."""
    bottom = height(0) - HALF
    axes.add_patch(
        FancyBboxPatch(
            (-HALF, bottom),
            2 * HALF,
            height(LEVELS - 1) + HALF + 0.25 - bottom,
            f"round,pad=0,rounding_size={HALF / 2}",
            fc=palette.NOTHING,
            ec=palette.MUTED,
            lw=1.3,
            ls=(0, (4, 2)),
            zorder=2,
        )
    )
    middle = (height(0) + height(LEVELS - 1)) / 2
    axes.text(
        0,
        middle,
        "history  $h, c$",
        rotation=90,
        ha="center",
        va="center",
        fontsize=SIZE,
        color=palette.MUTED,
    )
    box(axes, 0, height(-1), "$0$", palette.NOTHING, palette.MUTED)


def receptive_field(axes: Axes) -> None:
    """Shades what the last output depends on."""
    margin = 0.53
    right = STEPS + margin
    bottom, top = height(-1) - 0.5, height(LEVELS) + 0.5
    left = [(STEPS - LEVELS, -1), (STEPS - LEVELS + 1, 0)]
    left += [(STEPS - LEVELS + level, level) for level in range(1, LEVELS + 1)]
    edge = [(step - margin, height(row)) for step, row in left]
    corners = [
        (right, bottom),
        (edge[0][0], bottom),
        *edge,
        (edge[-1][0], top),
        (right, top),
    ]
    axes.add_patch(Polygon(corners, closed=True, fc=palette.SHADE, ec="none", zorder=0))


def legend(axes: Axes) -> None:
    """Says what each colour stands for; one colour is one set of weights."""
    entries = {
        "past tap: $h_{t-1}$ and the cell $c_{t-1}$": palette.PAST,
        "present tap: $h_t$": palette.PRESENT,
        r"input: $\tilde{x}_t$, computed once, read by every level": palette.INPUT,
    }
    handles: list[Artist] = [
        Line2D([], [], color=color, lw=2.5, label=text)
        for text, color in entries.items()
    ]
    handles.append(Patch(fc=palette.SHADE, label=f"receptive field of $y_{STEPS}$"))
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        frameon=False,
        fontsize=SIZE,
        handlelength=1.6,
        labelcolor=palette.MUTED,
    )


def draw(path: Path) -> None:
    """Draws the network and writes the picture."""
    figure, axes = plt.subplots(figsize=(9, 8.2))
    receptive_field(axes)
    history(axes)
    for step in range(1, STEPS + 1):
        box(axes, step, height(-1), f"$x_{step}$", palette.INPUT_FACE, palette.INPUT)
        box(
            axes,
            step,
            height(0),
            rf"$\tilde{{x}}_{step}$",
            palette.INPUT_FACE,
            palette.INPUT,
        )
        taps(axes, step, 0, palette.INPUT, palette.INPUT)
        injection(axes, step)
        for level in range(1, LEVELS + 1):
            box(
                axes,
                step,
                height(level),
                f"$h_{step}^{{({level})}}$",
                palette.WEIGHTS[0],
                palette.PRESENT,
            )
            if level > 1:
                taps(axes, step, level, palette.PAST, palette.PRESENT)
        output(axes, step, LEVELS, f"$y_{step}$")
    taps(axes, 1, 1, palette.PAST, None)
    for level in range(1, LEVELS + 1):
        label(axes, level, f"level {level}")
    label(axes, -1, "input")
    label(axes, LEVELS + 0.92, "output")
    time_axis(axes, -0.3, STEPS + 0.5, height(-1) - 0.75)
    legend(axes)
    axes.set(
        xlim=(-1.75, STEPS + 0.7),
        ylim=(height(-1) - 1.0, height(LEVELS) + 1.35),
        aspect="equal",
    )
    axes.axis("off")
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("trellis.png"))
