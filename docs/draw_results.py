"""Draws the pictures of docs/results: `python -m docs.draw_results`.

Their numbers are those of the committed CSV files and of the tables in docs/results and docs/notes.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import image
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from docs import palette, tables

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
WIDTH = 5.2  # inches: 780 pixels, half as many on a phone
NAMES = {
    "trellis": "trellis network",
    "lstm": "LSTM",
    "gru": "GRU",
    "tcn": "TCN",
    "transformer": "Transformer",
    "conv": "strided convolutions",
    "stacked": "two LSTMs, both read the input",
    "skip_lstm": "the same, of Keras's layers",
    "sru": "SRU",
    "tlstm": "TLSTM",
}


def panels(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """Returns a picture of panels one below the other, legible on any ground."""
    picture = Figure(figsize=(WIDTH, rows * height), layout="constrained")
    picture.patch.set_alpha(0)
    drawn = list(picture.subplots(rows, 1, squeeze=False)[:, 0])
    for axes in drawn:
        axes.patch.set_alpha(0)
        axes.tick_params(colors=palette.TEXT, labelsize=11)
        axes.grid(color=palette.TEXT, alpha=0.25)
        for side, spine in axes.spines.items():
            spine.set_color(palette.TEXT)
            spine.set_visible(side in ("left", "bottom"))
    return picture, drawn


def describe(axes: Axes, x: str, y: str = "", title: str = "") -> None:
    """Writes what the axes are."""
    axes.set_xlabel(x, color=palette.TEXT, fontsize=11)
    axes.set_ylabel(y, color=palette.TEXT, fontsize=11)
    axes.set_title(title, color=palette.TEXT, fontsize=12, loc="left")


def mark(axes: Axes, x: float, text: str) -> None:
    """Draws a line at a value of x that readers compare with, and says what it is."""
    axes.axvline(x, color=palette.TEXT, linestyle="--", linewidth=1)
    place = (x, 1.0)
    axes.annotate(
        text,
        place,
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        color=palette.TEXT,
        fontsize=10,
    )


def strips(axes: Axes, rows: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    """Draws the values of a row as dots: rows are a label, a layer and the values."""
    for place, (_, layer, values) in enumerate(rows):
        axes.plot(
            values,
            [place] * len(values),
            "o",
            color=palette.LAYERS[layer],
            markersize=8,
            alpha=0.8,
        )
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _log(axis: Axis, set_scale: Callable[[str], None], ticks: Sequence[float]) -> None:
    """Makes an axis logarithmic, with these ticks alone."""
    set_scale("log")
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def legend(*drawn: Axes) -> None:
    """Names the layers of all panels above the picture."""
    figure = drawn[0].get_figure(root=True)
    assert figure
    named: dict[str, Artist] = {}
    for axes in drawn:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        named.values(),
        named.keys(),
        loc="outside upper center",
        ncols=2,
        frameon=False,
        labelcolor=palette.TEXT,
        fontsize=11,
    )


def lines(name: str) -> list[dict[str, str]]:
    """Returns the lines of a CSV file in docs."""
    with (DOCS / name).open() as file:
        return list(csv.DictReader(file))


def noted(name: str, *firsts: str) -> list[list[str]]:
    """Returns the rows of the tables of a note whose first cells begin with these."""
    return [
        row
        for row in tables.rows(DOCS / "notes" / name)
        if all(cell.startswith(first) for cell, first in zip(row, firsts, strict=False))
    ]


def curves(axes: Axes, name: str, task: str, shares: bool = False) -> None:
    """Draws validation over CPU seconds: the median of the seeds, and all of them as a band.

    Args:
        axes: where.
        name: the CSV file.
        task: the task whose points are drawn.
        shares: whether the axis is the share of a run's time, in percent, not its seconds. It
            puts side by side runs of equal time on two machines, one of which is faster.
    """
    seeds: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(dict)
    for line in lines(name):
        if line["task"] == task and line["split"] == "validation":
            point = (float(line["seconds"]), float(line["value"]))
            seeds[line["model"]].setdefault(line["seed"], []).append(point)
    for model, runs in seeds.items():
        length = min(map(len, runs.values()))
        points = np.array([run[:length] for run in runs.values()])
        seconds, values = points[0, :, 0], points[:, :, 1]
        if shares:
            seconds = 100 * seconds / seconds[-1]
        colour = palette.LAYERS[model]
        low, high = values.min(0), values.max(0)
        axes.fill_between(seconds, low, high, color=colour, alpha=0.18, linewidth=0)
        middle = np.median(values, 0)
        axes.plot(seconds, middle, color=colour, linewidth=2, label=NAMES[model])


def _validation(rows: list[dict[str, str]]) -> float:
    """Returns the sum of the validation accuracies of rows."""
    return sum(float(row["validation"]) for row in rows)


def long_series() -> Figure:
    """Accuracy on 1,000 readings in 8 CPU seconds, a dot a seed, at each layer's best rate."""
    tried: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(dict)
    for line in lines("studies/long_series.csv"):
        if line["seconds"] == "8.0":
            tried[line["layer"]].setdefault(line["rate"], []).append(line)
    rows = []
    for layer in ("conv", "trellis", "lstm", "gru"):
        best = max(tried[layer].values(), key=_validation)
        rows.append((NAMES[layer], layer, [100 * float(line["test"]) for line in best]))
    picture, (axes,) = panels(1, 2.4)
    strips(axes, rows)
    axes.set_xlim(30, 102)  # room for the dots at 100
    mark(axes, 100 / 3, "a guess")
    describe(axes, "test accuracy, % (a dot a seed)")
    return picture


