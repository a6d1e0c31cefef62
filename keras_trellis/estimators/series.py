"""`SeriesClassifier` and `SeriesRegressor`."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from keras_trellis.estimators import inputs
from keras_trellis.layers.trellis import TrellisLayer
from keras_trellis.models.classifier import TrellisClassifier
from keras_trellis.models.streamed.model import StreamedModel

_TAPS = 4
_STEPS_LEFT = 128  # of a series after the stem of stem="auto", about
_ROWS = 250  # of a call of the model


class _Series(BaseEstimator):
    """What both estimators have; `SeriesClassifier` says what the arguments are."""

    def __init__(
        self,
        *,
        units: int = 64,
        stem: Sequence[Sequence[int]] | str = "auto",
        steps: int = 1000,
        batch_size: int = 32,
        learning_rate: float = 4e-3,
        dropout: float = 0.15,
        crop: float = 0.5,
        jitter: float = 0.1,
        id: str = "id",
        time: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.units = units
        self.stem = stem
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.crop = crop
        self.jitter = jitter
        self.id = id
        self.time = time
        self.random_state = random_state

    def stream(self) -> StreamedModel:
        """Returns the model for series that come step by step; see `StreamedModel`."""
        check_is_fitted(self)
        return StreamedModel(self.model_)

    def export(
        self, path: str | os.PathLike[str], format: str = "litert", **how: Any
    ) -> None:
        """Writes the streamed model for programs without Python; see `StreamedModel.export`."""
        self.stream().export(path, format, **how)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def _fit(
        self, cases: Sequence[np.ndarray], targets: np.ndarray, outputs: int, loss: Any
    ) -> None:
        """Trains a new model on targets that are classes, or scaled numbers."""
        generator = check_random_state(self.random_state)
        seed = int(generator.randint(2**31))
        with _seeded(seed):
            self.model_ = self._model(cases, outputs, seed)
            values, mask = inputs.padded(cases)
            whole = bool(mask.all()) and not self.crop
            trained = _masked(self.model_, whole, ends=False)
            rate = keras.optimizers.schedules.CosineDecay(
                self.learning_rate, self.steps
            )
            # What is kept is the mean of the weights of about the last tenth of the steps.
            optimizer = keras.optimizers.Adam(
                rate,
                global_clipnorm=0.5,
                use_ema=True,
                ema_momentum=max(0.0, 1 - 10 / self.steps),
            )
            trained.compile(optimizer, loss)
            batches = self._batches(
                values, mask, targets, whole, np.random.default_rng(seed)
            )
            trained.fit(batches, steps_per_epoch=self.steps, shuffle=False, verbose=0)

    def _model(
        self, cases: Sequence[np.ndarray], outputs: int, seed: int
    ) -> keras.Model:
        every = np.concatenate(cases).astype("float64")
        variance = np.maximum(every.var(0), 1e-14)
        sequences = keras.Input((None, every.shape[1]), name="sequences")
        scaling = keras.layers.Normalization(
            mean=every.mean(0), variance=variance, name="scaling"
        )
        longest = max(map(len, cases))
        stem = self._stem(longest)
        left = longest
        for _, _, strides in stem:
            left = -(-left // strides)
        depth = next(n for n in range(1, 16) if _TAPS**n >= left)
        layer = TrellisLayer(
            self.units,
            depth=depth,
            kernel_size=_TAPS,
            dilation_rate=[_TAPS**level for level in range(depth)],
            output_units=max(1, self.units // 2),
            recurrent_dropout=self.dropout,
            weight_dropout=self.dropout,
            seed=seed,
        )
        network = TrellisClassifier(
            outputs, layer, stem=stem, output_dropout=self.dropout, seed=seed
        )
        answers = self._ending()(network(scaling(sequences)))
        return keras.Model(sequences, answers, name="series")

    def _stem(self, longest: int) -> Sequence[Sequence[int]]:
        if not isinstance(self.stem, str):
            return self.stem
        strides = longest // _STEPS_LEFT
        return [(self.units, 2 * strides, strides)] if strides > 1 else []

    def _ending(self) -> keras.layers.Layer:
        """Returns the layer from the network's outputs to the answers."""
        raise NotImplementedError

    def _batches(
        self,
        values: np.ndarray,
        mask: np.ndarray,
        targets: np.ndarray,
        whole: bool,
        generator: np.random.Generator,
    ) -> Iterator[tuple]:
        """Yields batches without end, each pass over the series in another order.

        Args:
            values: the series, `[N, T, p]`.
            mask: which steps they have.
            targets: their answers.
            whole: whether they have all steps, and all are read, so that batches have no mask.
            generator: draws the order, what is left out, and the noise.
        """
        count = len(values)
        size = min(self.batch_size, count)
        deviation = self.jitter * values[mask].std(0)
        while True:
            order = generator.permutation(count)
            for start in range(0, count - size + 1, size):
                rows = order[start : start + size]
                lengths = mask[rows].sum(axis=1, keepdims=True)
                kept = lengths * (1 - self.crop * generator.random(lengths.shape))
                there = np.arange(mask.shape[1]) < np.ceil(kept)
                noise = deviation * generator.normal(size=values[rows].shape)
                read = (values[rows] + noise).astype("float32")
                yield (read if whole else (read, there)), targets[rows]

    def _answers(self, X: Any) -> np.ndarray:
        """Returns the outputs `[N, outputs]` of the model."""
        check_is_fitted(self)
        cases = inputs.series(self, X, self.id, self.time, reset=False)
        model = _masked(self.model_)
        # Of similar lengths, so that little is padded.
        order = np.argsort([len(case) for case in cases], kind="stable")
        answers = np.empty((len(cases), *self.model_.output_shape[1:]), "float64")
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            answers[rows] = model.predict_on_batch(
                inputs.padded([cases[row] for row in rows])
            )
        return answers


