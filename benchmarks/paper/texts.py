"""What `run.py` needs of a language task: windows of the text, and both protocols."""

from collections.abc import Callable, Iterable
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from benchmarks.paper.lowering import Lowering, small, states, sums
from trainers.data import streams
from trainers.language import evaluation, experiment, modeling, models
from trainers.training import schedules
from trainers.training.experiment import SPLITS
from trainers.training.trainer import Trainer


class TextRecipe:
    """The programs and data of a language task.

    Args:
        config: the config of a run.
        data_dir: the folder of the task's text files.

    Attributes:
        task: what the loop trains.
        classes: the number of words or symbols.
        scores: the scores that each scoring program sums; the first one drives the schedule.
    """

    scores = {"trellisnet": ["trellisnet"], "exact": ["exact"]}

    def __init__(self, config: ml_collections.ConfigDict, data_dir: str | None) -> None:
        corpus = experiment.load_corpus(config, data_dir)
        self.classes = corpus.vocabulary.size
        self._model = models.build(config, self.classes)
        self.task = modeling.LanguageModeling(
            self._model, config, corpus.train, corpus.validation
        )
        self._config = config
        self._train = corpus.train
        self._scored = {split: getattr(corpus, split) for split in SPLITS}

    def lower_training(
        self, lowering: Lowering, trainer: Trainer
    ) -> dict[str, np.ndarray]:
        """Lowers a step for each length of a window; returns the data.

        Windows of one length have a second one, that of the last. Windows of drawn lengths are
        padded to one of two.
        """
        data = self._config.data
        rows = streams.contiguous_streams(self._train, data.batch_size)
        state = self.task.initial_state()
        if data.lengths == "drawn":
            bounds, sizes = self._drawn(rows.shape[1])
            further = [tf.constant(0)]
            trainer.time_steps = lambda batch: batch[2]
        else:
            windows = streams.Windows(rows.shape[1], data.window, data.horizon)
            bounds = np.array([[windows.bounds(i) for i in range(windows.count)]])
            sizes = sorted({int(stop - start) for start, stop in bounds[0]})
            further = []

        def step(*arguments):
            parts = 2 + len(further)
            metrics, state = trainer.step(arguments[:parts], arguments[parts:])
            return (
                metrics["prediction"],
                metrics["gradient_norm"],
                *tf.nest.flatten(state),
            )

        for size in sizes:
            window = tf.zeros([len(rows), size], "int32")
            lowering.add(f"step_{size}", step, window, window, *further, *state)
        padded = {"train/sizes": np.array(sizes)} if further else {}
        return {
            "train/streams": small(rows),
            "train/bounds": small(bounds),
            **padded,
            **states("train", state),
        }

    def _drawn(self, length: int) -> tuple[np.ndarray, list[int]]:
        """Returns the windows of all epochs, `[epochs, count, 2]`, and the lengths of programs."""
        config = self._config
        windows = streams.DrawnWindows(length, config.data.window, config.seed)
        epochs = schedules.passes(config.training, windows.count)
        bounds = np.stack([windows.epoch_bounds(epoch) for epoch in range(epochs)])
        return bounds, padded_sizes(windows.lengths, config.data.window)

    def lower_scoring(self, lowering: Lowering) -> dict[str, np.ndarray]:
        """Lowers both protocols; returns the texts in pieces."""
        arrays = {}
        for split, ids in self._scored.items():
            arrays |= self._lower_exact(lowering, split, ids)
            arrays |= self._lower_trellisnet(lowering, split, ids)
        return arrays

    def _lower_exact(
        self, lowering: Lowering, split: str, ids: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Lowers the protocol `exact`: chunk after chunk with the exact cache."""
        settings, model = self._config.evaluation, self._model
        rows, chunks = evaluation.cut(
            ids, settings.exact_batch_size, model.receptive_field, settings.exact_chunk
        )
        cache = model.get_initial_cache(rows)
        chunk, state = _chunk(model, cache), tf.nest.flatten(cache)
        return lowering.add_scoring("exact", split, chunk, chunks, state)

    def _lower_trellisnet(
        self, lowering: Lowering, split: str, ids: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Lowers `trellisnet`: windows with a state, without a window's first targets."""
        data, model = self._config.data, self._model
        rows = streams.contiguous_streams(ids, self._config.evaluation.batch_size)
        windows = streams.Windows(rows.shape[1], data.window, data.horizon)
        state = model.get_initial_state(len(rows))

        how = evaluation.head_epsilon("trellisnet", model)

        def window(ids, targets, scored, *state):
            nll, carried = model.score(ids, targets, initial_state=state, **how)
            return sums(scored, nll), *(carried if data.history == "carried" else state)

        pieces = _windows(rows, windows, data)
        return lowering.add_scoring("trellisnet", split, window, pieces, state)


def padded_sizes(lengths: np.ndarray, window: int) -> list[int]:
    """Returns to which lengths windows of drawn lengths are padded.

    Most are about as long as `window`, the others about half as long: these and those have a
    program each.
    """
    short = lengths[4 * lengths < 3 * window]
    return sorted({int(part.max()) for part in (short, lengths) if part.size})


def _chunk(model: Any, like: Any) -> Callable:
    """Returns the function that scores a chunk with a flat cache of the structure `like`."""
    how = evaluation.head_epsilon("exact", model)

    def chunk(ids, targets, scored, *flat):
        cache = tf.nest.pack_sequence_as(like, flat)
        nll, cache = model.score(ids, targets, cache=cache, **how)
        return sums(scored, nll), *tf.nest.flatten(cache)

    return chunk


def _windows(
    rows: np.ndarray, windows: streams.Windows, data: ml_collections.ConfigDict
) -> Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns each window's ids, targets and scored places, all padded to one length."""
    for index in range(windows.count):
        ids, targets = windows.select(rows, index)
        missing = [(0, 0), (0, data.window - ids.shape[1])]
        scored = np.zeros([len(rows), data.window], bool)
        scored[:, data.horizon : ids.shape[1]] = True
        yield np.pad(ids, missing), np.pad(targets, missing), scored