def memory() -> Figure:
    """Loss on the adding problem and on copy memory over CPU seconds."""
    picture, (above, below) = panels(2, 2.9)
    for axes, task, title in (
        (above, "adding", "Add two numbers, 200 steps"),
        (below, "copy_memory", "Repeat ten symbols after 100 steps"),
    ):
        curves(axes, "comparisons/long_memory.csv", task)
        axes.set_yscale("log")
        describe(axes, "CPU seconds of training", "validation loss", title)
    legend(above)
    return picture


def pixels() -> Figure:
    """Accuracy on permuted MNIST, in 240 CPU seconds and in an hour."""
    picture, (above, below) = panels(2, 3.0)
    curves(above, "comparisons/permuted_mnist_longer.csv", "permuted_mnist")
    curves(
        below, "comparisons/permuted_mnist_medium.csv", "permuted_mnist", shares=True
    )
    accuracy = "validation accuracy, %"
    describe(
        above, "CPU seconds of training", accuracy, "240 seconds, equal parameters"
    )
    describe(below, "share of the hour, %", accuracy, "An hour, unequal parameters")
    legend(above, below)
    return picture


def text() -> Figure:
    """Test perplexities on the words of the Penn Treebank."""
    rows = []
    # By the names that presets have in this note; `small_stacked_lstm` is `small` there.
    for label, layer, preset in (
        (NAMES["stacked"], "stacked", "`small`"),
        (NAMES["skip_lstm"], "skip_lstm", "`small_skip_lstm`"),
        (NAMES["lstm"], "lstm", "`small_lstm`"),
        ("trellis, 16 levels", "trellis", "`small_levels`"),
    ):
        # Presets of 2.94 million parameters, whose last cell has the seeds and their mean.
        (row,) = noted("language_models.md", "`ptb`", preset, "2,94")
        seeds = tables.numbers(row[-1].partition(":")[0])
        rows.append((label, layer, [float(each) for each in seeds]))
    picture, (axes,) = panels(1, 2.4)
    strips(axes, rows)
    describe(axes, "test perplexity (a dot a seed)")
    return picture


def streaming() -> Figure:
    """CPU time of a streamed step, four layers on four tasks."""
    tasks = {
        "adding": "adding, 10,000\nparameters",
        "permuted MNIST": "permuted MNIST,\n150,000",
        "characters": "characters,\n660,000",
        "words": "words,\n2,945,000",
    }
    found = {
        row[0].partition(", ")[0]: row for row in tables.rows(RESULTS / "streaming.md")
    }
    picture, (axes,) = panels(1, 3.4)
    for column, layer in enumerate(("trellis", "lstm", "gru", "tcn"), 1):
        values = [float(tables.numbers(found[task][column])[0]) for task in tasks]
        axes.plot(
            values,
            range(len(tasks)),
            "o",
            color=palette.LAYERS[layer],
            markersize=9,
            label=NAMES[layer],
        )
    axes.set_yticks(range(len(tasks)), list(tasks.values()))
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    _log(axes.xaxis, axes.set_xscale, (0.05, 0.1, 0.3, 1, 3))
    describe(axes, "CPU milliseconds a step")
    legend(axes)
    return picture


def speed() -> Figure:
    """How many times as fast as an LSTM's a training step is."""
    found = [
        row
        for row in tables.rows(RESULTS / "speed.md")
        if row[0].startswith(("784", "110", "30"))
    ]
    labels = [
        ", ".join(row[0].split("; ")[0:2]).replace(", ", "\n", 1) for row in found
    ]
    ratios = [float(row[-1]) for row in found]
    picture, (axes,) = panels(1, 4.0)
    axes.barh(
        range(len(found)),
        [ratio - 1 for ratio in ratios],
        left=1,
        color=palette.LAYERS["trellis"],
        height=0.6,
    )
    axes.set_yticks(range(len(found)), labels)
    axes.set_ylim(len(found) - 0.5, -0.5)
    _log(axes.xaxis, axes.set_xscale, (0.125, 0.25, 0.5, 1, 2, 4, 8))
    mark(axes, 1, "an LSTM")
    describe(axes, "times as fast")
    return picture