class SeriesClassifier(ClassifierMixin, _Series):
    """A trellis network that classifies series, with scikit-learn's interface.

    It trains for so many steps on all series that `fit` gets, along a cosine, and keeps averaged
    weights; nothing is set aside for validation. Its levels see the longest series.

        classifier = SeriesClassifier().fit(X, y)  # X [cases, channels, time]
        classifier.predict(X_new)

    Args:
        units: channels of the network.
        stem: (filters, kernel_size, strides) of convolutions before it, see `TrellisClassifier`;
            "auto": one that leaves some 128 steps of the longest series, and none for shorter ones.
        steps: training steps.
        batch_size: series in one of them.
        learning_rate: that of Adam, at first.
        dropout: rate at which states, recurrent weights and logits are dropped.
        crop: up to which share of a series' steps, the last ones, a training step leaves out.
        jitter: the deviation of the noise that each training step adds, beside that of a channel.
        id: the column of a long DataFrame that says which series a row is of.
        time: the column that orders its rows; None: they are in order.
        random_state: an integer makes the same model of the same series.

    Attributes:
        model_: the Keras model, from `[B, T, channels]`, without NaN, to probabilities.
        classes_: the labels, in the order of the probabilities.
        channels_: the channels of a series.
        n_features_in_: of a table, the columns.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.estimators import SeriesClassifier
        >>> X = np.random.default_rng(0).normal(size=(20, 2, 30))
        >>> y = np.repeat(["low", "high"], 10)
        >>> X[10:] += 1
        >>> classifier = SeriesClassifier(units=8, steps=100, random_state=0).fit(X, y)
        >>> float(classifier.score(X, y))
        1.0
    """

    def fit(self, X: Any, y: Any) -> SeriesClassifier:
        """Trains on series and their labels.

        Args:
            X: `[cases, channels, time]`; a table `[cases, time]` of one channel; a list of arrays
                `[channels, time]`, or `[time]`, of unequal lengths; or a long DataFrame with a row
                for each step and a column of ids. NaN is a gap: a step with one is left out.
            y: a label for each case, of a DataFrame in the order in which the ids come.

        Raises:
            ValueError: X or y has another form.
        """
        cases = inputs.series(self, X, self.id, self.time, reset=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(cases, y)
        check_classification_targets(y)
        self.classes_, targets = np.unique(y, return_inverse=True)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._fit(cases, targets, len(self.classes_), loss)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probability of each class, `[cases, classes]`; X as for `fit`."""
        return self._answers(X)

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable label of each series; X as for `fit`."""
        places = self.predict_proba(X).argmax(axis=1)
        return self.classes_[places]

    def _ending(self) -> keras.layers.Layer:
        return keras.layers.Softmax(name="probabilities")


class SeriesRegressor(RegressorMixin, _Series):
    """A trellis network that gives one number for a series, with scikit-learn's interface.

    It has the arguments of `SeriesClassifier` and takes the same `X`; `model_` returns the number,
    in its own unit.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.estimators import SeriesRegressor
        >>> X = [np.full([1, length], length) for length in range(10, 30)]
        >>> y = [series.shape[1] for series in X]
        >>> regressor = SeriesRegressor(units=8, steps=200, random_state=0).fit(X, y)
        >>> bool(regressor.score(X, y) > 0.9)
        True
    """

    def fit(self, X: Any, y: Any) -> SeriesRegressor:
        """Trains on series and their numbers; see `SeriesClassifier.fit`."""
        cases = inputs.series(self, X, self.id, self.time, reset=True)
        y = column_or_1d(y, dtype="float64", warn=True)
        check_consistent_length(cases, y)
        self.offset_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        targets = ((y - self.offset_) / self.scale_).astype("float32")
        self._fit(cases, targets, 1, "mse")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns the number of each series, `[cases]`; X as for `fit`."""
        return self._answers(X)[:, 0]

    def _ending(self) -> keras.layers.Layer:
        return keras.layers.Rescaling(self.scale_, self.offset_, name="unit")


def _masked(model: keras.Model, whole: bool = False, ends: bool = True) -> keras.Model:
    """Returns a model over the same layers that takes a mask `[B, T]` beside the series.

    Args:
        model: from series to answers: scaling, network, ending.
        whole: whether no step is masked, so that it takes no mask; long series then cost less.
        ends: whether it has the ending; else it returns logits, or scaled numbers.
    """
    _, scaling, network, ending = model.layers
    sequences = keras.Input(model.input_shape[1:], name="sequences")
    mask = keras.Input((None,), dtype="bool", name="mask")
    outputs = network(scaling(sequences), mask=None if whole else mask)
    if ends:
        outputs = ending(outputs)
    return keras.Model(sequences if whole else (sequences, mask), outputs)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds Keras, and leaves the generators of Python and NumPy as they were."""
    states = random.getstate(), np.random.get_state()
    try:
        keras.utils.set_random_seed(seed)
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
