"""TrellisClassifier: one label for a sequence, over any sequence layer."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis import arguments, heads
from keras_trellis.backend import current as backend
from keras_trellis.core import checks, dropout, masks
from keras_trellis.core.convolution import masked
from keras_trellis.core.dropout import Rate, generator_for
from keras_trellis.layers.sequence import serialized
from keras_trellis.models import legacy, sequence_layer
from keras_trellis.models import stem as stems
from keras_trellis.types import Number, Tensor


@keras.saving.register_keras_serializable("keras_trellis")
class TrellisClassifier(keras.Model):
    """A classifier of sequences: a sequence layer, its last output, a dense layer to the classes.

    It maps sequences `[B, T, p]` to logits `[B, classes]`. `compile()` without a loss trains their
    cross entropy with integer labels `[B]`:

        dilations = (1, 1, 2, 4, 8, 16, 32, 64, 128)
        layer = TrellisLayer(130, depth=11, dilation_rate=dilations, output_units=10)
        model = TrellisClassifier(10, layer)
        model.compile(keras.optimizers.Adam(4e-3), metrics=["accuracy"])
        model.fit(images.reshape(-1, 784, 1), labels)

    A `stem` stands before the layer: strided causal convolutions, which leave it few steps to read.
    So recordings of many samples a second cost less, whole and streamed:

        layer = TrellisLayer(64, depth=4, kernel_size=4, dilation_rate=(1, 4, 16, 64))
        model = TrellisClassifier(7, layer, stem=[(32, 8, 4)])

    Over a trellis network a label depends on the last `receptive_field` steps alone. Where
    dilations double from level to level and T is known, all levels together compute two steps for
    each of the sequence, so that a long one costs little more than its first level.

    Dropout. Unlike the layer's and the language model's, `dropout` (of the input) and
    `output_dropout` (of the logits) act element by element, as in the paper: on one channel a
    variational mask would blank whole sequences. The released code leaves both on at evaluation;
    here they are off.

    Args:
        classes: the number of labels.
        trellis: the layer: a `TrellisLayer`, an `EquilibriumTrellisLayer`, one or a list of
            `keras.layers.LSTM`, `GRU`, `SimpleRNN` or `RNN`, or any other sequence layer. It keeps
            its own dtype policy, seed and name. The paper's has `output_units=classes`. The model
            sets its `return_sequences` and `return_state`, and takes no layer with `stateful`,
            `go_backwards` or `zero_output_for_mask`.
        dropout: rate at which elements of the input are dropped.
        output_dropout: rate at which logits are dropped.
        permutation: the order in which to read the steps, a permutation of 0, ..., T - 1; it is
            part of the model, and saved and exported with it. None: as they come.
        stem: (filters, kernel_size, strides) of each convolution before the layer, from the first
            one on; a ReLU follows each. With stride s in all, the last (T - 1) % s steps are not
            read. (): none.
        seed: integer that the model's dropout masks derive from; None: drawn at random.
        **kwargs: `name`, `dtype`, `trainable` of every Keras model.

    Raises:
        ValueError: an argument out of range, or one of the layer that has no meaning here.

    Source: Bai et al. (2019), section 5 and appendix A, for sequential and permuted MNIST and
    sequential CIFAR-10.

    Input shape:
        `[B, T, p]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, classes]`, logits.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import TrellisClassifier, TrellisLayer
        >>> layer = TrellisLayer(16, depth=5, dilation_rate=[1, 2, 4, 8, 16], output_units=4)
        >>> model = TrellisClassifier(4, layer)
        >>> tuple(model(np.ones([2, 30, 3], "float32")).shape)
        (2, 4)
        >>> model.receptive_field
        32
    """

    dropout: Any = Rate()
    output_dropout: Any = Rate()

    def __init__(
        self,
        classes: int,
        trellis: keras.layers.Layer | Sequence[keras.layers.RNN],
        *,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        permutation: Sequence[int] | None = None,
        stem: Sequence[Sequence[int]] = (),
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.classes = arguments.positive("classes", classes)
        self.dropout = dropout
        self.output_dropout = output_dropout
        self.permutation = _permutation(permutation)
        self.stem = stems.sizes(stem)
        self.seed = seed
        self.supports_masking = True
        self.seed_generator = generator_for(seed, self.dropout, self.output_dropout)
        self.convolutions = stems.convolutions(self.stem, self.dtype_policy)
        self.trellis = sequence_layer.prepared(
            trellis, "a classifier", returns_all=False
        )
        self.dense = keras.layers.Dense(
            self.classes, dtype=self.dtype_policy, name="dense"
        )

    def build(self, sequences_shape: Sequence[int | None]) -> None:
        """Creates the variables for sequences `[B, T, p]`."""
        *shape, channels = sequences_shape
        channels = stems.build(self.convolutions, channels)
        if not self.trellis.built:
            self.trellis.build((*shape, channels))
        self.dense.build((None, self.trellis.output_units))

    @property
    def receptive_field(self) -> int | None:
        """How many of the last steps a label depends on; None: all."""
        return stems.receptive_field(self.convolutions, self.trellis.receptive_field)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the loss given to `compile`, or else the cross entropy of integer labels.

        Raises:
            ValueError: `compile` was given no loss, and there is not one label and one weight for
                each sequence, or a label is not one of the classes.
        """
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if y is None:
            raise ValueError(
                "compile() without a loss trains the cross entropy of labels: fit(sequences, "
                "labels). Received: y=None"
            )
        cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        rows = checks.sizes(y_pred)[0]
        y = _one_a_row("y", _labels(y), rows, "integer labels")
        y = checks.within("y", y, self.classes, "an integer label of a class")
        if sample_weight is not None:
            sample_weight = backend.to_tensor(sample_weight)
            sample_weight = _one_a_row("sample_weight", sample_weight, rows, "weights")
        # Keras sums over the replicas.
        replicas = backend.num_replicas()
        penalties = [ops.cast(penalty, "float32") / replicas for penalty in self.losses]
        # On JAX what is no label costs nothing.
        known = ops.all((y >= 0) & (y < self.classes))
        loss = cross_entropy(y, y_pred, sample_weight)
        loss = ops.where(known, loss, float("nan"))
        return functools.reduce(operator.add, penalties, loss)

    def call(
        self,
        sequences: Tensor,
        mask: Any = None,
        training: bool = False,
        depth: int | None = None,
    ) -> Tensor:
        """Returns the logits of each sequence's label.

        Args:
            sequences: `[B, T, p]`; a ragged tensor counts as right padding.
            mask: None, or booleans `[B, T]`: False is skipped, as in `keras.layers.LSTM`.
            training: whether to drop.
            depth: how many levels of a trellis network to run; None: all. See `TrellisLayer.call`.

        Returns:
            `[B, classes]`, in at least float32.

        Raises:
            ValueError: the sequences are no real numbers, or T is not the length of the
                permutation.
        """
        sequences, mask = masks.dense(sequences, mask)
        sequences = checks.real("sequences", sequences, self.compute_dtype)
        sequences = self._ordered(sequences)
        if mask is not None:
            mask = self._ordered(backend.to_tensor(mask))
        drops = training and (self.dropout or self.output_dropout)
        seed = dropout.next_seed(self.seed_generator) if drops else None
        sequences = _drop("elements", sequences, self.dropout, seed)
        sequences, mask = stems.read(self.convolutions, sequences, mask)
        how = sequence_layer.depth_argument(self.trellis, depth)
        outputs = self.trellis(sequences, mask=mask, training=training, **how)
        logits = heads.at_least_float32(self.dense(outputs))
        return _drop("logits", logits, self.output_dropout, seed)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple:
        """`[B, T, p]` -> `[B, classes]`."""
        return (input_shape[0], self.classes)

    def compute_mask(self, sequences: Any, mask: Any = None) -> None:
        """A label has no steps to mask."""
        return None

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "classes": self.classes,
            "trellis": serialized(self.trellis),
            "dropout": self.dropout,
            "output_dropout": self.output_dropout,
            "permutation": None if self.permutation is None else list(self.permutation),
            "stem": [list(sizes) for sizes in self.stem],
            "seed": self.seed,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Any = None
    ) -> TrellisClassifier:
        """Makes a model of its config, also of one that 0.1 saved."""
        return super().from_config(legacy.composed(cls, config), custom_objects)

    def _ordered(self, steps: Tensor) -> Tensor:
        """Puts `[B, T, ...]` in the order of the permutation."""
        if self.permutation is None:
            return steps
        expected = len(self.permutation)
        if steps.shape[1] not in (None, expected):
            raise ValueError(
                f"`sequences` must have as many steps as the permutation, {expected}. "
                f"Received: sequences with {steps.shape[1]} steps"
            )
        steps = backend.with_sizes(steps, [None, expected, *steps.shape[2:]])
        return backend.take(steps, self.permutation, axis=1)


