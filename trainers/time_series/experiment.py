"""The experiment of `trainers.series`: evaluates its runs, too."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from etils import epath
from ml_collections import ConfigDict

from trainers.data import co2
from trainers.data.recordings import Facts, SeriesData
from trainers.sequences import models as sequences
from trainers.sequences.experiment import CONFUSION, draw_confusion
from trainers.sequences.layer import LayerExperiment
from trainers.tasks import registry
from trainers.time_series import forecasting, models, simpler
from trainers.time_series.modeling import SeriesModeling
from trainers.time_series.objectives import (
    OBJECTIVES,
    NextStep,
    Numbers,
    Objective,
    Score,
    scikit_metrics,
)
from trainers.time_series.tasks import SeriesTask
from trainers.training import checkpoints, memory
from trainers.training.experiment import (
    DATA,
    PROTOCOL,
    Check,
    ExamplesExperiment,
    Scores,
)
from trainers.training.workdir import RESTORE, WorkdirError, read_record

_FACTS = "facts"  # in the record of a run's data


class SeriesExperiment(LayerExperiment, ExamplesExperiment):
    """The experiment of a model of recordings.

    Args:
        config: the run's config.
        data_dir: the folder of the data's files; None for those of a package.
        path: the run's folder, of which nothing is read.

    Raises:
        ValueError, OSError, ImportError: the data cannot be used.
    """

    examples, contents = "windows", "data"

    def __init__(
        self, config: ConfigDict, data_dir: str | None, path: epath.Path | None = None
    ) -> None:
        del path
        task: Any = registry.get(config.task)
        self._task: SeriesTask = task
        if self.objective is NextStep:
            scikit_metrics()
        self._series: SeriesData = task.load(config, data_dir)
        super().__init__(config, self._series)
        self.check_batch_size()

    def need(self, config: ConfigDict) -> memory.Need:
        """Returns the memory that training on these data takes."""
        facts = self._series.facts
        return sequences.need(
            config,
            facts.window,
            len(facts.channels),
            facts.outputs,
            facts.every_step,
        )

    def build(self) -> keras.Sequential:
        """Returns the model, built."""
        return models.build(self._config, self._series.facts)

    def parameters(self, config: ConfigDict) -> int:
        """Returns the number of parameters of a config's model on these data."""
        facts = self._series.facts
        return sequences.parameters(config, len(facts.channels), facts.outputs)

    @classmethod
    def published_parameters(cls, config: ConfigDict) -> tuple[int, int] | None:
        """Returns those of a config's model and layer; None for the user's own tables."""
        task: Any = registry.get(config.task)
        if task.shape is None:
            return None
        channels, outputs = task.shape(config)
        whole = sequences.parameters(config, channels, outputs)
        return whole, sequences.layer_parameters(config, channels)

    def task(self, model: keras.Sequential) -> SeriesModeling:
        """Returns what the loop trains."""
        objective = self.objective(self._config, self._series)
        return SeriesModeling(model, self._config, self._series, objective)

    @property
    def objective(self) -> type[Objective]:
        """What the network learns."""
        return OBJECTIVES[self._task.objective]

    def record(self) -> dict[str, Any]:
        """Returns what a run's folder keeps of its data, with the scaling and the classes."""
        return super().record() | {_FACTS: self._series.facts._asdict()}

    def introduction(self, model: keras.Sequential) -> str:
        """Returns lines on the data and the model; warns if it cannot see a whole window."""
        data, facts = self._series, self._series.facts
        reach = models.receptive_field(model)
        line = f"{data.summary}, {len(facts.channels)} channels"
        if reach is not None:
            line += f"; receptive field {reach:,} steps"
        lines = [*data.notes, line]
        if reach is not None and reach < facts.window and not facts.every_step:
            lines.append(
                f"warning: of the {facts.window:,} steps of a window the network sees the last "
                f"{reach:,} alone"
            )
        return "\n".join(lines)

    def score_split(self, task: Any, split: str, check: Check) -> Score:
        """Returns the score of a split; a forecast's, beside those of simpler models."""
        score = super().score_split(task, split, check)
        if self._series.levels is not None:
            return self._beside_simpler(split, score)
        if self._has_simpler:
            return self._beside_answers(split, score)
        return score

    def describe(self, split: str, score: Score) -> str:
        """Returns one line: the score of a split, the measure first."""
        measure = self._task.measure
        value = score.values[measure.name]
        parts = [
            f"{split} {measure.name}: {measure.text(value)}{self._task.unit} "
            f"({score.targets:,} {measure.counted})"
        ]
        for name, number in score.values.items():
            if name != measure.name:
                count = score.counts.get(name, "")
                share = name.endswith((measure.name, "accuracy"))
                unit = measure.unit if share else self._task.unit
                text = f"{number:.{measure.decimals}f}{unit}"
                parts.append(f"{name.replace('_', ' ')} {text} {count}".rstrip())
        return ", ".join(parts)

    def numbers(self, split: str, score: Score) -> dict[str, dict[str, Any]]:
        """Returns the numbers of a score; that of test data may have a confusion matrix."""
        numbers = {
            "loss": score.loss,
            self._task.measure.counted: score.targets,
            **score.values,
        }
        if score.confusion is not None and split == "test":
            numbers["confusion"] = score.confusion
        return {PROTOCOL: numbers}

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Tells where simpler models are better; draws the confusion of test recordings."""
        for split, numbers in scores.values.items():
            lines = self._behind(split, numbers[PROTOCOL])
            scores = scores._replace(beside=(*scores.beside, *lines))
        matrix = scores.values.get("test", {}).get(PROTOCOL, {}).get("confusion")
        if matrix is None:
            return scores
        picture = draw_confusion(np.array(matrix), self._series.classes)
        return scores._replace(pictures={CONFUSION: picture})

    def details(self, split: str, score: Score) -> list[str]:
        """Returns a line on each simpler model that is better."""
        return [f"  {line}" for line in self._behind(split, score.values)]

    def _beside_answers(self, split: str, score: Score) -> Score:
        """Returns a score with those of simpler models that read the same windows."""
        targets, values = getattr(self._series, split).targets, dict(score.values)
        for name, predicted in simpler.answers(self._series, split).items():
            if self._series.classes:
                values[f"{name}_accuracy"] = 100 * float(np.mean(predicted == targets))
            else:
                values[name] = self._error(split, predicted)
        return score._replace(values=values)

    def _error(self, split: str, predicted: np.ndarray) -> float:
        """Returns the root mean square error of numbers, one for each window."""
        objective = Numbers(self._config, self._series)
        score = objective.score(split, lambda windows: predicted, lambda series: [])
        return score.values["rmse"]

    @property
    def _has_simpler(self) -> bool:
        """Whether simpler models, of one answer for a window, are scored beside."""
        one_answer = not self._series.facts.every_step
        return one_answer and self._series.levels is None

    def _behind(self, split: str, values: Mapping[str, Any]) -> list[str]:
        """Returns a line if a simpler model is better than the network."""
        if not self._has_simpler:
            return []
        measure = self._task.measure
        own = values[measure.name]
        ending = "_accuracy" if self._series.classes else ""
        others = {
            name: values[name + ending]
            for name in simpler.NAMES
            if name + ending in values
        }
        sign = 1 if measure.higher_is_better else -1
        better = [name for name, value in others.items() if sign * (value - own) > 0]
        if not better:
            return []
        best = max(better, key=lambda name: sign * others[name])
        return [
            f"{split}: the network is behind {', '.join(better)}: {measure.text(own)} against "
            f"{measure.text(others[best])}"
        ]

    @property
    def data(self) -> SeriesData:
        """The recordings."""
        return self._series

    @functools.cached_property
    def _simpler(self) -> Sequence[forecasting.Forecasts]:
        """The forecasts of simpler models."""
        data = self._series
        assert data.levels is not None
        ahead = data.facts.outputs
        train, validation = (
            data.recordings[split][0].target for split in ("train", "validation")
        )
        return (
            forecasting.seasonal_naive(data.levels, ahead, co2.YEAR),
            forecasting.linear(data.levels, train, validation),
        )

    def _beside_simpler(self, split: str, score: Score) -> Score:
        target = self._series.recordings[split][0].target
        objective = Numbers(self._config, self._series)
        values = dict(score.values)
        for name, forecasts in self._simpler:
            simpler = objective.error_score(forecasts[: len(target)], target)
            values[name] = simpler.values["rmse"]
        return score._replace(values=values)


def load_model(path: epath.Path, config: ConfigDict, facts: Facts) -> keras.Sequential:
    """Returns a run's model with its best weights.

    Raises:
        WorkdirError: the folder cannot be used.
    """
    count = sequences.parameters(config, len(facts.channels), facts.outputs)
    memory.check_weights(count)
    model = models.build(config, facts)
    checkpoints.load_best(path, model)
    return model


def saved_record(path: epath.Path) -> tuple[Facts, dict[str, str]]:
    """Returns what a run's folder keeps of its data: the facts, and the checksums.

    Raises:
        WorkdirError: there is no record, or it is damaged.
    """
    file = path / DATA
    record = read_record(file, {"sha256": dict, _FACTS: dict})
    if record is None:
        raise WorkdirError(f"{file} is missing: it has the scaling of the run's data")
    try:
        return Facts.from_json(record[_FACTS]), record["sha256"]
    except TypeError as error:
        raise WorkdirError(
            f"{file} is damaged: `{_FACTS}` are not those of a run. {RESTORE}"
        ) from error


load = SeriesExperiment