def length() -> Figure:
    """How many times as fast as Keras's LSTM layers are, over the length of the series."""
    rows = list(tables.rows(RESULTS / "length.md"))
    first = next(i for i, row in enumerate(rows) if row[1] == "GRU, times as fast")
    found = rows[first + 1 : first + 6]
    lengths = [int(row[0].replace(",", "")) for row in found]
    picture, (axes,) = panels(1, 3.4)
    for column, layer in enumerate(("gru", "sru", "tlstm"), 1):
        axes.plot(
            lengths,
            [float(row[column]) for row in found],
            color=palette.LAYERS[layer],
            linewidth=2,
            marker="o",
            label=NAMES[layer],
        )
    axes.axhline(1, color=palette.TEXT, linestyle="--", linewidth=1)
    _log(axes.xaxis, axes.set_xscale, lengths)
    _log(axes.yaxis, axes.set_yscale, (1, 3, 10, 30, 100))
    describe(axes, "steps of a series, T", "times as fast as Keras's LSTM")
    legend(axes)
    return picture


def recordings() -> Figure:
    """Accuracy of MiniRocket on recordings of new people, fold by fold."""
    folds: dict[str, list[float]] = defaultdict(list)
    for line in lines("studies/minirocket_watch.csv"):
        folds[line["file"]].append(float(line["test_windows"]))
    picture, (axes,) = panels(1, 2.6)
    rows = [
        (f"fold {number}", "conv", values)
        for number, (_, values) in enumerate(sorted(folds.items()))
    ]
    strips(axes, rows)
    describe(axes, "test accuracy by window, % (a dot a seed)")
    return picture


def learned_optimizers() -> Figure:
    """Losses on MNIST after the steps of training, and after ten times as many."""
    names = {
        "mnist_lstm": "learned, LSTM",
        "mnist_ihc_lstm": "learned, IHC-LSTM",
        "SGD": "SGD",
        "momentum": "momentum",
        "RMSprop": "RMSprop",
        "Adam": "Adam",
    }
    picture, (axes,) = panels(1, 3.6)
    for column, marker, label in (
        (2, "o", "after 100 steps"),
        (6, "s", "after 1,000 steps"),
    ):
        for place, name in enumerate(names):
            row = noted("learned_optimizers.md", name)[0]
            # Such as "0.338 (0.239 to 0.505), 3.2", or the median alone.
            middle, *bar = map(float, tables.numbers(row[column])[:3])
            colour = palette.LAYERS["learned"] if "mnist" in name else palette.TEXT
            y = place + (0.15 if column == 6 else -0.15)
            axes.plot(bar, [y] * len(bar), color=colour, alpha=0.5, linewidth=3)
            axes.plot(
                middle,
                y,
                marker,
                color=colour,
                markersize=8,
                label=label if place == 2 else None,
            )
    axes.set_yticks(range(len(names)), list(names.values()))
    axes.set_ylim(len(names) - 0.5, -0.5)
    _log(axes.xaxis, axes.set_xscale, (0.05, 0.1, 0.2, 0.5))
    describe(axes, "median loss; bars: 10 to 90 % of 20 networks")
    legend(axes)
    return picture


def drawing() -> Figure:
    """What DRAW drew with either decoder: samples, and copies of images."""
    shown = [1, 4, 6, 10, 12, 13]  # rows of a sheet: eight samples, then eight copies
    picture, drawn = panels(2, 3.0)
    for axes, decoder, name in zip(
        drawn, ("lstm", "ihc_lstm"), ("LSTM", "IHC-LSTM"), strict=True
    ):
        sheet = image.imread(DOCS / f"studies/drawing_{decoder}.png")
        height = sheet.shape[0] // 16
        tiles = [sheet[row * height : (row + 1) * height] for row in shown]
        axes.imshow(np.concatenate(tiles), cmap="gray")
        axes.grid(visible=False)
        axes.set_xticks([0.5 * height, 6 * height], ["image", "after ten of 20 steps"])
        axes.set_yticks([1.5 * height, 4.5 * height], ["samples", "copies"])
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        describe(axes, "", title=f"decoder: {name}")
    return picture


PICTURES: Iterable[Callable[[], Figure]] = (
    *(long_series, memory, pixels, text, streaming, speed),
    *(length, recordings, learned_optimizers, drawing),
)


def main(folder: Path = RESULTS) -> None:
    """Writes all pictures."""
    for picture in PICTURES:
        picture().savefig(folder / f"{picture.__name__}.png", dpi=150, transparent=True)


if __name__ == "__main__":
    main()
