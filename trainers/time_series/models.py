"""Models of recordings: their scaling, a sequence layer, a dense layer. They stream."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis import TrellisClassifier
from keras_trellis.models import stem
from keras_trellis.types import Tensor
from trainers.baselines.projected import Projected
from trainers.data.recordings import Facts, by_length
from trainers.models import layers
from trainers.models.kinds import stem_sizes
from trainers.sequences.layer import sequence_layer
from trainers.sequences.models import units


def build(config: ConfigDict, facts: Facts) -> keras.Sequential:
    """Returns the model of a config, built: `[B, T, p]` to `[B, outputs]` or `[B, T, outputs]`.

    It has the scaling of the training recordings in it, before the layer and, for numbers, after
    it. A stem, and then the dense layer of `config.model.embedding_units`, stand before
    the sequence layer.

    Raises:
        ValueError: an argument of the model is not valid.
    """
    settings = config.model
    layer = layers.build(
        settings, units(config), seed=config.seed, dropout=settings.dropout
    )
    layer.return_sequences = facts.every_step
    variance = np.square(facts.deviation)
    stack = [
        keras.Input([None, len(facts.channels)]),
        keras.layers.Normalization(
            mean=facts.mean, variance=variance, dtype="float32", name="scaling"
        ),
        *stem.convolutions(stem_sizes(settings), settings.dtype),
    ]
    if (width := settings.embedding_units) is not None:
        dtype = settings.dtype
        stack.append(keras.layers.Dense(width, dtype=dtype, name="projection"))
    stack.append(layer)
    if rate := settings.output_dropout:
        stack.append(keras.layers.Dropout(rate, seed=config.seed, name="dropout"))
    # In float32 whatever the layer computes in: a softmax of bfloat16 loses digits.
    stack.append(keras.layers.Dense(facts.outputs, dtype="float32", name="dense"))
    if facts.offset:
        scale, offset = facts.scale, list(facts.offset)
        rescaling = keras.layers.Rescaling(scale, offset, dtype="float32", name="units")
        stack.append(rescaling)
    return keras.Sequential(stack, name="series")


def run(
    model: keras.Sequential,
    sequences: Tensor,
    mask: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Returns the outputs of sequences.

    Args:
        model: the model.
        sequences: `[B, T, p]`, without NaN.
        mask: `[B, T]`, true at the steps that are not skipped; without one, long sequences of
            which only the last output is needed cost less.
        training: whether to drop.
    """
    if mask is None:
        return model(sequences, training=training)
    # A model would warn that it hands the mask on to nobody.
    before, layer, after = parts(model)
    scaled = _through([part for part in before if part.name == "scaling"], sequences)
    features, mask = stem.read(convolutions(model), scaled, mask)
    features = _through(
        [part for part in before if part.name == "projection"], features
    )
    features = layer(features, mask=mask, training=training)
    for part in after:
        is_dropout = isinstance(part, keras.layers.Dropout)
        features = part(features, training=training) if is_dropout else part(features)
    return features


def parts(model: keras.Sequential) -> tuple[list[Any], Any, list[Any]]:
    """Returns what is before a model's sequence layer, the layer, and what is after it."""
    layer = sequence_layer(model)
    place = model.layers.index(layer)
    return model.layers[:place], layer, model.layers[place + 1 :]


def convolutions(model: keras.Sequential) -> list[keras.layers.Conv1D]:
    """Returns the stem of a model."""
    return [part for part in model.layers if isinstance(part, keras.layers.Conv1D)]


def receptive_field(model: keras.Sequential) -> int | None:
    """Returns how many steps an answer depends on; None: all."""
    layer = sequence_layer(model)
    return stem.receptive_field(convolutions(model), layer.receptive_field)


def whole(sequences: Tensor) -> Tensor:
    """Returns the mask `[B, T]` of the steps that have all of their channels."""
    return tf.reduce_all(tf.math.is_finite(sequences), -1)


def without_end(windows: Tensor, shares: Tensor) -> Tensor:
    """Returns windows `[B, W, p]` with NaN at shares `[B, 1]` of their steps, the last ones."""
    present = tf.cast(whole(windows), shares.dtype)
    # The first step stays, and so do gaps and padding.
    kept = tf.maximum(1.0, (1 - shares) * tf.reduce_sum(present, 1, keepdims=True))
    stays = tf.cumsum(present, axis=1) <= tf.math.ceil(kept)
    return tf.where(stays[..., None], windows, float("nan"))


