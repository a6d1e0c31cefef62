"""Copy memory and the adding problem: who learns them, with equal parameters, in equal time.

    python -m benchmarks.long_memory --task=adding --csv=adding.csv --plot=adding.png

`TrellisLayer` is that of the task's preset `small`. Keras's LSTM and GRU and keras-tcn get the
number of units that comes nearest to its parameters. All take data, batches, clipping and Adam from
the preset. Each trains for the same processor seconds in training steps, whatever else the machine
does. The first call, which traces and compiles, and evaluation do not count.

Each round has another seed. In the first round each contender trains at every rate of `--rate`, in
the others at the rate that gave it the least validation loss. The CSV keeps all trainings; the same
command goes on with those that are missing.
"""

import csv
import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import report, workers
from benchmarks.contenders import CONTENDERS, OURS
from benchmarks.sizes import nearest_units
from benchmarks.workers import Contender, Facts
from trainers.tasks import config as configs
from trainers.tasks import registry

FLAGS = flags.FLAGS
NAMES = (OURS, "lstm", "gru", "tcn")
TASKS = ("copy_memory", "adding")
SOLVED = 1e-3  # a smaller validation loss is a solution; without memory it is 0.17 in both
CALL = 10  # training steps between two readings of the clock
EVALUATIONS = 30  # in a training


@dataclasses.dataclass(frozen=True)
class Setting:
    """A training: the contender's name, its rate, its seed, its seconds, and the preset."""

    config: Any
    name: str
    rate: float
    seed: int
    budget: float


class Point(NamedTuple):
    """The validation loss of a training after some seconds and steps: a row of the CSV."""

    task: str
    name: str
    units: int
    parameters: int
    rate: float
    seed: int
    budget: float
    seconds: float
    steps: int
    loss: float


# A training, in a process of its own


def contender(setting: Setting) -> Contender:
    """Returns the training as a single step, which learns its points."""
    from trainers.sequences.modeling import SequenceModeling
    from trainers.tasks import sequences
    from trainers.training import loop, optimizers, runs

    config = for_time(setting.config, setting.seed)
    loop.make_deterministic(setting.seed)
    data = sequences.load(config)
    units, model = sized(setting.name, config, data)
    task = SequenceModeling(model, config, data)
    adam = optimizers.Adam(setting.rate)
    trainer = loop.Trainer(task, adam, clip_norm=config.optimizer.clip_norm)
    facts = {"units": units, "parameters": runs.parameters(model)}
    curve: list[tuple[float, int, float]] = []

    def step():
        curve.extend(train(trainer, setting.budget))

    return Contender(step, facts, lambda: {"curve": curve})


def for_time(config: Any, seed: int) -> Any:
    """Returns the preset with whole batches and without an end, for training by the clock."""
    config = config.copy_and_resolve_references().unlock()
    config.seed = seed
    # A shorter last batch would be compiled for in the middle of the training.
    config.data.train -= config.data.train % config.data.batch_size
    config.training.epochs = 1_000_000
    return config.lock()


def sized(name: str, config: Any, data: Any) -> tuple[int, Any]:
    """Returns how many units a contender gets, and its model.

    Args:
        name: one of `NAMES`.
        config: the preset.
        data: what it is built for.
    """
    from trainers.sequences import models
    from trainers.training import runs

    model = models.build(config, data)
    if name == OURS:
        return config.model.units, model
    wanted = runs.parameters(model)

    @functools.cache
    def built(units):
        layer = _layer(name, units, data.train.targets.ndim == 2)
        return models.with_layer(layer, data)

    def count(units):
        return runs.parameters(built(units))

    nearest = nearest_units(count, wanted)
    return nearest, built(nearest)


def _layer(name, units, return_sequences):
    """Returns a peer's layer; keras-tcn has kernel and dilations of the published TCN."""
    if name == "tcn":
        from tcn import TCN

        dilations = [2**level for level in range(8)]
        return TCN(units, 8, dilations=dilations, return_sequences=return_sequences)
    import keras

    layer = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[name]
    return layer(units, return_sequences=return_sequences)


