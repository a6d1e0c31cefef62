"""What a trained model says of recordings, as a table."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from trainers.data import co2, recordings, table_series, tables
from trainers.data.files import write_atomically
from trainers.data.recordings import Facts, Recording
from trainers.data.table_series import Columns
from trainers.tasks import registry, run_folders
from trainers.time_series import experiment, objectives, tasks
from trainers.time_series.models import Runner
from trainers.time_series.tasks import SeriesTask
from trainers.training import pages

Row = Sequence[Any]


class Trained(NamedTuple):
    """A run's best model.

    Attributes:
        config: the run's config.
        facts: what the model knows of its data.
        runner: runs the model.
    """

    config: ConfigDict
    facts: Facts
    runner: Runner

    @property
    def task(self) -> SeriesTask:
        """The run's task."""
        task: Any = registry.get(self.config.task)
        return task


def write(
    path: epath.Path, data_dir: str | None, source: str | None, output: epath.Path
) -> str:
    """Writes what a run's best model says of recordings; returns a line about it.

    Args:
        path: the run's folder.
        data_dir: the folder of the data's files, whose test recordings are predicted.
        source: a folder of tables, whose recordings are predicted in their place; or None.
        output: the CSV file, which must not exist.

    Raises:
        ValueError, OSError, WorkdirError: something cannot be used.
    """
    config, (facts, _) = run_folders.load_config(path), experiment.saved_record(path)
    if source is None:
        loaded = experiment.SeriesExperiment(config, data_dir)
        loaded.check(path)
        chosen, levels = loaded.data.recordings["test"], loaded.data.levels
    else:
        chosen, levels = _tables(config, facts, source)
    model = experiment.load_model(path, config, facts)
    trained = Trained(config, facts, Runner(model, facts, config.evaluation.batch_size))
    lines = [*_lines(trained, chosen, levels)]
    text = pages.csv_text(lines)
    write_atomically(
        output, lambda file: file.write(text.encode()), lambda: refuse_existing(output)
    )
    return f"{len(lines) - 1:,} rows in {output}"


def refuse_existing(output: epath.Path) -> None:
    """Raises ValueError if a file is there already."""
    if output.exists():
        raise ValueError(
            f"--output must be a new file: none is overwritten. Received: --output={output}"
        )


def _tables(
    config: ConfigDict, facts: Facts, source: str
) -> tuple[Sequence[Recording], np.ndarray | None]:
    """Returns the recordings in a folder; those of a forecast, with the series itself."""
    task = registry.get(config.task)
    if task is tasks.FORECAST:
        return _weeks(source)
    columns, tolerance = Columns(()), 0.0
    if tasks.TABLE_FIELDS.keys() & task.fields.keys():
        columns, tolerance = tasks.columns(config), config.data.tolerance
    columns = columns._replace(channels=facts.channels, label="", split="")
    table = table_series.read("input", source, columns)
    if columns.time and facts.period is not None:
        table_series.check_period(table, columns, facts.period, tolerance)
    return table_series.without_labels(table), None


def _weeks(source: str) -> tuple[Sequence[Recording], np.ndarray]:
    """Returns the one series of a forecast, and its numbers without gaps."""
    paths = tables.find("input", source)
    if len(paths) > 1:
        raise ValueError(
            "--input must be a folder with one table, which is forecast. Received: "
            f"--input={source} with {len(paths)}"
        )
    series = co2.parse(paths[0])
    levels = co2.filled(series.values)
    days = [day.isoformat() for day in series.dates]
    values = co2.changes(levels)
    return [Recording(paths[0].stem, values, np.array(0.0, "float32"), days)], levels


def _lines(
    trained: Trained, chosen: Sequence[Recording], levels: np.ndarray | None
) -> Iterator[Row]:
    """Yields the titles of the table, and its rows."""
    if levels is not None:
        yield from _forecast(trained, chosen[0], levels)
    elif trained.task.objective == "next_step":
        yield from _surprises(trained, chosen)
    elif trained.facts.every_step:
        yield from _step_answers(trained, chosen)
    else:
        yield from _answers(trained, chosen)


def _answers(trained: Trained, chosen: Sequence[Recording]) -> Iterator[Row]:
    """Yields one answer for each recording."""
    window, hop = trained.facts.window, trained.config.data.hop
    no_target = np.array(0.0, "float32")
    whole = [recording._replace(target=no_target) for recording in chosen]
    examples, owners = recordings.cut(whole, window, hop or window)
    outputs = trained.runner.windows(examples.inputs)
    if trained.facts.classes:
        outputs = objectives.log_softmax(outputs)
    places, means = objectives.by_owner(owners, outputs)
    yield ["id", *_answer_titles(trained.facts)]
    for place, mean in zip(places, means, strict=True):
        yield [chosen[place].name, *_answer(trained.facts, mean)]


def _step_answers(trained: Trained, chosen: Sequence[Recording]) -> Iterator[Row]:
    """Yields one answer for each step that is no gap."""
    streamed = trained.runner.streams([recording.values for recording in chosen])
    yield ["id", _step_title(chosen), *_answer_titles(trained.facts)]
    for recording, outputs in zip(chosen, streamed, strict=True):
        for step in np.flatnonzero(recordings.whole(recording.values)):
            answer = _answer(trained.facts, outputs[step])
            yield [recording.name, _time(recording, step), *answer]


def _surprises(trained: Trained, chosen: Sequence[Recording]) -> Iterator[Row]:
    """Yields the surprise of each step that has one."""
    ahead = trained.config.data.ahead
    scores = objectives.step_scores(
        trained.facts, ahead, chosen, trained.runner.streams
    )
    yield ["id", _step_title(chosen), "score"]
    for recording, steps in zip(chosen, scores, strict=True):
        for step in np.flatnonzero(np.isfinite(steps)):
            yield [recording.name, _time(recording, step), _number(steps[step])]


def _forecast(trained: Trained, series: Recording, levels: np.ndarray) -> Iterator[Row]:
    """Yields the forecasts of the weeks after the last one."""
    changes = trained.runner.streams([series.values])[0][-1]
    last = datetime.date.fromisoformat(series.times[-1])
    yield ["date", "weeks_ahead", "forecast"]
    for week, change in enumerate(changes, 1):
        day = last + datetime.timedelta(days=7 * week)
        yield [day.isoformat(), week, _number(levels[-1] + change)]


def _answer_titles(facts: Facts) -> list[str]:
    return ["answer", *(f"probability_{name}" for name in facts.classes)]


def _answer(facts: Facts, outputs: np.ndarray) -> list[Any]:
    """Returns a class and the probability of each, or a number."""
    if not facts.classes:
        return [_number(outputs[0])]
    probabilities = np.exp(objectives.log_softmax(outputs))
    return [facts.classes[int(outputs.argmax())], *map(_number, probabilities)]


def _step_title(chosen: Sequence[Recording]) -> str:
    return "time" if chosen[0].times else "step"


def _time(recording: Recording, step: Any) -> Any:
    return recording.times[step] if recording.times else step


def _number(value: float) -> str:
    return f"{value:.6g}"
