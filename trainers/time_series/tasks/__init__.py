"""Tasks on recordings: exercises, anomalies among them, a forecast, and files of the user's own."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from configs import anomaly, baselines, csv_series, forecast, watch
from trainers.data import co2, recordings, table_series, tables, terminal
from trainers.data import watch as exercises
from trainers.data.names import unknown
from trainers.data.recordings import Recording, SeriesData
from trainers.data.sequences import SPLITS
from trainers.data.table_series import Columns, Series, Table
from trainers.kinds.measures import Measure
from trainers.kinds.search import SERIES, Space
from trainers.kinds.task import EXPORT, REPORT, SCORE, TEXT_FIELDS, Task
from trainers.models.fields import (
    A_CALL,
    COUNT,
    RATE,
    SHARE,
    TEXT,
    Condition,
    Field,
    Rule,
    Values,
    integer,
    one_of,
    or_none,
)
from trainers.models.kinds import stem_rules

STEP = "step"  # `data.answer`: each step has a label, not each series
_BY_SERIES, _BY_TIME, _BY_COLUMN = "series", "time", "column"
WINDOW_ACCURACY = Measure("accuracy", 2, "windows", higher_is_better=True, unit=" %")
ANSWER_ACCURACY = Measure("accuracy", 2, "answers", higher_is_better=True, unit=" %")
AVERAGE_PRECISION = Measure(
    "average_precision", 2, "windows", higher_is_better=True, unit=" %"
)
ROOT_MEAN_SQUARE = Measure("rmse", 4, "answers")
_FIELDS: dict[str, Field] = {
    # None: the steps of the longest training recording
    "data.window": or_none(COUNT),
    # Steps between two windows of a recording; None: as many as a window has.
    "data.hop": or_none(COUNT),
    "evaluation.batch_size": A_CALL,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesTask(Task):
    """Recordings of several channels, with one answer each or one a step.

    Attributes:
        load: takes the run's config and `data_dir`.
        objective: what the network learns: one of `trainers.time_series.objectives.OBJECTIVES`.
        unit: the text after a predicted number.
        one_answer: whether a series may have one answer, rather than one at each step.
        shape: takes the config; returns the channels of a recording, and how many numbers the
            network returns for one target. None: the user's files say it.
    """

    program = "trainers.series"
    folder = "trainers.time_series"
    kind_fields = _FIELDS
    unread_fields = TEXT_FIELDS
    next_commands = (
        SCORE,
        (
            "the answers as a table",
            "trainers.series --mode=predict {workdir} --output={name}.csv {data}",
        ),
        EXPORT,
        REPORT,
    )

    load: Callable[[Any, str | None], SeriesData]
    objective: str
    unit: str = ""
    one_answer: bool = True
    shape: Callable[[Any], tuple[int, int]] | None = None
    search: Space = dataclasses.field(default_factory=lambda: SERIES)
    baselines: Mapping[str, dict] = dataclasses.field(
        default_factory=lambda: baselines.SERIES
    )

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of the levels and of a stem."""
        yield from stem_rules(values)
        every_step = not self.one_answer or values.get("data.answer") == STEP
        expected = (
            "() where each step has an answer, of which strides would leave out some"
        )
        stem = values["model.stem.strides"] and every_step
        yield stem, "model.stem.strides", expected
        expected = f"() for --task={self.name}, which trains all levels at once"
        yield values["training.depths"], "training.depths", expected


def names(text: str) -> tuple[str, ...]:
    """Returns the names in a value of the config, which commas separate."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def columns(config: Any) -> Columns:
    """Returns the columns of the user's tables that a config names."""
    data = config.data
    return Columns(
        names(data.channels),
        data.id,
        data.time,
        data.label,
        data.split_column if data.split == _BY_COLUMN else "",
    )


def _people(config: Any) -> tuple[int, dict[str, tuple[int, ...]]]:
    """Returns the number of the fold, and the people of each split."""
    fold = config.data.fold
    fold = config.seed % exercises.FOLDS if fold is None else fold
    return fold, exercises.people(fold)


def _fold_note(fold: int, people: dict[str, tuple[int, ...]]) -> str:
    test, validation = (
        " and ".join(map(str, people[split])) for split in ("test", "validation")
    )
    return f"fold {fold}: people {test} test, {validation} validate, the others train"


def _watch(config: Any, data_dir: str | None) -> SeriesData:
    """Loads the exercises, with a fold's people in each split."""
    recorded, (fold, people) = exercises.read(data_dir), _people(config)
    parts = {
        split: [
            Recording(exercise.name, exercise.values, _class(exercise.exercise))
            for exercise in recorded
            if exercise.person in people[split]
        ]
        for split in SPLITS
    }
    return recordings.assemble(
        parts,
        exercises.CHANNELS,
        window=config.data.window,
        hop=config.data.hop,
        classes=exercises.EXERCISES,
        period=exercises.PERIOD,
        notes=(_fold_note(fold, people),),
    )


def _class(exercise: str) -> np.ndarray:
    return np.array(exercises.EXERCISES.index(exercise), "int32")


