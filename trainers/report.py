"""Compares runs with each other and with the paper's numbers.

    python -m trainers.report runs/ptb-small runs/ptb-small_lstm --output=docs

The command writes `results.md`, a table for each task, and `results.png`, validation curves and
results on test data. It shows an unfinished run up to its last epoch, and a run in its first epoch
by its training curve.
"""

import dataclasses
import datetime
import itertools
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from etils import epath
from matplotlib import figure

from trainers.cli import command
from trainers.data import terminal
from trainers.data.files import UnreadableError, check_folder, write_text
from trainers.data.names import Values
from trainers.data.stores import to_path
from trainers.kinds.measures import COMPARED, Measure
from trainers.kinds.task import Published, Task
from trainers.language.protocols import PROTOCOLS
from trainers.tasks import registry
from trainers.training import pages, progress, schedules, workdir
from trainers.training import table as tables

TABLE, PICTURE = "results.md", "results.png"
_UNKNOWN = "-"
_NOT_PUBLISHED = 4 * [_UNKNOWN]  # epochs, tokens, time and memory
# Okabe and Ito's colours, which colour-blind readers can tell apart, and markers to go with them.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^vP"
_GREY = "#555555"
Curve = Sequence[tuple[float, float]]  # of epochs and values


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as its workdir has it.

    Attributes:
        name: its name in the report.
        config: its config.
        result: its result; empty if it has not finished.
        curve: epochs, and the measure on validation data after each. If each training example is
            new, the number of examples stands in the place of epochs.
        training: fractional epochs, and the mean measure in training since the previous one.
        problem: what is wrong with its table, or None. `curve` and `training` have the readable
            rows.
        changes: the changes of its config.
    """

    name: str
    config: Values
    result: Values
    curve: Curve
    training: Curve
    problem: str | None = None
    changes: Sequence[workdir.Change] = ()

    def values(self) -> dict[str, float]:
        """Returns the measure on test data by protocol."""
        values = {}
        for protocol, score in self.scores().items():
            if score[self.measure.name] is not None:
                values[protocol] = float(score[self.measure.name])
        return values

    def scores(self) -> Mapping[str, Values]:
        """Returns the scores on test data by protocol."""
        return self.result.get("scores", {}).get("test", {})

    @property
    def task(self) -> str:
        """The task's name."""
        return self.config["task"]

    @property
    def measure(self) -> Measure:
        """What the task is measured in."""
        return registry.get(self.task).measure


def read_run(path: epath.PathLike, name: str) -> Run:
    """Reads the run in a folder.

    Raises:
        WorkdirError: the folder has no run, or its config is damaged.
        UnreadableError: its result is damaged.
        OSError: a file cannot be read.
    """
    folder = to_path(path)
    config = workdir.read_config(
        folder, {"task": str, "preset": str, "training.epochs": int}
    )
    result = workdir.read_result(folder, {"epochs": int, "scores": dict}) or {}
    # A run that continues for more epochs still has the result of its former end.
    stop_after = config.get("schedule", {}).get("stop_after")
    finished = result.get("epochs", 0) >= config["training"]["epochs"]
    finished = finished or schedules.stopped(result, stop_after)
    content = tables.read(folder / tables.METRICS)
    run = Run(
        name,
        config,
        result if finished else {},
        curve=_curve(content.rows, tables.VALIDATION, config),
        training=_curve(content.rows, tables.INTERVAL, config),
        problem=_problem(folder, content, finished),
        changes=workdir.read_changes(folder),
    )
    _check_scores(folder, run)
    return run


def _problem(folder: epath.Path, content: tables.Content, finished: bool) -> str | None:
    """Returns what is wrong with a run's table, or None."""
    problem = content.problem
    # While a run trains, its last line may still be written.
    if finished and content.half:
        problem = problem or "its last line is cut off"
    if not problem:
        return None
    return f"{folder / tables.METRICS} is shown as far as it can be read ({problem})"


def _check_scores(folder: epath.Path, run: Run) -> None:
    """Raises UnreadableError if something that the report shows is missing or malformed."""
    try:
        _run_cells(run), run.values()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = str(error)
        if isinstance(error, KeyError):
            reason = f"they lack {error}"
        raise UnreadableError(
            f"{folder / workdir.RESULT} is damaged: its scores are not those of a run ({reason})"
        ) from error


