"""Draws docs/frames.png, one level in four frames: `python -m docs.draw_frames`."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from docs import palette
from docs.drawing import HALF, SIZE, arrow, box, height, save, title

STEPS = 4
CELL = (palette.WEIGHTS[0], palette.PRESENT)
SUM = ("#e9ecf1", palette.MUTED)
ENTRY = (palette.INPUT_FACE, palette.INPUT)


def row(axes: Axes, level: float, symbol: str, colours: tuple[str, str]) -> None:
    """Draws a box for each time step."""
    for step in range(1, STEPS + 1):
        box(axes, step, level, f"${symbol}_{step}$", *colours)


def rise(
    axes: Axes, low: float, high: float, color: str, delay: int = 0, aside: float = 0.0
) -> None:
    """Draws what each step of a row reads of a lower one, so many steps earlier."""
    for step in range(1, STEPS + 1 - delay):
        start = (step + (0.14 if delay else 0), low + HALF)
        arrow(axes, start, (step + delay - aside, high - HALF), color)


def shift(axes: Axes) -> None:
    """Draws the hidden sequence, and the same a step later."""
    low, high = height(0) + 0.45, height(1) + 0.75
    row(axes, low, "h", CELL)
    box(axes, 1, high, "$0$", palette.NOTHING, palette.MUTED)
    for step in range(2, STEPS + 1):
        box(axes, step, high, f"$h_{step - 1}$", CELL[0], palette.PAST)
    rise(axes, low, high, palette.PAST, delay=1)


def multiply(axes: Axes) -> None:
    """Draws the two products, whose matrices are those of all steps and levels."""
    low, high = height(0) + 0.4, height(2) - 0.2
    row(axes, low, "h", CELL)
    row(axes, high, "z", SUM)
    rise(axes, low, high, palette.PAST, delay=1, aside=0.14)
    rise(axes, low, high, palette.PRESENT)
    words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SIZE}
    axes.text(1.3, height(1) + 0.35, "$W_0$", color=palette.PAST, **words)
    axes.text(0.76, height(1) - 0.25, "$W_1$", color=palette.PRESENT, **words)


def add_the_input(axes: Axes) -> None:
    """Draws the input's share, the same at every level."""
    low, high = height(0) + 0.45, height(1) + 0.75
    row(axes, low, r"\tilde{x}", ENTRY)
    row(axes, high, "z", SUM)
    rise(axes, low, high, palette.INPUT)


def gate(axes: Axes) -> None:
    """Draws what the gate reads: the sum, and the cell of the level below a step earlier."""
    row(axes, height(0), "c", CELL)
    row(axes, height(1), "z", SUM)
    row(axes, height(2), "h'", CELL)
    rise(axes, height(0), height(2), palette.PAST, delay=1, aside=0.14)
    rise(axes, height(1), height(2), palette.MUTED)


FRAMES = {
    "1. shift": (shift, "$h_{t-1}$ next to $h_t$"),
    "2. multiply": (multiply, "$z_t = W_0 h_{t-1} + W_1 h_t$"),
    "3. add the input": (add_the_input, r"$z_t + \tilde{x}_t + b$"),
    "4. gate": (gate, r"$h'_t, c'_t = \mathrm{gate}(z_t, c_{t-1})$"),
}


def draw(path: Path) -> None:
    """Draws the four frames and writes the picture."""
    figure, panels = plt.subplots(2, 2, figsize=(9, 9.4), layout="constrained")
    for axes, (name, (frame, formula)) in zip(
        panels.ravel(), FRAMES.items(), strict=True
    ):
        frame(axes)
        title(axes, name)
        axes.text(
            (STEPS + 1) / 2,
            height(0) - 0.8,
            formula,
            ha="center",
            fontsize=SIZE,
            color=palette.MUTED,
        )
        axes.set(
            xlim=(0.45, STEPS + 0.55), ylim=(-0.9, height(2) + 0.4), aspect="equal"
        )
        axes.axis("off")
    save(figure, path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("frames.png"))