def _anomaly(config: Any, data_dir: str | None) -> SeriesData:
    """Loads the exercises; those that are not normal are in validation and test data alone."""
    normal = names(config.data.normal)
    for name in normal:
        if name not in exercises.EXERCISES:
            raise ValueError(unknown("exercise", name, exercises.EXERCISES))
    if not normal or len(set(normal)) == len(exercises.EXERCISES):
        raise ValueError(
            "`config.data.normal` must have some of the exercises, and not all: "
            f"{', '.join(exercises.EXERCISES)}. Received: config.data.normal={config.data.normal!r}"
        )
    recorded, (fold, people) = exercises.read(data_dir), _people(config)
    parts: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    for exercise in recorded:
        strange = np.array(exercise.exercise not in normal, "int32")
        (split,) = (name for name in SPLITS if exercise.person in people[name])
        if split != "train" or not strange:
            parts[split].append(Recording(exercise.name, exercise.values, strange))
    made = recordings.assemble(
        parts,
        exercises.CHANNELS,
        window=config.data.window,
        hop=config.data.hop,
        outputs=2 * len(exercises.CHANNELS),
        every_step=True,
        period=exercises.PERIOD,
        notes=(
            _fold_note(fold, people),
            f"normal are {', '.join(normal)}; the other exercises are the anomalies",
        ),
    )
    if config.data.ahead >= made.facts.window:
        raise ValueError(
            f"`config.data.ahead` must be below {made.facts.window}, the steps of a window. "
            f"Received: config.data.ahead={config.data.ahead}"
        )
    return made


def _forecast(config: Any, data_dir: str | None) -> SeriesData:
    """Loads the weeks, of which the last are tested and those before them validate."""
    return forecast_data(config, co2.read(data_dir))


def forecast_data(config: Any, series: co2.Series) -> SeriesData:
    """Returns the data of a forecast: each split is the series up to its end.

    A forecast belongs to the split in which it is made, and its target lies there too.

    Args:
        config: the run's config.
        series: the numbers of the weeks.

    Raises:
        ValueError: there are fewer weeks than the splits need.
    """
    data, weeks = config.data, len(series.values)
    ends = [weeks - data.test - data.validation, weeks - data.test, weeks]
    least = co2.YEAR + data.ahead + 1
    if ends[0] < least:
        raise ValueError(
            f"`config.data.validation` and `config.data.test` must leave {least} of {weeks:,} "
            f"weeks to train on. Received: config.data.validation={data.validation}, "
            f"config.data.test={data.test}"
        )
    levels = co2.filled(series.values)
    targets = co2.later(series.values, levels, data.ahead)
    parts = {}
    for split, begin, end in zip(SPLITS, [0, *ends], ends, strict=False):
        target = _within(targets, begin, end)
        values = co2.changes(levels[:end])
        days = [day.isoformat() for day in series.dates[:end]]
        parts[split] = [Recording(split, values, target, days)]
    return recordings.assemble(
        parts,
        co2.CHANNELS,
        window=data.window,
        hop=data.hop,
        levels=levels,
        notes=(
            ", ".join(f"{split} to {parts[split][0].times[-1]}" for split in SPLITS),
        ),
    )