def train(trainer: Any, budget: float) -> Iterable[tuple[float, int, float]]:
    """Trains for `budget` seconds; yields seconds, steps and validation loss now and then."""
    batches, spent, steps = trainer.batches(0), 0.0, 0
    state = trainer.task.initial_state()
    for evaluation in range(1 + EVALUATIONS):
        while not steps or spent < budget * evaluation / EVALUATIONS:
            start = time.process_time()
            trainer.steps(batches, state, CALL)
            spent += time.process_time() - start if steps else 0.0
            steps += CALL
        yield spent, steps, trainer.task.evaluate()["loss"]


# All trainings


def measure(
    config: Any,
    *,
    budget: float,
    rates: Sequence[float],
    seeds: int,
    threads: int,
    path: Path,
) -> tuple[list[Point], dict[str, str]]:
    """Trains what is not in the CSV yet.

    Args:
        config: the preset.
        budget: the seconds of a training.
        rates: the learning rates of the first seed.
        seeds: how many there are.
        threads: how many a training has.
        path: the CSV.

    Returns:
        The points of trainings of this budget, and for each contender that cannot run the reason.
    """
    left_out: dict[str, str] = {}

    def points():
        this = (config.task, budget)
        return [point for point in read(path) if (point.task, point.budget) == this]

    for seed, name in itertools.product(range(1, 1 + seeds), NAMES):
        for rate in rates if seed == 1 else [best_rate(points(), name)]:
            if name in left_out or _has(points(), name, rate, seed):
                continue
            print(f"{CONTENDERS[name][0]}, rate {rate:g}, seed {seed}", flush=True)
            setting = Setting(config, name, rate, seed, budget)
            results, missing = workers.measure(
                {name: contender}, setting, threads=threads, warmup=0, rounds=1
            )
            left_out |= missing
            for result in results.values():
                append(path, setting, result.facts)
    return points(), left_out


def _has(points, name, rate, seed):
    wanted = (name, rate, seed)
    return any((point.name, point.rate, point.seed) == wanted for point in points)


def best_rate(points: Iterable[Point], name: str) -> float | None:
    """Returns the rate of a contender's least validation loss; None without any."""
    mine = [point for point in points if point.name == name]
    finite = [point for point in mine if math.isfinite(point.loss)]
    return min(finite, key=lambda point: point.loss).rate if finite else None


def append(path: Path, setting: Setting, facts: Facts) -> None:
    """Appends a training's points to the CSV."""
    begun = path.exists()
    sizes = (facts["units"], facts["parameters"], setting.rate, setting.seed, setting.budget)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if not begun:
            writer.writerow(Point._fields)
        for seconds, steps, loss in facts["curve"]:
            reached = (f"{seconds:.3f}", steps, f"{loss:.4g}")
            writer.writerow((setting.config.task, setting.name, *sizes, *reached))


def read(path: Path) -> list[Point]:
    """Returns the points of a CSV; none without a file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        kinds = Point.__annotations__
        points = []
        for row in csv.DictReader(file):
            values = {name: kinds[name](value) for name, value in row.items()}
            points.append(Point(**values))
    return points


def chosen(points: Iterable[Point], name: str) -> list[list[Point]]:
    """Returns a contender's trainings at its best rate, one a seed."""
    points = list(points)
    rate = best_rate(points, name)
    mine = [point for point in points if point.name == name and point.rate == rate]
    seeds = sorted({point.seed for point in mine})
    trainings = []
    for seed in seeds:
        trainings.append([point for point in mine if point.seed == seed])
    return trainings


def row(name: str, trainings: Sequence[Sequence[Point]]) -> Facts:
    """Returns the row of a contender's trainings of one task."""
    lasts = [training[-1] for training in trainings]
    rates = [(last.steps - CALL) / last.seconds for last in lasts]
    return {
        "name": name,
        "title": CONTENDERS[name][0],
        **{field: getattr(lasts[0], field) for field in ("units", "parameters", "rate")},
        "steps_per_second": statistics.median(rates),
        "losses": [min(point.loss for point in training) for training in trainings],
        "solved": [_first_solution(training) for training in trainings],
    }


