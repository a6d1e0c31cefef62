"""Draws docs/trellis.png: `python docs/draw_trellis.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Polygon

STEPS = 7
LEVELS = 4
RISE = 1.2
HALF = 0.31

INK = "#1f2d45"
MUTED = "#66738a"
INPUT = "#d9822b"
PAST = "#8e44ad"
PRESENT = "#1b7f9c"
SHADE = "#fff1cf"
CELLS = ("#e4eef9", "#c6dcf2", "#a2c6e9", "#7cabdc")


def height(level: int) -> float:
    """Returns where a level is drawn; level 0 is the injected input, -1 the input itself."""
    return level * RISE


def box(axes: Axes, x: float, y: float, text: str, face: str, edge: str) -> None:
    """Draws a symbol in a rounded box."""
    style = f"round,pad=0,rounding_size={HALF / 2}"
    corner = (x - HALF, y - HALF)
    axes.add_patch(
        FancyBboxPatch(corner, 2 * HALF, 2 * HALF, style, fc=face, ec=edge, lw=1.3, zorder=4)
    )
    axes.text(x, y, text, ha="center", va="center", fontsize=12.5, color=INK, zorder=5)


def arrow(axes: Axes, start: tuple, end: tuple, color: str, width: float = 1.5) -> None:
    """Draws an arrow."""
    style = "-|>,head_width=2.6,head_length=4.2"
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle=style, color=color, lw=width, shrinkA=0, shrinkB=0, zorder=3
        )
    )


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
        color=INPUT,
        lw=1.5,
        zorder=2,
        solid_joinstyle="round",
    )
    for level in range(1, LEVELS + 1):
        arrow(axes, (rail, height(level)), (step + HALF, height(level)), INPUT)


def history(axes: Axes) -> None:
    """Draws what stands left of the sequence."""
    bottom = height(0) - HALF
    axes.add_patch(
        FancyBboxPatch(
            (-HALF, bottom),
            2 * HALF,
            height(LEVELS - 1) + HALF + 0.25 - bottom,
            f"round,pad=0,rounding_size={HALF / 2}",
            fc="#eef1f5",
            ec=MUTED,
            lw=1.3,
            ls=(0, (4, 2)),
            zorder=2,
        )
    )
    middle = (height(0) + height(LEVELS - 1)) / 2
    axes.text(
        0, middle, "history  $h, c$", rotation=90, ha="center", va="center", fontsize=12, color=INK
    )
    box(axes, 0, height(-1), "$0$", "#eef1f5", MUTED)


def receptive_field(axes: Axes) -> None:
    """Shades what the last output depends on."""
    first = {level: STEPS - LEVELS + level for level in range(1, LEVELS + 1)}
    first |= {0: first[1], -1: first[1] - 1}
    margin = 0.53
    edge = [(step - margin, height(level)) for level, step in sorted(first.items())]
    bottom, top = height(-1) - 0.5, height(LEVELS) + 0.5
    corners = [
        (STEPS + margin, bottom),
        (edge[0][0], bottom),
        *edge,
        (edge[-1][0], top),
        (STEPS + margin, top),
    ]
    axes.add_patch(Polygon(corners, closed=True, fc=SHADE, ec="none", zorder=0))


def legend(axes: Axes) -> None:
    """Says what each colour stands for; one colour is one set of weights."""
    entries = {
        "past tap: $h_{t-1}$ and the cell $c_{t-1}$": PAST,
        "present tap: $h_t$": PRESENT,
        r"input: $\tilde{x}_t$, computed once, injected into every level": INPUT,
    }
    handles = [Line2D([], [], color=color, lw=2.5, label=text) for text, color in entries.items()]
    handles.append(Patch(fc=SHADE, label=f"receptive field of $y_{STEPS}$"))
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=2,
        frameon=False,
        fontsize=11,
        handlelength=1.6,
        columnspacing=1.8,
        labelcolor=INK,
    )


def draw(path: Path) -> None:
    """Draws the network and writes the picture."""
    figure, axes = plt.subplots(figsize=(11, 8.2))
    receptive_field(axes)
    history(axes)
    for step in range(1, STEPS + 1):
        box(axes, step, height(-1), f"$x_{step}$", "#fbe3c8", INPUT)
        box(axes, step, height(0), rf"$\tilde{{x}}_{step}$", "#fdf1e3", INPUT)
        taps(axes, step, 0, INPUT, INPUT)
        injection(axes, step)
        for level in range(1, LEVELS + 1):
            box(axes, step, height(level), f"$h_{step}^{{({level})}}$", CELLS[level - 1], PRESENT)
            if level > 1:
                taps(axes, step, level, PAST, PRESENT)
        arrow(axes, (step, height(LEVELS) + HALF), (step, height(LEVELS) + 0.85), INK)
        axes.text(step, height(LEVELS) + 1.0, f"$y_{step}$", ha="center", fontsize=12.5, color=INK)
    taps(axes, 1, 1, PAST, None)
    for level in range(1, LEVELS + 1):
        axes.text(-0.75, height(level), f"level {level}", ha="right", va="center", color=MUTED)
    axes.text(-0.75, height(-1), "input", ha="right", va="center", color=MUTED)
    axes.text(-0.75, height(LEVELS) + 1.0, "output", ha="right", color=MUTED)
    axes.annotate(
        "time",
        (STEPS + 0.5, height(-1) - 0.75),
        (-0.3, height(-1) - 0.75),
        va="center",
        color=MUTED,
        fontsize=11,
        arrowprops={"arrowstyle": "-|>", "color": MUTED},
    )
    legend(axes)
    axes.set(
        xlim=(-1.7, STEPS + 0.9), ylim=(height(-1) - 1.0, height(LEVELS) + 1.35), aspect="equal"
    )
    axes.axis("off")
    figure.savefig(path, dpi=130, bbox_inches="tight", facecolor="white")


if __name__ == "__main__":
    draw(Path(__file__).with_name("trellis.png"))