def run_windows(
    model: keras.Sequential, windows: Tensor, gaps: bool, training: bool = False
) -> Tensor:
    """Returns the outputs of windows `[B, W, p]`, whose steps with NaN are skipped.

    Args:
        model: the model.
        windows: the windows.
        gaps: whether there may be such a step.
        training: whether to drop.
    """
    if not gaps:
        return run(model, windows, training=training)
    mask = whole(windows)
    return run(model, without_gaps(windows, mask), mask, training)


def without_gaps(sequences: Tensor, mask: Tensor) -> Tensor:
    """Returns sequences with zeros at the steps that are skipped: NaN would reach gradients."""
    return tf.where(mask[..., None], sequences, 0.0)


class Runner:
    """Runs a model without dropout, over windows or as a stream.

    Args:
        model: the model.
        facts: what it knows of its data.
        size: the number of windows in a call, and of recordings read side by side.
    """

    def __init__(self, model: keras.Sequential, facts: Facts, size: int) -> None:
        self._model, self._chunk, self._size = model, facts.window, size
        self._before, self._layer, self._after = parts(model)
        self._run = tf.function(
            functools.partial(run_windows, model),
            autograph=False,
            reduce_retracing=True,
        )
        self._step = tf.function(self._advance, autograph=False)

    def windows(self, windows: np.ndarray) -> np.ndarray:
        """Returns the outputs of windows `[N, W, p]`."""
        starts = range(0, len(windows), self._size)
        parts = [windows[start : start + self._size] for start in starts]
        outputs = []
        for part in parts:
            gaps = not np.isfinite(part).all()
            outputs.append(self._run(tf.constant(part), gaps).numpy())
        return np.concatenate(outputs)

    def streams(self, recordings: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the outputs `[T, outputs]` at each step of recordings `[T, p]`.

        They are read in chunks of a window's steps, which equal one long pass.
        """
        lengths = [len(values) for values in recordings]
        rows = min(self._size, len(recordings))
        results: dict[int, np.ndarray] = {}
        for places in by_length(lengths, rows):
            outputs = self._group([recordings[place] for place in places], rows)
            for place, output in zip(places, outputs, strict=False):
                results[place] = output[: lengths[place]]
        return [results[place] for place in range(len(recordings))]

    def _group(self, recordings: Sequence[np.ndarray], rows: int) -> np.ndarray:
        longest = max(map(len, recordings))
        chunks = -(-longest // self._chunk)
        shape = (rows, chunks * self._chunk, recordings[0].shape[1])
        padded = np.full(shape, np.nan, "float32")
        for row, values in enumerate(recordings):
            padded[row, : len(values)] = values
        cache, outputs = self._layer.get_initial_cache(rows), []
        for chunk in np.split(padded, chunks, axis=1):
            output, cache = self._step(tf.constant(chunk), cache)
            outputs.append(output.numpy())
        return np.concatenate(outputs, 1)

    def _advance(self, chunk: Tensor, cache: Any) -> tuple[Tensor, Any]:
        mask = whole(chunk)
        inputs = _through(self._before, without_gaps(chunk, mask))
        features, cache = self._layer.stream(inputs, cache, mask)
        return _through(self._after, features), cache


def _through(parts: Sequence[Callable], tensor: Tensor) -> Tensor:
    """Returns what layers make of a tensor, one after the other, without dropout."""
    for part in parts:
        tensor = part(tensor)
    return tensor


def scaled_steps(sequences: Tensor, facts: Facts) -> Tensor:
    """Returns sequences `[..., p]` by the scaling of the training recordings."""
    mean, deviation = (
        np.array(values, "float32") for values in (facts.mean, facts.deviation)
    )
    return (sequences - mean) / deviation


def classifier(
    model: keras.Sequential, facts: Facts
) -> tuple[TrellisClassifier, Callable[[Tensor], Tensor]]:
    """Returns a model of one class for each recording without what comes before its layer.

    Args:
        model: the model.
        facts: what it knows of its data.

    Returns:
        the classifier of scaled sequences, and what scales sequences `[B, T, p]`. That has numbers
        in place of variables, so that an export holds them.
    """
    layer, before = sequence_layer(model), convolutions(model)
    sizes = [(part.filters, *part.kernel_size, *part.strides) for part in before]
    projections = [part for part in model.layers if part.name == "projection"]
    for projection in projections:
        layer = Projected(layer, projection.units)
    made = TrellisClassifier(len(facts.classes), layer, stem=sizes)
    made.build((None, None, len(facts.channels)))
    copies = [*made.convolutions, *(layer.dense for _ in projections), made.dense]
    originals = [*before, *projections, model.get_layer("dense")]
    for copy, original in zip(copies, originals, strict=True):
        copy.set_weights(original.get_weights())
    return made, functools.partial(scaled_steps, facts=facts)
