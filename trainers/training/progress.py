"""What a run shows and records: a bar or lines, metrics.csv, TensorBoard events, curves.png.

A record that cannot be written never stops a run; a line says so once. Keras's `CSVLogger` and
`TensorBoard` do not serve here: they are callbacks of `fit`, and a resumed run would keep their
records from after its checkpoint.
"""

import contextlib
import datetime
import io
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tqdm
from etils import epath
from matplotlib import figure, ticker

from trainers.data import terminal
from trainers.data.files import write_atomically
from trainers.data.stores import is_store
from trainers.training.events import EVENTS, Events, LackingError
from trainers.training.schedules import Plan, total_cost
from trainers.training.table import EPOCH, INTERVAL, METRICS, VALIDATION, Table
from trainers.training.trainer import Task
from trainers.training.workdir import Change

CURVES = "curves.png"
# Which multiples of a power of ten have a tick, by the most powers that an axis spans.
_MULTIPLES = (
    (1.3, (1, 1.5, 2, 3, 5, 7)),
    (3, (1, 2, 5)),
    (5, (1, 3)),
    (math.inf, (1,)),
)
# Kind, label, shift, style. The shift puts an epoch's mean in the middle of the epoch.
_CURVES: tuple[tuple[str, str, float, dict[str, Any]], ...] = (
    (INTERVAL, "train", 0.0, dict(color="tab:blue", alpha=0.35, linewidth=0.8)),
    (EPOCH, "train, mean of an epoch", -0.5, dict(color="tab:blue", marker=".")),
    (VALIDATION, "validation", 0.0, dict(color="tab:orange", marker=".")),
)
_SETTLED_STEPS, _SETTLED_SECONDS = 10, 5.0  # enough for an estimate
Metrics = Mapping[str, float]


class _Pace:
    """How fast a run is, and how long the rest of it takes.

    Attributes:
        step: steps done.
    """

    def __init__(self, task: Task, plan: Plan, step: int):
        self.step = self._first_step = step
        self._task, self._plan = task, plan
        # An epoch ends after step `epoch * length // epochs`.
        done = ((step + 1) * plan.epochs - 1) // plan.length
        self._validations = self._earlier = done
        self._validation_seconds: float | None = None  # of the last one
        # Without the first call and the first validation, which trace and compile.
        self._timed_steps = 0
        self._timed_work = 0.0
        self._seconds = 0.0
        self._last_lap = (step, 0, 0.0)  # step, timed steps, seconds

    def advance(self, steps: int, seconds: float) -> None:
        """Counts steps and their time."""
        if self.step > self._first_step:
            self._timed_steps += steps
            self._timed_work += self._work(self.step, self.step + steps)
            self._seconds += seconds
        self.step += steps

    def validate(self, seconds: float) -> None:
        """Counts a validation and its time."""
        if self._validations > self._earlier:
            self._validation_seconds = seconds
        self._validations += 1

    @property
    def is_settled(self) -> bool:
        """Whether enough is timed for an estimate."""
        timed = self._timed_steps >= _SETTLED_STEPS
        return timed or self._seconds >= _SETTLED_SECONDS

    def rate(self, weight: float) -> float:
        """Returns the weight per second since the last call; the steps since weigh `weight`."""
        now = (self.step, self._timed_steps, self._seconds)
        steps, timed, seconds = (
            b - a for a, b in zip(self._last_lap, now, strict=True)
        )
        self._last_lap = now
        return weight / steps * timed / seconds if timed else 0.0

    def seconds_left(self) -> float:
        """Returns the time to the end of the run."""
        pace = self._seconds / self._timed_work if self._timed_work else 0.0
        training = pace * self._work(self.step, self._plan.length)
        validation = self._validation_seconds
        if validation is None:
            validation = pace * self._task.evaluation_steps
        evaluations = self._plan.epochs - self._validations + self._task.scoring
        return training + validation * evaluations

    def _work(self, start: int, stop: int) -> float:
        """Returns the work of the steps from `start` to `stop`; one of the last part is 1."""
        costs, length = self._plan.costs, self._plan.length
        return total_cost(costs, stop, length) - total_cost(costs, start, length)


