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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tqdm
from etils import epath
from matplotlib import figure, ticker

from trainers.data.files import write_atomically
from trainers.data.stores import is_store
from trainers.training.events import EVENTS, Events, LackingError
from trainers.training.table import EPOCH, INTERVAL, METRICS, VALIDATION, Table
from trainers.training.workdir import Change

CURVES = "curves.png"
# Which multiples of a power of ten have a tick, by the most powers that an axis spans.
_MULTIPLES = (
    (1.3, (1, 1.5, 2, 3, 5, 7)),
    (3, (1, 2, 5)),
    (5, (1, 3)),
    (math.inf, (1,)),
)
_SETTLED_STEPS, _SETTLED_SECONDS = 10, 5.0  # enough for an estimate
Metrics = Mapping[str, float]


class Progress:
    """Prints and records the progress of a run.

    Args:
        folder: the run's folder.
        display: turns metrics into those that people read; the curves show the first.
        unit: what a step's weight counts, such as "tokens".
        epochs: the length of the run.
        length: the same in training steps.
        step: the step that the run continues from.
        costs: how long a step of each equal part of the run takes, beside one of the last part.
        evaluation_steps: about how many training steps take as long as a validation.
        scoring: about how many validations take as long as the scores at the end.
        changes: changes of the run's config, for the curves.
        check_held: as `Workdir.check_held`, which is called before each write.
        out: shows a bar if it is a terminal, lines otherwise. Default: stdout.
    """

    def __init__(
        self,
        folder: epath.Path,
        *,
        display: Callable[[Metrics], Metrics],
        unit: str,
        epochs: int,
        length: int,
        step: int,
        costs: Sequence[float] = (1.0,),
        evaluation_steps: float = 0.0,
        scoring: float = 0.0,
        changes: Sequence[Change] = (),
        check_held: Callable[[], None] = lambda: None,
        out: Any = None,
    ):
        self.folder = folder
        self.display = display
        self.unit = unit
        self.epochs = epochs
        self.length = length
        self.steps_per_epoch = length / epochs
        self.out = out or sys.stdout
        self.step = self._first_step = step
        self.costs = costs
        self.evaluation_steps = evaluation_steps
        self.scoring = scoring
        self.changes = changes
        # In a store each look is a request, and those before checkpoints have to do.
        self._check_held = (lambda: None) if is_store(folder) else check_held
        # An epoch ends after step `epoch * length // epochs`.
        self._validations = self._earlier = ((step + 1) * epochs - 1) // length
        self._validation_seconds: float | None = None  # of the last one
        # Without the first call and the first validation, which trace and compile.
        self._timed_steps = 0
        self._timed_work = 0.0
        self._seconds = 0.0
        self._last_lap = (step, 0, 0.0)  # step, timed steps, seconds
        self._time_told = False
        self._told: set[str] = set()  # why records could not be written
        self._bar = tqdm.tqdm(
            total=length,
            initial=step,
            file=self.out,
            disable=not self.out.isatty(),
            unit="step",
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar}| {n}/{total}{postfix}",
        )
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
        """Counts steps and their time; after enough of them, prints how long the run will take."""
        if self.step > self._first_step:
            self._timed_steps += steps
            self._timed_work += self._work(self.step, self.step + steps)
            self._seconds += seconds
        self.step += steps
        self._bar.update(steps)
        settled = (
            self._timed_steps >= _SETTLED_STEPS or self._seconds >= _SETTLED_SECONDS
        )
        if settled and not self._time_told:
            self._time_told = True
            self.say(
                f"about {self._time_left()} to the end of the run, validations and scores included"
            )

    def interval(self, metrics: Metrics, weight: float, learning_rate: float) -> None:
        """Prints and records mean metrics of the steps since the last call.

        Args:
            metrics: the means.
            weight: the number of tokens in these steps.
            learning_rate: the current one.
        """
        rate = self._rate(weight)
        shown = self.display(metrics)
        summary = (
            f"{_text(shown)}, lr {learning_rate:g}, {rate:,.0f} {self.unit}/s, "
            f"{self._time_left()} left"
        )
        self._bar.set_postfix_str(summary)
        if self._bar.disable:
            self.say(
                f"epoch {self._epoch()}/{self.epochs}, step {self.step}/{self.length}: {summary}"
            )
        rates = {
            "learning_rate": learning_rate,
            f"{self.unit}_per_second": round(rate, 1),
        }
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
        """Prints and records the epoch that ended.

        Args:
            train: mean metrics of its steps.
            validation: metrics of the evaluation.
            best: whether this epoch is the best so far.
            seconds: the time of the evaluation.
            kept: whether the best epoch's weights are on disk.
        """
        mark = (
            " (best so far)" if kept else " (best so far, its weights not yet written)"
        )
        if self._validations > self._earlier:
            self._validation_seconds = seconds
        self._validations += 1
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

    def _epoch(self) -> int:
        return -(-self.step * self.epochs // self.length)

    def _rate(self, weight: float) -> float:
        """Returns the weight per second since the last call; the steps since weigh `weight`."""
        now = (self.step, self._timed_steps, self._seconds)
        steps, timed, seconds = (
            b - a for a, b in zip(self._last_lap, now, strict=True)
        )
        self._last_lap = now
        return weight / steps * timed / seconds if timed else 0.0

    def _work(self, start: int, stop: int) -> float:
        """Returns the work of the steps from `start` to `stop`; one of the last part is 1."""
        part = self.length / len(self.costs)
        work = 0.0
        for index, cost in enumerate(self.costs):
            begin, end = index * part, (index + 1) * part
            work += cost * max(0.0, min(stop, end) - max(start, begin))
        return work

    def _time_left(self) -> str:
        """Returns the time to the end of the run, as printed."""
        pace = self._seconds / self._timed_work if self._timed_work else 0.0
        training = pace * self._work(self.step, self.length)
        validation = self._validation_seconds
        if validation is None:
            validation = pace * self.evaluation_steps
        evaluations = self.epochs - self._validations + self.scoring
        return _duration(training + validation * evaluations)

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
            told = (str(error) or type(error).__name__).splitlines()[0]
            cause = getattr(error, "strerror", None) or told
            if cause not in self._told:
                self.say(
                    f"records in {self.folder} cannot be written ({told}); going on without"
                )
            self._told.add(cause)


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
    # Kind, label, shift, style. The shift puts an epoch's mean in the middle of the epoch.
    curves: list[tuple[str, str, float, dict[str, Any]]] = [
        (INTERVAL, "train", 0.0, dict(color="tab:blue", alpha=0.35, linewidth=0.8)),
        (EPOCH, "train, mean of an epoch", -0.5, dict(color="tab:blue", marker=".")),
        (VALIDATION, "validation", 0.0, dict(color="tab:orange", marker=".")),
    ]
    drawn: list[float] = []
    for kind, label, shift, style in curves:
        chosen = [
            r for r in rows if r["kind"] == kind and math.isfinite(_number(r, metric))
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
    """Makes the y axis logarithmic, with readable ticks, if the values span a wide range."""
    if values and min(values) > 0 and max(values) > 5 * min(values):
        axes.set_yscale("log")
        powers = math.log10(max(values) / min(values))
        multiples = next(each for most, each in _MULTIPLES if powers <= most)
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=multiples))
        axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(ticker.NullLocator())


def _number(row: Mapping[str, str], field: str) -> float:
    return float(row.get(field) or math.nan)


def _text(metrics: Metrics) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.1f} s"
        if seconds < 10
        else str(datetime.timedelta(seconds=round(seconds)))
    )
