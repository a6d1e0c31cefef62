"""Texts: the windows that a run trains on, its loss, and both protocols of scoring."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import keras
import numpy as np
from etils import epath
from jax import numpy as jnp
from ml_collections import ConfigDict

from trainers.data import streams
from trainers.language import corpora, models, protocols
from trainers.papers.step import State, bound
from trainers.sequences.layer import TrainedLayer
from trainers.tasks import registry
from trainers.training import schedules
from trainers.training.experiment import SPLITS

Scores = dict[str, dict[str, Any]]


class Texts(TrainedLayer):
    """A language model and its texts.

    Args:
        config: the run's config.
        texts: the ids of "train" `[N]`, and of those of `SPLITS` that are there.
        words: the size of the vocabulary.

    Attributes:
        model: the model, built.
        count: the number of training steps that read the text once.
        measure: the task's measure.
        guess: the loss of equal probabilities.

    Raises:
        ValueError: a text is too short for the config's windows or scores.
    """

    def __init__(
        self, config: ConfigDict, texts: Mapping[str, np.ndarray], words: int
    ) -> None:
        data, self._config, self._texts = config.data, config, texts
        self.measure = registry.configured(config).measure
        self._streams = streams.contiguous_streams(texts["train"], data.batch_size)
        length = self._streams.shape[1]
        name = "the training text"
        protocols.check_training_text(name, len(texts["train"]), data)
        for split in texts.keys() & {*SPLITS}:
            size = len(texts[split])
            protocols.check_text(f"the {split} text", size, data, config.evaluation)
        self._sizes: list[int] = []
        windows: Any = streams.Windows(length, data.window, data.horizon)
        if schedules.draws_lengths(config):
            windows = streams.DrawnWindows(length, data.window, config.seed)
            self._sizes = padded_sizes(windows.lengths, data.window)
        self.count = windows.count
        self._bounds = windows.every(schedules.passes(config.training, self.count))
        self.model = models.build(config, words)
        self.guess = math.log(words)
        self._score = jax.jit(self._scored, static_argnames=("protocol",))

    def batch(self, step: int) -> tuple[list[np.ndarray], int]:
        """Returns the batch of a step of the run, and the number of its time steps.

        The batch is ids and targets, `[B, T]`. Windows of drawn lengths are padded to one of two
        lengths, for which the step is compiled; then the number stands behind them.
        """
        start, stop = self._bounds[step % len(self._bounds)].tolist()
        length = stop - start
        ends = (start, stop), (start + 1, stop + 1)
        window = [np.asarray(self._streams[:, begin:end]) for begin, end in ends]
        if not self._sizes:
            return window, length
        size = min(size for size in self._sizes if size >= length)
        padded = [np.pad(each, [(0, 0), (0, size - length)]) for each in window]
        return [*padded, np.array(length, np.int32)], length

    def first_state(self) -> tuple[jax.Array, ...]:
        """Returns what the first batch of a pass begins with: the state, or () if none is kept."""
        if self._config.data.history == "zero":
            return ()
        return tuple(self.model.get_initial_state(self._config.data.batch_size))

    def loss(self, batch: list, carried: tuple, depth: int | None) -> tuple:
        """Returns the loss summed over the scored targets; see `step.Loss`."""
        ids, targets, *length = batch
        horizon, mask = self._config.data.horizon, None
        scored = jnp.float32(targets[:, horizon:].size)
        if length:
            mask = jnp.broadcast_to(jnp.arange(ids.shape[1]) < length[0], ids.shape)
            scored = jnp.sum(mask[:, horizon:], dtype="float32")
        terms, state = self.model.loss_terms(
            ids,
            targets,
            initial_state=carried or None,
            mask=mask,
            training=True,
            discard=horizon,
            depth=depth,
        )
        following = tuple(keras.tree.flatten(state)) if carried else ()
        return sum(terms) * scored, scored, terms.prediction * scored, following

    def validation(self, values: State) -> dict[str, float]:
        """Returns the loss of `trellisnet`, by which the best epoch is chosen, and the measure."""
        nll, tokens = self._sum("trellisnet", values, "validation")
        loss = nll / tokens
        return {"loss": loss, self.measure.name: self.measure.from_nats(loss)}

    def scores(self, values: State, split: str) -> Scores:
        """Returns the scores of a split by protocol, as `trainers.lm` keeps them."""
        scores = {}
        for protocol in protocols.PROTOCOLS:
            nll, tokens = self._sum(protocol, values, split)
            value = self.measure.from_nats(nll / tokens)
            scores[protocol] = {"nll": nll, "tokens": tokens, self.measure.name: value}
        return scores

    def _sum(self, protocol: str, values: State, split: str) -> tuple[float, int]:
        """Returns the nats of a split under a protocol, and the number of scored tokens."""
        data, settings, model = self._config.data, self._config.evaluation, self.model
        ids, total, tokens = self._texts[split], 0.0, 0
        if protocol == "exact":
            rows, pieces = protocols.cut(
                ids,
                settings.exact_batch_size,
                model.receptive_field,
                settings.exact_chunk,
            )
            past = model.get_initial_cache(rows)
            carries = True
        else:
            cut = streams.contiguous_streams(ids, settings.batch_size)
            windows = streams.Windows(cut.shape[1], data.window, data.horizon)
            pieces = (_window(windows, cut, at) for at in range(windows.count))
            past = tuple(model.get_initial_state(len(cut)))
            carries = data.history == "carried"
        for inputs, targets, scored in pieces:
            nll, following = self._score(
                values, inputs, targets, past, protocol=protocol
            )
            past = following if carries else past
            # A text has more tokens than float32 counts.
            total += float(np.asarray(nll, "float64")[scored].sum())
            tokens += int(scored.sum())
        return total, tokens

    def _scored(self, values, ids, targets, past, protocol):
        how = protocols.head_epsilon(protocol, self.model)
        name = "cache" if protocol == "exact" else "initial_state"
        with bound(self.model, values):
            return self.model.score(ids, targets, **{name: past}, **how)


def padded_sizes(lengths: np.ndarray, window: int) -> list[int]:
    """Returns to which lengths windows of drawn lengths are padded.

    Most are about as long as `window`, the others about half as long: these and those have a
    program each.
    """
    short = lengths[4 * lengths < 3 * window]
    return sorted({int(part.max()) for part in (short, lengths) if part.size})


def _window(
    windows: streams.Windows, cut: np.ndarray, at: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a window's ids and targets, and which targets are scored, `[B, T]` each."""
    ids, targets = windows.select(cut, at)
    scored = np.arange(ids.shape[1]) >= windows.discard
    return ids, targets, np.broadcast_to(scored, ids.shape)


def load(config: ConfigDict, data_dir: str | None, path: epath.Path) -> tuple:
    """Loads the texts of a run.

    Returns:
        the `Texts`, and a function that binds the run's folder to them.

    Raises:
        ValueError, OSError, WorkdirError: the texts cannot be used.
    """
    corpus = corpora.load_corpus(config, data_dir, path)
    ids = {split: getattr(corpus, split) for split in ("train", *SPLITS)}
    made = Texts(config, ids, corpus.vocabulary.size)
    return made, lambda: corpora.keep_corpus(path, corpus)


def drawn(config: ConfigDict, count: int, words: int) -> tuple[Texts, int]:
    """Returns a model with a drawn text, and the training steps of a pass over a real one.

    Args:
        config: the run's config.
        count: the tokens of the real training text.
        words: the size of its vocabulary.
    """
    data = config.data
    size = data.batch_size * (4 * data.window + 2)
    ids = np.random.default_rng(0).integers(words, size=size, dtype="int32")
    length = count // data.batch_size
    steps = streams.Windows(length, data.window, data.horizon).count
    return Texts(config, {"train": ids}, words), steps