def _first_solution(training):
    """Returns the seconds after which a training had solved its task; None if it never did."""
    return next((point.seconds for point in training if point.loss < SOLVED), None)


def table(found: Facts) -> str:
    """Returns the result as a Markdown table."""
    columns: report.Columns = {
        "": lambda row: row["title"],
        "units": lambda row: str(row["units"]),
        "parameters": lambda row: report.number(row["parameters"]),
        "learning rate": lambda row: f"{row['rate']:g}",
        "steps/s": lambda row: report.number(row["steps_per_second"], 1),
        "least validation loss: min, median, max": _losses,
        "solved": lambda row: f"{len(_solved(row))} of {len(row['solved'])}",
        "seconds to that": _seconds_to_solution,
    }
    return report.table(found["rows"], columns)


def _losses(row):
    return "{min:.1e}, **{median:.1e}**, {max:.1e}".format(**report.spread(row["losses"]))


def _solved(row):
    return [seconds for seconds in row["solved"] if seconds is not None]


def _seconds_to_solution(row):
    return f"{statistics.median(_solved(row)):.0f}" if _solved(row) else ""


def memoryless(config: Any) -> float:
    """Returns the least loss of a layer without memory; see `trainers.data.long_memory`."""
    if config.task == "adding":
        return 1 / 6
    return 10 * math.log(8) / (config.data.steps + 20)


def draw(points: Sequence[Point], path: Path) -> None:
    """Draws a panel a task: the seeds thin, their median thick, no memory dotted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = list(dict.fromkeys(point.task for point in points))
    size = (5 * len(tasks), 3.8)
    figure, panels = pyplot.subplots(1, len(tasks), figsize=size, squeeze=False)
    for axes, task in zip(panels[0], tasks, strict=True):
        of_task = [point for point in points if point.task == task]
        for index, name in enumerate(NAMES):
            _draw_contender(axes, chosen(of_task, name), CONTENDERS[name][0], f"C{index}")
        axes.axhline(memoryless(configs.load(task, "small")), color="gray", ls=":")
        measure = registry.get(task).measure.name.replace("_", " ")
        axes.set(yscale="log", title=task, xlabel="seconds of training", ylabel=measure)
        axes.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_contender(axes, trainings, title, color):
    import numpy as np

    if not trainings:
        return
    until = min(training[-1].seconds for training in trainings)
    grid = np.linspace(0, until, 4 * EVALUATIONS)
    on_grid = []
    for training in trainings:
        seconds = [point.seconds for point in training]
        losses = [point.loss for point in training]
        axes.plot(seconds, losses, color=color, lw=0.6, alpha=0.6)
        on_grid.append(np.interp(grid, seconds, losses))
    median = np.median(on_grid, axis=0)
    axes.plot(grid, median, color=color, lw=2, label=title)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_enum("task", None, TASKS, "What to learn.", required=True)
    flags.DEFINE_string("csv", None, "A file for all points, to go on with.", required=True)
    flags.DEFINE_float("seconds", 30, "Of each training.", lower_bound=1e-3)
    flags.DEFINE_multi_float("rate", [2e-3, 1e-2], "Learning rates of the first round.")
    flags.DEFINE_string("plot", None, "A file for a picture of all points in the CSV.")
    report.define_flags(rounds=3)


def main(argv: Sequence[str]) -> int:
    """Trains, and prints the table; returns the exit status."""
    here = report.begin(argv)
    path = Path(FLAGS.csv)
    points, left_out = measure(
        configs.load(FLAGS.task, "small"),
        budget=FLAGS.seconds,
        rates=FLAGS.rate,
        seeds=FLAGS.rounds,
        threads=here["threads"],
        path=path,
    )
    rows = []
    for name in NAMES:
        trainings = chosen(points, name)
        if trainings:
            rows.append(row(name, trainings))
    found = {**here, "rows": rows, "left_out": report.by_title(left_out, CONTENDERS)}
    report.end(found, table(found))
    if FLAGS.plot:
        draw(read(path), Path(FLAGS.plot))
    return int(OURS in left_out)


if __name__ == "__main__":
    define_flags()
    app.run(main)
