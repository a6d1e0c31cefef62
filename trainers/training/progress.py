"""What a run shows and records: a bar or lines, metrics.csv, TensorBoard events, curves.png.

Nothing here decides anything: a record that cannot be written is told once and left out. Keras's
`CSVLogger` and `TensorBoard` are callbacks of `fit`, which this loop is not, and do not drop what
was recorded after the checkpoint that a run goes on from.
"""

import contextlib
import datetime
import io
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tqdm
from etils import epath
from matplotlib import figure, ticker

from trainers.data.files import write_atomically
from trainers.training.events import EVENTS, Events, LackingError
from trainers.training.table import EPOCH, INTERVAL, METRICS, VALIDATION, Table
from trainers.training.workdir import Change

CURVES = "curves.png"
Metrics = Mapping[str, float]


class Progress:
    """Tells and records how a run goes.

    Args:
        folder: the run's folder.
        display: turns metrics into those that people read, the first of them the curve's.
        unit: what a step's weight counts, such as "tokens".
        epochs: the length of the run.
        steps_per_epoch: the length of an epoch.
        step: the step that the run goes on from.
        changes: of the run's config, for the curves.
        out: where to; a bar where that is a terminal, lines elsewhere.
    """

    def __init__(
        self,
        folder: epath.Path,
        *,
        display: Callable[[Metrics], Metrics],
        unit: str,
        epochs: int,
        steps_per_epoch: int,
        step: int,
        changes: Sequence[Change] = (),
        out: Any = None,
    ):
        self.folder = folder
        self.display = display
        self.unit = unit
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.out = out or sys.stdout
        self.step = step
        self.changes = changes
        self._clock = _Clock()
        self._time_told = False
        self._told: set[str] = set()  # what has kept records from being written
        self._bar = tqdm.tqdm(
            total=epochs * steps_per_epoch,
            initial=step,
            file=self.out,
            disable=not self.out.isatty(),
            unit="step",
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar}| {n}/{total}{postfix}",
        )
        self._table = Table(folder / METRICS, last_step=step, announce=self.say)
        self._events: Events | None = None  # the next process writes what this one cannot
        with self._tolerant():
            rows = self._table.rows
            self._events = Events(folder / EVENTS, rows, last_step=step, announce=self.say)

    def say(self, line: str) -> None:
        """Prints a line, above the bar where there is one; from any thread."""
        with tqdm.tqdm.external_write_mode(self.out):
            print(line, file=self.out, flush=True)

    def advance(self, steps: int = 1) -> bool:
        """Counts steps; returns whether `tell_time` is due."""
        self.step += steps
        self._bar.update(steps)
        self._clock.tick(steps)
        return not self._time_told and self._clock.settled

    def tell_time(self) -> None:
        """Prints what an epoch and the run will take, after the first steps of this process."""
        if not self._clock.running:
            self._clock.start()
            return
        self._time_told = True
        epoch = self._clock.seconds_per_step() * self.steps_per_epoch
        self.say(
            f"about {_duration(epoch)} an epoch, {_duration(self._seconds_left())} to the end of "
            f"epoch {self.epochs}, evaluation not counted"
        )

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Keeps what is done within it out of the rates."""
        self._clock.stop()
        try:
            yield
        finally:
            self._clock.resume()

    def interval(self, metrics: Metrics, weight: float, learning_rate: float) -> None:
        """Tells the mean metrics of the steps since the last call, `weight` their tokens."""
        rate = self._clock.lap(weight)
        shown = self.display(metrics)
        summary = (
            f"{_text(shown)}, lr {learning_rate:g}, {rate:,.0f} {self.unit}/s, "
            f"{_duration(self._seconds_left())} left"
        )
        self._bar.set_postfix_str(summary)
        if self._bar.disable:
            self.say(
                f"epoch {self._epoch()}/{self.epochs}, "
                f"step {self.step}/{self.epochs * self.steps_per_epoch}: {summary}"
            )
        rates = {"learning_rate": learning_rate, f"{self.unit}_per_second": round(rate, 1)}
        self._record(INTERVAL, {**rates, **metrics, **shown})

    def epoch(
        self,
        train: Metrics,
        validation: Metrics,
        *,
        best: bool,
        seconds: float,
        kept: bool = True,
    ) -> None:
        """Tells the epoch that ended: mean metrics of its steps, and those of the evaluation.

        Args:
            train: of its steps.
            validation: of the evaluation.
            best: whether it is the best so far.
            seconds: of the evaluation.
            kept: whether the best epoch's weights are written.
        """
        mark = " (best so far)" if kept else " (best so far, its weights not yet written)"
        train_shown, validation_shown = self.display(train), self.display(validation)
        self.say(
            f"epoch {self._epoch()}/{self.epochs}: train {_text(train_shown)}; "
            f"validation {_text(validation_shown)}{mark if best else ''}; "
            f"evaluated in {_duration(seconds)}"
        )
        self._record(EPOCH, {**train, **train_shown})
        self._record(VALIDATION, {**validation, **validation_shown})
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
        """Has the records written that are not yet, before a checkpoint says that they are."""
        with self._tolerant():
            self._table.flush()
        with self._tolerant():
            if self._events:
                self._events.flush()

    def close(self) -> None:
        """Ends the bar and the records."""
        self._bar.close()
        self.flush()
        with self._tolerant():
            if self._events:
                self._close(self._events)

    def _close(self, events: Events) -> None:
        """Ends the events; writes once more what of them could not be written."""
        try:
            events.close()
        except LackingError:
            rows = self._table.rows
            folder = self.folder / EVENTS
            Events(folder, rows, last_step=self.step, announce=self.say).close()

    def _epoch(self) -> int:
        return -(-self.step // self.steps_per_epoch)

    def _seconds_left(self) -> float:
        return self._clock.seconds_per_step() * (self.epochs * self.steps_per_epoch - self.step)

    def _record(self, kind: str, values: Metrics) -> None:
        epoch = round(self.step / self.steps_per_epoch, 4)
        with self._tolerant():
            self._table.append({"kind": kind, "step": self.step, "epoch": epoch, **values})
        with self._tolerant():
            if self._events:
                self._events.add(kind, self.step, values)

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Lets no full disk stop the run; says what it was, once for each cause."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            told = (str(error) or type(error).__name__).splitlines()[0]
            cause = getattr(error, "strerror", None) or told
            if cause not in self._told:
                self.say(f"records in {self.folder} cannot be written ({told}); going on without")
            self._told.add(cause)


class _Clock:
    """Seconds a step, without the first step, which traces and compiles, and without pauses."""

    _SETTLED_STEPS, _SETTLED_SECONDS = 10, 5.0

    def __init__(self):
        self.running = False
        self._steps = self._timed_steps = 0
        self._seconds = 0.0  # up to the last stop
        self._since = math.inf  # the last start; infinite while stopped
        self._last_lap = (0, 0, 0.0)

    @property
    def settled(self) -> bool:
        """Whether there are steps enough to go by, or the first one is done."""
        if not self.running:
            return True
        return self._timed_steps >= self._SETTLED_STEPS or self._elapsed() >= self._SETTLED_SECONDS

    def start(self) -> None:
        self.running = True
        self._since = time.monotonic()

    def stop(self) -> None:
        self._seconds, self._since = self._elapsed(), math.inf

    def resume(self) -> None:
        if self.running:
            self._since = time.monotonic()

    def tick(self, steps: int) -> None:
        self._steps += steps
        self._timed_steps += steps if self.running else 0

    def seconds_per_step(self) -> float:
        """Returns the mean over all timed steps."""
        return self._elapsed() / max(1, self._timed_steps)

    def lap(self, weight: float) -> float:
        """Returns the weight a second since the last lap, of steps with `weight` in all."""
        now = (self._steps, self._timed_steps, self._elapsed())
        steps, timed, seconds = (b - a for a, b in zip(self._last_lap, now, strict=True))
        self._last_lap = now
        return weight / steps * timed / seconds if timed else 0.0

    def _elapsed(self) -> float:
        return self._seconds + max(0.0, time.monotonic() - self._since)


def draw_curves(
    rows: list[dict[str, str]],
    steps_per_epoch: int,
    metric: str,
    path: epath.Path,
    changes: Sequence[Change] = (),
) -> None:
    """Draws the training and validation curves of a metric against the epoch.

    Args:
        rows: those of a `table.Table`.
        steps_per_epoch: the length of an epoch.
        metric: the column to draw.
        path: the picture's.
        changes: of the run's config; those that changed steps are drawn as vertical lines.
    """
    picture = figure.Figure(figsize=(8, 5), layout="constrained")
    axes = picture.subplots()
    # An epoch's mean stands in its middle. Kind, label, shift, style:
    curves: list[tuple[str, str, float, dict[str, Any]]] = [
        (INTERVAL, "train", 0.0, dict(color="tab:blue", alpha=0.35, linewidth=0.8)),
        (EPOCH, "train, mean of an epoch", -0.5, dict(color="tab:blue", marker=".")),
        (VALIDATION, "validation", 0.0, dict(color="tab:orange", marker=".")),
    ]
    drawn: list[float] = []
    for kind, label, shift, style in curves:
        chosen = [r for r in rows if r["kind"] == kind and math.isfinite(_number(r, metric))]
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
    """Draws a line at each step at which there are changes, and says which."""
    drawn = [change for change in changes if change.of_the_steps]
    for _, together in itertools.groupby(drawn, lambda change: change.step):
        same = list(together)
        names = ((each.field.partition(".")[2], each.was, each.now) for each in same)
        label = "\n".join(f"{name} {was} → {now}" for name, was, now in names)
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


def save_picture(picture: figure.Figure, path: epath.Path) -> None:
    """Writes a picture as PNG, whole or not at all."""
    content = io.BytesIO()
    picture.savefig(content, format="png", dpi=120)
    write_atomically(path, lambda file: file.write(content.getvalue()))


def choose_scale(axes: Any, values: Sequence[float]) -> None:
    """Makes the y axis logarithmic where the values drawn span much, with ticks to read."""
    if values and min(values) > 0 and max(values) > 5 * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(ticker.NullLocator())


def _number(row: Mapping[str, str], field: str) -> float:
    return float(row.get(field) or math.nan)


def _text(metrics: Metrics) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else str(datetime.timedelta(seconds=round(seconds)))