def _curve(rows: Sequence[tables.Row], kind: str, config: Values) -> Curve:
    """Returns the epochs or examples of a kind's rows, and the task's measure there."""
    task = registry.get(config["task"])
    name = task.measure.name
    epoch = task.epoch_length(config)
    curve = []
    for row in rows:
        if row["kind"] != kind:
            continue
        value = float(row.get(name) or math.nan)
        if math.isfinite(value):
            curve.append((epoch * float(row["epoch"]), value))
    return curve


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Reads runs. Their names are those of their folders or, if two agree, their paths.

    Raises:
        ValueError: no path is given, or a path is given twice.
        WorkdirError, UnreadableError, OSError: as `read_run`.
    """
    places = {os.path.realpath(to_path(path)) for path in paths}
    if not all(paths) or not paths or len(places) < len(paths):
        received = shlex.join(paths) or "nothing"
        raise ValueError(f"expected folders of runs, each once. Received: {received}")
    names = [to_path(path).name for path in paths]
    names = names if len(set(names)) == len(names) else list(paths)
    return [read_run(path, name) for path, name in zip(paths, names, strict=True)]


def table(runs: Sequence[Run]) -> str:
    """Returns a section of Markdown for each task: its runs, then the paper's table."""
    return "\n".join(_section(task, its_runs) for task, its_runs in _by_task(runs))


_Styled = Sequence[tuple[Run, str, str]]  # runs, each with its colour and its marker


def _section(task: Task, runs: Sequence[Run]) -> str:
    titles = ["run", "preset", "parameters"]
    titles += [f"test, `{protocol}`" for protocol in PROTOCOLS]
    titles += ["epochs", "seen in training", "training time", "peak memory"]
    rows = [_run_cells(run) for run in runs]
    rows += [_published_cells("*paper*", task, result) for result in task.published]
    rows += [_published_cells("*quoted*", task, result) for result in task.quoted]
    section = f"## {task.name}: {task.measure.name}\n\n{pages.markdown(titles, rows)}\n"
    for run in runs:
        if run.config.get("data", {}).get("validation") == 0:
            section += (
                f"\n{run.name} trained on all training data, without validation.\n"
            )
        # A note on config values that a run did not have from its first step.
        if changes := [str(change) for change in run.changes if change.affects_steps]:
            section += (
                f"\n{run.name} went on with other values: {'; '.join(changes)}.\n"
            )
    return section


def _published_cells(source: str, task: Task, result: Published) -> list[str]:
    size = result.parameters
    return [
        source,
        result.name,
        _UNKNOWN if size is None else f"{size / 1e6:g}M",
        _UNKNOWN,
        task.measure.text(result.value),
        *_NOT_PUBLISHED,
    ]


def draw(runs: Sequence[Run]) -> figure.Figure:
    """Draws the curves of each task's runs, and their results on test data."""
    by_task = _by_task(runs)
    counts = [len(its_runs) + len(task.published) for task, its_runs in by_task]
    heights = [max(3.5, 1.4 + 0.27 * count) for count in counts]
    picture = figure.Figure(figsize=(12, sum(heights)), layout="constrained")
    panels = picture.subplots(len(by_task), 2, squeeze=False, height_ratios=heights)
    for (task, its_runs), (left, right) in zip(by_task, panels, strict=True):
        styles = itertools.cycle(zip(_COLOURS, _MARKERS, strict=True))
        styled = [(run, *next(styles)) for run in its_runs]
        _draw_curves(left, task, styled)
        _draw_results(right, task, styled)
    return picture


def _draw_curves(axes: Any, task: Task, styled: _Styled) -> None:
    drawn: list[float] = []
    for run, colour, marker in styled:
        curve = run.curve or run.training
        epochs = [epoch for epoch, _ in curve]
        values = [value for _, value in curve]
        drawn += values
        style = dict(marker=marker, markersize=5) if run.curve else dict(linewidth=1)
        axes.plot(epochs, values, color=colour, label=_label(run), **style)
    progress.choose_scale(axes, drawn)
    title = f"{task.name}: learning curves"
    axes.set(title=title, xlabel=task.passed, ylabel=task.measure.name)
    axes.grid(alpha=0.25)
    axes.legend()