def _within(targets: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Returns targets `[end, H]`: NaN where a forecast is not made, or does not end, in a split."""
    week = np.arange(end)[:, None]
    target_week = week + np.arange(1, 1 + targets.shape[1])
    return np.where(
        (week >= begin) & (target_week < end), targets[:end], np.nan
    ).astype("float32")


def load_tables(config: Any, data_dir: str | None, *, numbers: bool) -> SeriesData:
    """Loads a folder of the user's own tables; without the field `answer`, with one a step."""
    data, roles = config.data, columns(config)
    if data_dir is None:
        raise ValueError(
            f"--data_dir must be a folder with CSV or Parquet files for --task={config.task}. "
            "Received: no --data_dir"
        )
    _check_roles(data, roles)
    table = table_series.read("data_dir", data_dir, roles)
    every_step = data.get("answer", STEP) == STEP
    period = table_series.period(table, roles, data.tolerance)
    parts = _dealt(config, table, every_step)
    classes = () if numbers else table_series.class_names(parts["train"], roles.label)
    made = {
        split: table_series.recordings(parts[split], classes, roles.label, every_step)
        for split in SPLITS
    }
    return recordings.assemble(
        made,
        table.channels,
        window=data.window,
        hop=data.hop,
        classes=classes,
        period=period,
        notes=_table_notes(made, classes),
    )


def _check_roles(data: Any, roles: Columns) -> None:
    """Raises ValueError if a column that is needed has no name, or one has two meanings."""
    needed = {"label": True, "time": data.split == _BY_TIME}
    needed["split_column"] = data.split == _BY_COLUMN
    for field, needs in needed.items():
        if needs and not data[field]:
            raise ValueError(
                f"`config.data.{field}` must name a column of the files. Received: "
                f"config.data.{field}=''"
            )
    repeated = tables.first_repeated((*roles.channels, *roles.others))
    if repeated is not None:
        raise ValueError(
            "config.data must give each column one meaning. Received: "
            f"{repeated!r} twice among its channels, id, time, label and split_column"
        )


def _dealt(config: Any, table: Table, every_step: bool) -> dict[str, list[Series]]:
    data = config.data
    shares = {"validation": data.validation_share, "test": data.test_share}
    if data.split == _BY_COLUMN:
        return table_series.by_column(table)
    if data.split == _BY_TIME:
        deal = table_series.by_time if every_step else table_series.by_start
        return deal(table, shares)
    return table_series.by_series(table, shares, config.seed)


def _table_notes(
    parts: dict[str, list[Recording]], classes: Sequence[str]
) -> tuple[str, ...]:
    """Returns lines on the series of each split, the classes, and the rows that are skipped."""
    counts = ", ".join(f"{len(parts[split]):,} {split}" for split in SPLITS)
    notes = [f"series: {counts}"]
    if classes:
        notes.append(terminal.line(f"classes: {', '.join(classes)}"))
    every = [recording for split in SPLITS for recording in parts[split]]
    rows = sum(len(recording.values) for recording in every)
    gaps = rows - sum(int(recordings.whole(r.values).sum()) for r in every)
    if gaps:
        notes.append(f"{gaps:,} of {rows:,} rows have an empty cell and are skipped")
    return tuple(notes)


_CROP: dict[str, Field] = {
    # Up to which share of a window's steps, the last ones, a training step leaves out.
    "data.crop": RATE._replace(default=0.0),
}
_FOLD_FIELDS: dict[str, Field] = {
    # None: the seed modulo 5, so that seeds 0 to 14 are each fold three times
    "data.fold": or_none(integer(0, exercises.FOLDS - 1)),
}
TABLE_FIELDS: dict[str, Field] = {
    **_CROP,
    "data.channels": TEXT,  # names with commas; "": all columns without another meaning
    "data.id": TEXT,  # "": each file is one series
    "data.time": TEXT,  # "": the rows are in order
    "data.label": TEXT,
    "data.answer": one_of("series", STEP),
    "data.split": one_of(_BY_SERIES, _BY_TIME, _BY_COLUMN),
    "data.split_column": TEXT._replace(default=""),
    "data.validation_share": SHARE._replace(default=0.15),
    "data.test_share": SHARE._replace(default=0.15),
    "data.tolerance": RATE,  # of the time between two rows
}
TABLE_CONDITIONS = (
    Condition("data.crop", "data.answer", (_BY_SERIES,)),
    Condition("data.split_column", "data.split", (_BY_COLUMN,)),
    Condition("data.validation_share", "data.split", (_BY_SERIES, _BY_TIME)),
    Condition("data.test_share", "data.split", (_BY_SERIES, _BY_TIME)),
)

WATCH = SeriesTask(
    name="watch",
    presets=watch.PRESETS,
    load=_watch,
    objective="classes",
    shape=lambda config: (len(exercises.CHANNELS), len(exercises.EXERCISES)),
    measure=WINDOW_ACCURACY,
    data="exercises of the shoulder, recorded by a smartwatch (Burns et al. 2018, seglearn)",
    licence="BSD 3-Clause, as the package seglearn",
    folds=exercises.FOLDS,
    fields={**_CROP, **_FOLD_FIELDS},
)

ANOMALY = SeriesTask(
    name="anomaly",
    presets=anomaly.PRESETS,
    load=_anomaly,
    objective="next_step",
    one_answer=False,
    shape=lambda config: (len(exercises.CHANNELS), 2 * len(exercises.CHANNELS)),
    measure=AVERAGE_PRECISION,
    data=WATCH.data,
    licence=WATCH.licence,
    baselines=baselines.ANOMALY,
    folds=exercises.FOLDS,
    fields={**_FOLD_FIELDS, "data.normal": TEXT, "data.ahead": COUNT},
)

FORECAST = SeriesTask(
    name="forecast",
    presets=forecast.PRESETS,
    load=_forecast,
    objective="numbers",
    one_answer=False,
    measure=ROOT_MEAN_SQUARE,
    unit=f" {co2.UNIT}",
    shape=lambda config: (len(co2.CHANNELS), config.data.ahead),
    data="weekly carbon dioxide over Mauna Loa, 1958 to 2001 (Keeling and Whorf 2004, statsmodels)",
    licence="public domain",
    fields={"data.ahead": COUNT, "data.validation": COUNT, "data.test": COUNT},
)

CSV = SeriesTask(
    name="csv",
    presets=csv_series.PRESETS,
    load=functools.partial(load_tables, numbers=False),
    objective="classes",
    measure=ANSWER_ACCURACY,
    data="tables of the user's own",
    fields=TABLE_FIELDS,
    conditions=TABLE_CONDITIONS,
)

CSV_NUMBERS = SeriesTask(
    name="csv_numbers",
    presets=csv_series.PRESETS,
    load=functools.partial(load_tables, numbers=True),
    objective="numbers",
    measure=ROOT_MEAN_SQUARE,
    data=CSV.data,
    fields=TABLE_FIELDS,
    conditions=TABLE_CONDITIONS,
)