def _labels(value: Any) -> Tensor:
    """Returns labels as integers of at least 32 bits; Keras hands on floats too."""
    labels = backend.to_tensor(value)
    if "int" not in keras.backend.standardize_dtype(labels.dtype):
        labels = ops.cast(labels, "int32")
    return checks.integers("y", labels)


def _one_a_row(
    name: str,
    values: Tensor,
    rows: Number,
    what: str,
) -> Tensor:
    """Returns numbers `[B]` of `[B]` or `[B, 1]`."""
    if backend.static_shape(values) is None:  # Keras makes one graph for all ranks
        values = ops.reshape(values, [-1])
    wanted = [rows, 1] if len(values.shape) == 2 else [rows]
    expected = f"{what} of shape [B], one for each sequence"
    values = checks.with_shape(name, values, wanted, expected)
    return ops.reshape(values, [-1])


def _drop(stream: str, values: Tensor, rate: float, seed: Any) -> Tensor:
    """Drops elements; without a seed or a rate, none."""
    shape = checks.sizes(values)
    mask = dropout.stream_mask(seed, stream, rate, shape, values.dtype)
    return masked(values, mask)


def _permutation(value: Any) -> tuple[int, ...] | None:
    """Returns a permutation as a tuple; None stays None."""
    if value is None:
        return None
    try:
        numbers = tuple(operator.index(index) for index in value)
    except TypeError:
        numbers = ()
    if not numbers or sorted(numbers) != list(range(len(numbers))):
        raise ValueError(
            "`permutation` must be None, or have each of the integers 0, ..., T - 1 once. "
            f"Received: permutation={value!r}"
        )
    return numbers