class Progress:
    """Prints and records the progress of a run.

    Args:
        folder: the run's folder.
        task: what is trained; it says how its metrics are shown.
        plan: how long the run is.
        step: the step that the run continues from.
        changes: changes of the run's config, for the curves.
        check_held: as `Workdir.check_held`, which is called before each write.
        out: shows one line, a bar, if it is a terminal, and a log of lines otherwise. Default:
            stdout.
    """

    def __init__(
        self,
        folder: epath.Path,
        task: Task,
        plan: Plan,
        *,
        step: int,
        changes: Sequence[Change] = (),
        check_held: Callable[[], None] = lambda: None,
        out: Any = None,
    ):
        self.folder = folder
        self.task = task
        self.plan = plan
        self.steps_per_epoch = plan.length / plan.epochs
        self.out = out or sys.stdout
        self.step = step
        self.changes = changes
        # In a store each look is a request, and those before checkpoints have to do.
        self._check_held = (lambda: None) if is_store(folder) else check_held
        self._pace = _Pace(task, plan, step)
        self._has_estimated = False
        self._shown: dict[str, str] = {}  # the text of the newest value, by its kind
        self._causes: set[str] = set()  # why records could not be written
        self._bar = _bar(plan.length, step, self.out)
        self._table = Table(folder / METRICS, last_step=step, announce=self.say)
        # If this fails, the next process writes the events.
        self._events: Events | None = None
        with self._tolerant():
            self._events = self._open_events(step)

    def say(self, line: str) -> None:
        """Prints a line, above the bar if there is one; any thread may call it."""
        with tqdm.tqdm.external_write_mode(self.out):
            print(line, file=self.out, flush=True)

    def advance(self, steps: int, seconds: float) -> None:
        """Counts steps and their time; after enough of them, a log says how long the run takes."""
        self._pace.advance(steps, seconds)
        self.step += steps
        self._bar.update(steps)
        if self._bar.disable and self._pace.is_settled and not self._has_estimated:
            self._has_estimated = True
            left = _duration(self._pace.seconds_left())
            self.say(
                f"about {left} to the end of the run, validations and scores included"
            )

    def interval(self, metrics: Metrics, weight: float, learning_rate: float) -> None:
        """Shows and records mean metrics of the steps since the last call.

        Args:
            metrics: the means.
            weight: the number of tokens in these steps.
            learning_rate: the current one.
        """
        rate = self._pace.rate(weight)
        left = _duration(self._pace.seconds_left())
        shown = self.task.display(metrics)
        self._show("train", shown)
        if self._bar.disable:
            self.say(
                f"epoch {self._epoch()}/{self.plan.epochs}, step {self.step}/{self.plan.length}: "
                f"{_text(shown)}, lr {learning_rate:g}, {rate:,.0f} {self.task.unit}/s, {left} left"
            )
        rates = {
            "learning_rate": learning_rate,
            f"{self.task.unit}_per_second": round(rate, 1),
        }
        self._record(INTERVAL, {**rates, **metrics, **shown})

    def epoch(
        self,
        train: Metrics,
        validation: Metrics,
        *,
        best: bool,
        seconds: float,
        written: bool = True,
    ) -> None:
        """Shows and records the epoch that ended.

        Args:
            train: mean metrics of its steps.
            validation: metrics of the evaluation; none without validation data.
            best: whether this epoch is the best so far.
            seconds: the time of the evaluation.
            written: whether the best epoch's weights are on disk.
        """
        train_shown = self.task.display(train)
        shown = self.task.display(validation) if validation else {}
        if validation:
            self._pace.validate(seconds)
            self._show("validation", shown)
        if self._bar.disable or not written:
            unwritten = "" if written else ", its weights not yet written"
            line = (
                f"epoch {self._epoch()}/{self.plan.epochs}: train {_text(train_shown)}"
            )
            mark = f" (best so far{unwritten})" if best else ""
            scored = (
                f"; validation {_text(shown)}{mark}; evaluated in {_duration(seconds)}"
            )
            self.say(line + (scored if validation else unwritten))
        self._record(EPOCH, {**train, **train_shown})
        if validation:
            self._record(VALIDATION, {**validation, **shown})
        self.flush()
        with self._tolerant():
            draw_curves(
                self._table.rows,
                self.steps_per_epoch,
                next(iter(train_shown)),
                self.folder / CURVES,
                self.changes,
            )

    def flush(self) -> None:
        """Writes all records to disk, before a checkpoint relies on them."""
        self._check_held()
        with self._tolerant():
            self._table.flush()
        with self._tolerant():
            if self._events:
                self._events.flush()

    def close(self) -> None:
        """Closes the bar and the records."""
        self._bar.close()
        self.flush()
        with self._tolerant():
            try:
                if self._events:
                    self._events.close()
            except LackingError:  # write them again from the table
                self._open_events(self.step).close()

    def _open_events(self, last_step: int) -> Events:
        folder, rows = self.folder / EVENTS, self._table.rows
        return Events(folder, rows, last_step=last_step, announce=self.say)

    def _show(self, kind: str, shown: Metrics) -> None:
        """Puts the epoch, the newest value of each kind, and the time left behind the bar."""
        self._shown[kind] = _text(dict([next(iter(shown.items()))]))
        values = ", ".join(f"{kind} {text}" for kind, text in self._shown.items())
        left = _duration(self._pace.seconds_left())
        self._bar.set_postfix_str(
            f"epoch {self._epoch()}/{self.plan.epochs}, {values}, {left} left"
        )

    def _epoch(self) -> int:
        return -(-self.step * self.plan.epochs // self.plan.length)

    def _record(self, kind: str, values: Metrics) -> None:
        epoch = round(self.step / self.steps_per_epoch, 4)
        self._check_held()
        with self._tolerant():
            # The run may have stopped between this record and its checkpoint.
            if not self._table.has(kind, self.step):
                self._table.append(
                    {"kind": kind, "step": self.step, "epoch": epoch, **values}
                )
        with self._tolerant():
            if self._events:
                self._events.add(kind, self.step, values)

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Keeps a full disk from stopping the run; prints each cause once."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            cause = getattr(error, "strerror", None) or reason
            if cause not in self._causes:
                self.say(
                    f"records in {self.folder} cannot be written ({reason}); going on without"
                )
            self._causes.add(cause)


def _bar(length: int, step: int, out: Any) -> tqdm.tqdm:
    """Returns a bar of the run's steps, which shows itself in a terminal alone."""
    return tqdm.tqdm(
        total=length,
        initial=step,
        file=out,
        disable=not (out.isatty() and _has_size(out)),
        unit="step",
        dynamic_ncols=True,
        bar_format="{percentage:3.0f}%|{bar}| {n}/{total}{postfix}",
    )


def _has_size(terminal: Any) -> bool:
    """Returns whether a terminal knows its size; tqdm shows no bar in one that does not."""
    try:
        return min(os.get_terminal_size(terminal.fileno())) > 0
    except OSError:
        return True


def draw_curves(
    rows: list[dict[str, str]],
    steps_per_epoch: float,
    metric: str,
    path: epath.Path,
    changes: Sequence[Change] = (),
) -> None:
    """Draws the training and validation curves of a metric against the epoch.

    Args:
        rows: the rows of a `table.Table`.
        steps_per_epoch: the length of an epoch.
        metric: the column to draw.
        path: the picture's path.
        changes: changes of the run's config; a vertical line marks each that affects steps.
    """
    picture = figure.Figure(figsize=(8, 5), layout="constrained")
    axes = picture.subplots()
    drawn: list[float] = []
    for kind, label, shift, style in _CURVES:
        chosen = [
            row
            for row in rows
            if row["kind"] == kind and math.isfinite(_number(row, metric))
        ]
        values = [float(row[metric]) for row in chosen]
        epochs = [int(row["step"]) / steps_per_epoch + shift for row in chosen]
        if values:
            axes.plot(epochs, values, label=f"{label}, last {values[-1]:.4g}", **style)
        drawn += values
    choose_scale(axes, drawn)
    _draw_changes(axes, changes)
    axes.set(xlabel="epoch", ylabel=metric)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    if drawn:
        axes.legend()
    save_picture(picture, path)


def _draw_changes(axes: Any, changes: Sequence[Change]) -> None:
    """Draws a labelled line at each step with changes."""
    drawn = [change for change in changes if change.affects_steps]
    for _, together in itertools.groupby(drawn, lambda change: change.step):
        same = list(together)
        names = (
            (change.field.partition(".")[2], change.was, change.now) for change in same
        )
        label = "\n".join(literal(f"{name} {was} → {now}") for name, was, now in names)
        axes.axvline(same[0].epoch, color="gray", linestyle=":", linewidth=1)
        axes.annotate(
            label,
            (same[0].epoch, 0.02),
            xycoords=axes.get_xaxis_transform(),
            rotation=90,
            va="bottom",
            ha="right",
            fontsize=7,
            color="gray",
        )


def literal(name: str) -> str:
    """Returns a name as a picture shows it: in one line, its dollars no mathematics."""
    return terminal.line(name).replace("$", r"\$")


def save_picture(picture: figure.Figure, path: epath.Path) -> None:
    """Writes a picture as PNG, whole or not at all."""
    content = io.BytesIO()
    picture.savefig(content, format="png", dpi=120)
    write_atomically(path, lambda file: file.write(content.getvalue()))


def choose_scale(axes: Any, values: Sequence[float]) -> None:
    """Makes the y axis logarithmic, with readable ticks, if the values span a wide range."""
    if values and min(values) > 0 and max(values) > 5 * min(values):
        axes.set_yscale("log")
        powers = math.log10(max(values) / min(values))
        multiples = next(ticks for most, ticks in _MULTIPLES if powers <= most)
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=multiples))
        axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(ticker.NullLocator())


def _number(row: Mapping[str, str], field: str) -> float:
    return float(row.get(field) or math.nan)


def _text(metrics: Metrics) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return str(datetime.timedelta(seconds=round(seconds)))
