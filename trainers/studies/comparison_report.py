"""What a comparison found: a table, a picture, and all points in a CSV file."""

import itertools
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from matplotlib import figure

from trainers.data.files import write_text
from trainers.kinds.measures import Measure
from trainers.studies import comparison
from trainers.studies.comparison import Model, Plan, Settings
from trainers.tasks import registry
from trainers.training import pages, progress, table
from trainers.training.workdir import read_result

TABLE, PICTURE, POINTS = "comparison.md", "comparison.png", "points.csv"
_COLUMNS = ("task", "model", "seed", "parameters", "step", "seconds", "split", "value")
# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
_BY_RECORDING = "by recording"  # the title of a column that most tasks leave empty
_TITLES = (
    *("task", "model", "units", "parameters", "steps", "ms a step", "test"),
    *(_BY_RECORDING, "seeds", "p", "streaming, ms a step"),
)


class RunResult(NamedTuple):
    """What a run has reached.

    Attributes:
        seed: its seed.
        steps: the training steps at which it was validated.
        values: the task's measure then.
        test: the measure on test data of the best weights; None for an unfinished run.
        recordings: the measure by recording, where `test` is that by window; None for other tasks.
        problem: a line about validations that could not be read; None if all were.
    """

    seed: int
    steps: list[int]
    values: list[float]
    test: float | None
    recordings: float | None = None
    problem: str | None = None


Runs = dict[tuple[str, str], list[RunResult]]
"""The runs by task and model."""


def write(
    path: epath.Path, settings: Settings, plans: Mapping[str, Plan], line: str
) -> str:
    """Writes the table, the picture and the points of a comparison.

    Args:
        path: the comparison's folder.
        settings: what is compared.
        plans: the plan of each task.
        line: the command that made the comparison.

    Returns:
        the table, and below it a line for each run whose validations could not be read.
    """
    runs = {}
    for task, plan in plans.items():
        for name in plan:
            seeds = range(settings.seeds)
            measure = registry.get(task).measure
            runs[task, name] = [
                read(path / task / name, seed, measure) for seed in seeds
            ]
    text = markdown(path, settings, plans, runs)
    page = f"# Comparison\n\nWritten by `{line}`.\n\n{text}\n\n![Validation curves]({PICTURE})\n"
    write_text(path / TABLE, page)
    write_text(path / POINTS, points(plans, runs))
    progress.save_picture(draw(plans, runs), path / PICTURE)
    problems = [run.problem for run in itertools.chain(*runs.values()) if run.problem]
    return "\n\n".join([text, *problems])


def read(folder: epath.Path, seed: int, measure: Measure) -> RunResult:
    """Returns what a run has reached; nothing if it has not begun."""
    workdir = folder / f"{seed}"
    steps, values = [], []
    content = table.read(workdir / table.METRICS)
    for row in content.rows:
        if row["kind"] == table.VALIDATION and row.get(measure.name):
            steps.append(int(row["step"]))
            values.append(float(row[measure.name]))
    result = read_result(workdir, {"scores": dict})
    test = recordings = None
    if result is not None:
        scores = result["scores"]["test"]["exact"]
        test, recordings = scores[measure.name], scores.get(f"recording_{measure.name}")
    problem = content.problem and (
        f"{workdir / table.METRICS} is not as a run writes it ({content.problem}), so that "
        f"{POINTS} and {PICTURE} lack validations."
    )
    return RunResult(seed, steps, values, test, recordings, problem)


def paired(differences: Sequence[float]) -> float:
    """Returns the two-sided p-value of an exact permutation test on paired differences.

    Where nothing distinguishes the two models, each difference has either sign alike. The p-value
    is the share of all choices of signs whose mean is at least as far from 0. So n seeds give no
    p-value below 2 / 2^n.

    Source: R. A. Fisher (1935), "The Design of Experiments", section 21.

    Args:
        differences: one for each seed, at most 20.
    """
    values = np.array(differences)
    choices = itertools.product((1, -1), repeat=len(values))
    signs = np.array(list(choices))
    sums = np.abs(signs @ values)
    # Sums that are equal but for rounding count as equal.
    return float(np.mean(sums >= abs(values.sum()) * (1 - 1e-12)))


def markdown(
    path: epath.Path, settings: Settings, plans: Mapping[str, Plan], runs: Runs
) -> str:
    """Returns the table, and below it the command that repeats a run of each row."""
    rows, commands = [], []
    for task, plan in plans.items():
        first = runs[task, next(iter(plan))]
        for name, model in plan.items():
            rows.append(_cells(task, name, model, runs[task, name], first))
            file, workdir = path / task / name / "config.json", f"/tmp/{task}-{name}"
            parts = comparison.training_command(
                model.config, file, 0, workdir, settings
            )
            commands.append(f"    python {shlex.join(parts)}")
    heading = "The run of seed 0 of each row, in the order of the rows:"
    notes = f"{heading}\n\n" + "\n".join(commands)
    titles = list(_TITLES)
    if not any(row[_BY_RECORDING] for row in rows):
        titles.remove(_BY_RECORDING)
    text = pages.markdown(titles, [[row[title] for title in titles] for row in rows])
    return f"{text}\n\n{_note(plans)}\n\n{notes}"


def _note(plans: Mapping[str, Plan]) -> str:
    """Returns what the numbers of a table mean."""
    folds = [
        _folds(task, model) for task, plan in plans.items() for model in plan.values()
    ]
    return f"{_NOTE} {_FOLDS_NOTE}" if any(folds) else _NOTE


