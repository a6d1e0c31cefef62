"""Models of sequences, with one output for a sequence, or one for each time step."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from ml_collections import ConfigDict

from keras_trellis import TrellisClassifier
from keras_trellis.models import stem
from keras_trellis.models.sequence_layer import depth_argument
from keras_trellis.types import Tensor
from trainers.baselines.projected import Projected
from trainers.data.sequences import SequenceData
from trainers.models import layers
from trainers.models.kinds import Batch, count_parameters, stem_sizes
from trainers.models.layers import LAYERS
from trainers.training import memory


def build(config: ConfigDict, data: SequenceData) -> keras.Model:
    """Returns the model of a config for its data, built.

    Raises:
        ValueError: an argument of the model is not valid.
    """
    shape = data.train.inputs.shape[1:]
    if data.classes:
        return classifier(config, shape, len(data.classes), data.permutation)
    layer = _layer(config)
    # Targets `[N, T]` are those of time steps, targets `[N]` those of whole sequences.
    layer.return_sequences = data.train.targets.ndim == 2
    return WithDense(layer, data)


def classifier(
    config: ConfigDict,
    shape: Sequence[int],
    classes: int,
    permutation: Sequence[int] | None = None,
) -> TrellisClassifier:
    """Returns the classifier of a config, built.

    Args:
        config: the run's config.
        shape: (T, p) of the sequences.
        classes: the number of classes.
        permutation: the order in which to read the time steps, or None.

    Raises:
        ValueError: an argument of the model is not valid.
    """
    model = TrellisClassifier(
        classes,
        _layer(config),
        dropout=config.model.dropout,
        output_dropout=config.model.output_dropout,
        permutation=permutation,
        stem=stem_sizes(config.model),
        seed=config.seed,
        dtype=config.model.dtype,
    )
    model.build((None, *shape))
    return model


def _layer(config: ConfigDict) -> Any:
    """Returns the sequence layer, with a dense layer before it if `embedding_units` are given."""
    layer = layers.build(config.model, units(config), seed=config.seed)
    width = config.model.embedding_units
    return layer if width is None else Projected(layer, width, name="trellis")


class WithDense(keras.Model):
    """A sequence layer, and a dense layer to the outputs.

    Args:
        layer: the sequence layer.
        data: what it is for.
    """

    def __init__(self, layer: keras.layers.Layer, data: SequenceData) -> None:
        super().__init__()
        self.layer = layer
        self.answer = slice(*data.answer) if data.answer else None
        # In float32 whatever the layer computes in: a softmax of bfloat16 loses digits.
        self.dense = keras.layers.Dense(data.outputs, dtype="float32", name="dense")
        self.build((None, *data.train.inputs.shape[1:]))

    def build(self, shape: Sequence[int | None]) -> None:
        """Creates the variables for sequences of the shape `[B, T, p]`."""
        self.layer.build(shape)
        self.dense.build(self.layer.compute_output_shape(shape))

    def call(
        self, sequences: Tensor, training: bool = False, depth: int | None = None
    ) -> Tensor:
        """Returns the outputs of each sequence, or of each time step of the answer.

        Args:
            sequences: `[B, T, p]`.
            training: whether to drop; the layer has it of Keras.
            depth: how many levels of a trellis network to run; None: all.
        """
        features = self.layer(sequences, **depth_argument(self.layer, depth))
        if self.answer:
            features = features[:, self.answer]
        return self.dense(features)


def parameters(config: ConfigDict, inputs: int, outputs: int) -> int:
    """Returns the number of trainable parameters.

    Args:
        config: the run's config.
        inputs: channels of the sequences.
        outputs: channels of the output.
    """
    return layer_parameters(config, inputs) + (units(config) + 1) * outputs


def layer_parameters(config: ConfigDict, inputs: int) -> int:
    """Returns the number of those of the sequence layer, and of what stands before it."""
    before = 0
    for filters, kernel_size, _ in stem_sizes(config.model):
        before += (kernel_size * inputs + 1) * filters
        inputs = filters
    make = functools.partial(_layer, config)
    return before + count_parameters(make, (None, None, inputs))


def need(
    config: ConfigDict, steps: int, inputs: int, outputs: int, every_step: bool
) -> memory.Need:
    """Returns the memory that training takes.

    Args:
        config: the run's config.
        steps: the time steps T of the sequences.
        inputs: channels of the sequences.
        outputs: channels of the output.
        every_step: whether each time step has an output; else the last one has it.
    """
    layer = LAYERS[config.model.layer]
    steps = stem.steps(stem.convolutions(stem_sizes(config.model)), steps)
    batch = Batch(config.data.batch_size, steps, last_only=not every_step)
    about = layer.activations(config.model, batch).about
    return memory.training(config, parameters(config, inputs, outputs), 0, about)


def units(config: ConfigDict) -> int:
    """Returns the channels of the outputs of the sequence layer."""
    return config.model.output_units or config.model.units