def _label(run: Run) -> str:
    name = progress.literal(run.name)
    if run.result:
        return name
    if run.curve:
        return f"{name}, unfinished"
    return f"{name}, begun: training"


def _draw_results(axes: Any, task: Task, styled: _Styled) -> None:
    """Draws a row for each finished run and each number of the paper, the best at the bottom."""
    exact, authors = PROTOCOLS
    entries = [
        (result.value, f"paper, {result.name}", _GREY) for result in task.published
    ]
    for run, colour, _ in styled:
        if values := run.values():
            # Under the protocol of the paper, if the task has it.
            value = values.get(authors, values.get(exact, math.nan))
            entries.append((value, progress.literal(run.name), colour))
    if not entries:
        axes.set_axis_off()
        return
    entries.sort(reverse=task.measure.higher_is_better)
    for place, (value, _, colour) in enumerate(entries):
        axes.plot(value, place, "o", color=colour)
        axes.text(
            value, place, f"   {task.measure.text(value)}", verticalalignment="center"
        )
    axes.set_yticks(range(len(entries)), [name for _, name, _ in entries])
    axes.set(title=f"{task.name}: test", xlabel=task.measure.name)
    axes.margins(x=0.25)
    axes.grid(axis="x", alpha=0.25)


def _run_cells(run: Run) -> list[str]:
    scores = run.scores()
    cost = run.result.get("cost", {})
    seconds = cost.get("seconds")
    peak = cost.get("peak_bytes")
    epochs = run.config["training"]["epochs"]
    done = run.result.get("epochs")
    return [
        run.name,
        run.config["preset"],
        _count(run.result.get("parameters")),
        *(
            _score_cell(registry.get(run.task), scores.get(protocol))
            for protocol in PROTOCOLS
        ),
        f"{done}" if run.result else f"{len(run.curve)} of {epochs}, unfinished",
        _count(cost.get("weight")),
        _UNKNOWN
        if seconds is None
        else str(datetime.timedelta(seconds=round(seconds))),
        _UNKNOWN if peak is None else f"{peak / 2**30:.1f} GiB",
    ]


def _score_cell(task: Task, score: Values | None) -> str:
    measure = task.measure
    if score is None or score[measure.name] is None:
        return _UNKNOWN
    parts = [measure.format_score(score[measure.name], measure.count(score))]
    for metric in (*task.metrics, *COMPARED):
        value = score.get(metric.name)  # a run from before the task had it has none
        if value is not None:
            parts.append(metric.format(value))
    return ", ".join(parts)


def _count(number: float | None) -> str:
    if number is None:
        return _UNKNOWN
    return f"{number:,.0f}"


def _by_task(runs: Sequence[Run]) -> list[tuple[Task, list[Run]]]:
    """Returns each task with its runs, in the order in which the runs name the tasks."""
    names = dict.fromkeys(run.task for run in runs)
    return [
        (registry.get(name), [run for run in runs if run.task == name])
        for name in names
    ]


def define_flags() -> None:
    """Defines the command's flags, in a function because another command has this one too."""
    flags.DEFINE_string("output", ".", f"The folder for {TABLE} and {PICTURE}.")


def main(argv: list[str]) -> int:
    """Writes and prints the report of runs; returns the exit status."""
    return command.exit_status(argv[:1], lambda: run(argv[1:], flags.FLAGS.output))


parse_flags = command.parse


def run(paths: Sequence[str], output: str) -> None:
    """Writes and prints the report of runs.

    Args:
        paths: the runs' folders.
        output: the folder for the table and the picture; created if it does not exist.
    """
    place = to_path(output)
    check_folder("output", place)
    workdir.check_output(place)
    runs = read_runs(paths)
    for loaded in runs:
        if loaded.problem:
            print(f"warning: {terminal.line(loaded.problem)}", file=sys.stderr)
    line = shlex.join(["python", "-m", "trainers.report", *sys.argv[1:]])
    head = f"# Results\n\nWritten by `{line}`.\n\n"
    sections = terminal.text(table(runs))
    text = f"{terminal.text(head)}{sections}\n![Validation curves and test results]({PICTURE})\n"
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / TABLE, text)
    progress.save_picture(draw(runs), place / PICTURE)
    print(sections)


if __name__ == "__main__":
    define_flags()
    command.start(main, parse_flags)
