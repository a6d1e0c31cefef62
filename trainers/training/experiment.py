"""What a run trains and measures, whatever it is."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
from etils import epath
from ml_collections import ConfigDict

from trainers.training import memory

if TYPE_CHECKING:  # for names alone, of packages that not every machine has
    from matplotlib import figure

    from trainers.training.trainer import Task

Check = Callable[[], None]
"""Raises if the run must stop; it is called between parts of the work."""

SPLITS = ("validation", "test")  # that are scored
PROTOCOL = "exact"  # of scores for which there is only one


class Scores(NamedTuple):
    """The scores of a finished run.

    Attributes:
        summary: the scores in words.
        values: numbers by split, protocol and name.
        pictures: figures by file name.
        beside: lines that put the score beside others or explain it, for a person.
    """

    summary: str
    values: dict[str, dict[str, dict[str, Any]]]
    pictures: Mapping[str, figure.Figure] = MappingProxyType({})
    beside: tuple[str, ...] = ()


class Experiment(abc.ABC):
    """Data and a model.

    A subclass loads the data when it is made, and raises ValueError or OSError if they cannot be
    used.

    Args:
        config: the run's config.
    """

    def __init__(self, config: ConfigDict) -> None:
        self._config = config

    @property
    def splits(self) -> Sequence[str]:
        """Those of `SPLITS` that the data have."""
        return SPLITS

    @abc.abstractmethod
    def need(self, config: ConfigDict) -> memory.Need:
        """Returns the memory that training with a config takes on these data."""

    @abc.abstractmethod
    def checksums(self) -> dict[str, str]:
        """Returns a checksum of each part of the data, which all workers must share."""

    @abc.abstractmethod
    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError if that many replicas cannot share the batches."""

    @abc.abstractmethod
    def build(self) -> keras.Model:
        """Returns the built model; called in the strategy's scope."""

    @abc.abstractmethod
    def task(self, model: Any) -> Task:
        """Returns what the loop trains; called in the strategy's scope."""

    @abc.abstractmethod
    def keep(self, path: epath.Path) -> None:
        """Binds a run's folder to its data; raises WorkdirError if it has other data."""

    @abc.abstractmethod
    def introduction(self, model: Any) -> str:
        """Returns a line about the data, and what the model sees of them."""

    @abc.abstractmethod
    def describe(self, split: str, score: Any) -> str:
        """Returns the score of a split in words."""

    @abc.abstractmethod
    def numbers(self, split: str, score: Any) -> dict[str, dict[str, Any]]:
        """Returns the numbers of a split's score by protocol and name."""

    def score_split(self, task: Any, split: str, check: Check) -> Any:
        """Returns the score of a split, for `describe` and `numbers`."""
        check()
        return task.score(split)

    def score(self, task: Task, check: Check, splits: Sequence[str]) -> Scores:
        """Scores the model; the test data are read only here.

        Args:
            task: what was trained.
            check: raises if the run must stop.
            splits: some of `SPLITS`.
        """
        scores = {split: self.score_split(task, split, check) for split in splits}
        summary = "; ".join(itertools.starmap(self.describe, scores.items()))
        values = {split: self.numbers(split, score) for split, score in scores.items()}
        return self.complete(Scores(summary, values), task, check)

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Returns scores with what else an experiment makes at the end of a run."""
        del task, check
        return scores

    def observe(self, losses: Sequence[float]) -> None:
        """Takes the validation losses so far, when a run goes on and after each epoch."""
        del losses

    def advice(self) -> list[str]:
        """Returns advice on the config, for a machine without a GPU."""
        return []
