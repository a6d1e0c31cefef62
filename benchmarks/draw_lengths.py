"""Draws docs/benchmarks/lengths_64.png and lengths_256.png: `python -m benchmarks.draw_lengths`.

They show the rows of docs/benchmarks/lengths.csv, which `python -m benchmarks.lengths` measures.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks import lengths
from benchmarks.length_contenders import CONTENDERS
from docs import palette

FOLDER = Path(palette.__file__).parent / "benchmarks"
PANELS = ("answer", "outputs", "stream")  # a mask changes too little to be seen
# Legible at 390 pixels, on a page of any colour: text and axes are grey.
WIDTH, HEIGHT = 3.9, 8.6
STYLES: dict[str, dict[str, Any]] = {
    "trellis": {"color": palette.LAYERS["trellis"], "linewidth": 2.6},
    "lstm": {"color": palette.LAYERS["lstm"]},
    "torch": {"color": palette.LAYERS["lstm"], "linestyle": "--"},
    "gru": {"color": palette.LAYERS["gru"]},
    "stacked": {"color": palette.LAYERS["stacked"]},
    "sru": {"color": palette.LAYERS["sru"]},
    "tcn": {"color": palette.LAYERS["tcn"]},
    "trellis_jax": {"color": palette.LAYERS["trellis"], "linestyle": ":"},
}


def draw(rows: Sequence[lengths.Row], channels: int) -> Figure:
    """Returns the picture of the rows of a number of channels: time over length, a panel a task."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    panels = figure.subplots(len(PANELS), sharex=True)
    of_channels = [row for row in rows if row["channels"] == str(channels)]
    for axes, task in zip(panels, PANELS, strict=True):
        _draw_task(axes, [row for row in of_channels if row["task"] == task])
        axes.set_title(lengths.TITLES[task], fontsize=10, color=palette.TEXT)
    panels[-1].set_xlabel("time steps", color=palette.TEXT)
    by_title = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    figure.legend(
        list(by_title.values()),
        list(by_title),
        loc="outside upper center",
        ncols=2,
        fontsize=9,
        frameon=False,
        labelcolor=palette.TEXT,
    )
    return figure


def _draw_task(axes: Axes, rows: Sequence[lengths.Row]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for name, style in STYLES.items():
        points = sorted(
            (int(row["time_steps"]), float(row["milliseconds"]))
            for row in rows
            if row["contender"] == name
        )
        if points:
            axes.plot(*zip(*points, strict=True), label=CONTENDERS[name][0], **style)
    axes.set_ylabel("ms", color=palette.TEXT)
    axes.xaxis.set_major_locator(LogLocator(base=4))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter("")
    axes.tick_params(colors=palette.TEXT, labelsize=9)
    axes.grid(color=palette.TEXT, alpha=0.25)
    axes.spines[:].set_color(palette.TEXT)


def main() -> None:
    """Draws the pictures."""
    rows = list(lengths.read(FOLDER / "lengths.csv").values())
    for channels in sorted({int(row["channels"]) for row in rows}):
        figure = draw(rows, channels)
        figure.savefig(FOLDER / f"lengths_{channels}.png", dpi=200, transparent=True)


if __name__ == "__main__":
    main()
