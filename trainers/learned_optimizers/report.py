"""What an evaluation found: a table, a picture, and all points in a CSV file."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from matplotlib import figure

from trainers.data.files import write_text
from trainers.learned_optimizers import evaluation
from trainers.learned_optimizers.evaluation import Outcome
from trainers.training import pages, progress

TABLE, PICTURE, POINTS = "evaluation.md", "evaluation.png", "points.csv"
MEANS = "means.png"
_TITLES = (
    *("setting", "optimizer", "rate", "median last loss", "10 %", "90 %"),
    *("mean over the steps", "draws", "not finite"),
)
_COLUMNS = ("setting", "optimizer", "draw", "step", "loss")


def write(path: epath.Path, outcomes: Sequence[Outcome], line: str) -> str:
    """Writes the table, the pictures and the points; returns the table.

    Args:
        path: the folder, which exists.
        outcomes: from `evaluation.evaluate`.
        line: the command.
    """
    text = markdown(outcomes)
    pictures = f"![]({PICTURE})\n\n![]({MEANS})\n"
    page = f"# Learned optimizers\n\nWritten by `{line}`.\n\n{text}\n\n{pictures}"
    write_text(path / TABLE, page)
    write_text(path / POINTS, points(outcomes))
    progress.save_picture(draw(outcomes), path / PICTURE)
    progress.save_picture(draw(outcomes, means=True), path / MEANS)
    return text


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Returns the table, and below it where a learned optimizer does not carry over."""
    table = pages.markdown(_TITLES, map(_cells, outcomes))
    short = evaluation.failures(outcomes)
    short = short or ["No learned optimizer falls short of the best tuned one."]
    lines = [f"- {failure}" for failure in short]
    return "\n".join([table, "", *lines])


def _cells(outcome: Outcome) -> list[str]:
    low, median, high = (quantile[-1] for quantile in outcome.quantiles())
    finite = np.isfinite(outcome.losses).all(axis=0)
    return [
        outcome.setting,
        outcome.optimizer,
        "" if outcome.rate is None else f"{outcome.rate:.2g}",
        *(f"{value:.4g}" for value in (median, low, high)),
        f"{outcome.losses[1:].mean():.4g}",
        f"{finite.size}",
        f"{finite.size - finite.sum()}",
    ]


def points(outcomes: Sequence[Outcome]) -> str:
    """Returns every loss, as CSV."""
    rows: list[Sequence[Any]] = [_COLUMNS]
    for outcome in outcomes:
        for (step, number), loss in np.ndenumerate(outcome.losses):
            row = (outcome.setting, outcome.optimizer, number, step, f"{loss:.6g}")
            rows.append(row)
    return pages.csv_text(rows)


def draw(outcomes: Sequence[Outcome], means: bool = False) -> figure.Figure:
    """Draws a panel for each setting: medians, and bands from 10 % to 90 % of the draws.

    Args:
        outcomes: from `evaluation.evaluate`.
        means: whether to draw the means over the draws alone, as Kuo et al. (2020) do in Figure 3.
    """
    settings = [outcome.setting for outcome in outcomes]
    names = list(dict.fromkeys(settings))
    columns = math.ceil(math.sqrt(len(names)))
    rows = math.ceil(len(names) / columns)
    size = (5 * columns, 3.8 * rows)
    picture = figure.Figure(figsize=size, layout="constrained")
    panels = picture.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        chosen = [outcome for outcome in outcomes if outcome.setting == name]
        _draw_setting(axes, chosen, means)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    panels[0].legend(fontsize=8)
    return picture


def _draw_setting(axes: Any, outcomes: Sequence[Outcome], means: bool) -> None:
    starts = [float(np.median(outcome.losses[0])) for outcome in outcomes]
    most = 2 * max(starts)
    for outcome in outcomes:
        low, middle, high = np.minimum(outcome.quantiles(), most)
        if means:  # infinite where a draw is; that is above the picture
            middle = np.minimum(outcome.losses.mean(axis=1), most)
        style = "--" if outcome.rate is not None else "-"
        (line,) = axes.plot(
            middle,
            style,
            label=outcome.optimizer,
            linewidth=1.2,
        )
        if not means:
            steps = np.arange(len(middle))
            colour = line.get_color()
            axes.fill_between(steps, low, high, color=colour, alpha=0.1)
    label = "mean loss" if means else "loss"
    axes.set(
        title=outcomes[0].setting,
        xlabel="step",
        ylabel=label,
        yscale="log",
    )
    axes.grid(alpha=0.25)