_NOTE = (
    "Test: mean and standard deviation over the seeds, of the weights with the best validation "
    "loss. p: an exact paired permutation test against the first model, over the seeds that both "
    "have."
)
_FOLDS_NOTE = (
    "Where the seed chooses the fold, mean, deviation and p are those over the folds, each the "
    "mean of its seeds."
)


def _cells(
    task: str,
    name: str,
    model: Model,
    results: Sequence[RunResult],
    first: Sequence[RunResult],
) -> dict[str, str]:
    """Returns the row of a model by the titles of its columns."""
    measure, folds = registry.get(task).measure, _folds(task, model)
    scores = {run.seed: run.test for run in results if run.test is not None}
    differences = {
        run.seed: scores[run.seed] - run.test
        for run in first
        if run.test is not None and run.seed in scores
    }
    independent = _by_fold(differences, folds)
    tested = results is not first and len(independent) > 1
    by_recording = {
        run.seed: run.recordings for run in results if run.recordings is not None
    }
    cells = (
        f"{task}: {measure.name}",
        name,
        f"{model.config.model.units}",
        f"{model.parameters:,}",
        _steps(model, results),
        f"{1e3 * statistics.mean(model.step_seconds):.3g}",
        _score(measure, _by_fold(scores, folds)),
        _score(measure, _by_fold(by_recording, folds)) if by_recording else "",
        f"{len(scores)} of {len(results)}",
        f"{paired(independent):.3f}" if tested else "",
        f"{1e3 * model.token_seconds:.3g}",
    )
    return dict(zip(_TITLES, cells, strict=True))


def _folds(task: str, model: Model) -> int | None:
    """Returns how many folds the seeds of a model's runs go through; None: all runs have one."""
    chosen = model.config.data.get("fold") is not None
    return None if chosen else registry.get(task).folds


def _by_fold(values: Mapping[int, float], folds: int | None) -> list[float]:
    """Returns the mean of each fold's values, or without folds the values.

    The seeds of a fold share its test data, so that they are no independent samples of it.

    Args:
        values: numbers by the seeds of their runs.
        folds: how many folds the seeds go through in turn, or None.
    """
    groups: dict[int, list[float]] = {}
    for seed, value in values.items():
        groups.setdefault(seed % folds if folds else seed, []).append(value)
    return [statistics.fmean(group) for group in groups.values()]


def _steps(model: Model, results: Sequence[RunResult]) -> str:
    """Returns the steps of a run, or the mean of runs that end by themselves."""
    most = model.config.training.steps
    taken = [_taken(model, run) for run in results if run.test is not None]
    if model.config.schedule.stop_after is None or not taken:
        return f"{most:,}"
    at_most = sum(steps == most for steps in taken)
    share = f", {at_most} of {len(taken)} at the most" if at_most else ""
    return f"{statistics.fmean(taken):,.0f}{share}"


def _taken(model: Model, run: RunResult) -> int:
    """Returns how many steps an ended run took."""
    return run.steps[-1] if run.steps else model.config.training.steps


def _score(measure: Measure, scores: Sequence[float]) -> str:
    if not scores:
        return "-"
    mean = measure.text(statistics.fmean(scores))
    return f"{mean} ± {statistics.stdev(scores):.2g}" if len(scores) > 1 else mean


def points(plans: Mapping[str, Plan], runs: Runs) -> str:
    """Returns all validations and test scores as CSV; seconds are processor seconds."""
    rows: list[Sequence[Any]] = [_COLUMNS]
    for (task, name), results in runs.items():
        model = plans[task][name]
        for run in results:
            start = (task, name, run.seed, model.parameters)
            for step, value in zip(run.steps, run.values, strict=True):
                seconds = f"{model.seconds(step):.3f}"
                rows.append((*start, step, seconds, "validation", value))
            if run.test is not None:
                steps = _taken(model, run)
                seconds = f"{model.seconds(steps):.3f}"
                rows.append((*start, steps, seconds, "test", run.test))
                if run.recordings is not None:
                    place = (*start, steps, seconds, "test recordings")
                    rows.append((*place, run.recordings))
    return pages.csv_text(rows)


def draw(plans: Mapping[str, Plan], runs: Runs) -> figure.Figure:
    """Draws a panel a task: the median over the seeds, and a band from the least to the most."""
    picture = figure.Figure(figsize=(5.5 * len(plans), 4), layout="constrained")
    panels = picture.subplots(1, len(plans), squeeze=False)[0]
    for axes, (task, plan) in zip(panels, plans.items(), strict=True):
        drawn: list[float] = []
        for (name, model), colour in zip(plan.items(), itertools.cycle(_COLOURS)):
            drawn += _draw_model(axes, name, model, runs[task, name], colour)
        progress.choose_scale(axes, drawn)
        measure = registry.get(task).measure.name.replace("_", " ")
        axes.set(
            title=task,
            xlabel="processor seconds of training",
            ylabel=f"validation {measure}",
        )
        axes.grid(alpha=0.25)
        if drawn:
            axes.legend()
    return picture


def _draw_model(
    axes: Any, name: str, model: Model, results: Sequence[RunResult], colour: str
) -> list[float]:
    """Draws a model's curves; returns their values."""
    curves = [run.values for run in results if run.values]
    length = max(map(len, curves), default=0)
    # The seeds of a model are validated at the same steps; a run at work has fewer.
    filled = [curve + [math.nan] * (length - len(curve)) for curve in curves]
    if not filled:
        return []
    steps = max((run.steps for run in results), key=len)
    seconds = [model.seconds(step) for step in steps]
    values = np.array(filled)
    axes.fill_between(
        seconds,
        np.nanmin(values, 0),
        np.nanmax(values, 0),
        color=colour,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(seconds, np.nanmedian(values, 0), color=colour, label=name)
    return [float(value) for value in values.flat if math.isfinite(value)]
