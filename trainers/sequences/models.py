"""Models of sequences: one answer a sequence, or one a step."""

from collections.abc import Sequence
from typing import Any

import keras
import ml_collections

from keras_trellis import TrellisClassifier, TrellisLayer
from trainers.data.sequences import SequenceData
from trainers.training.initial_values import initializers


def build(config: ml_collections.ConfigDict, data: SequenceData) -> keras.Model:
    """Returns the model of a config for its data, built.

    Raises:
        ValueError: An argument of the model is not valid.
    """
    shape = data.train.inputs.shape[1:]
    if data.classes:
        return classifier(config, shape, len(data.classes), data.permutation)
    every_step = data.train.targets.ndim == 2
    layer = TrellisLayer(**_arguments(config), return_sequences=every_step)
    return with_layer(layer, data)


def classifier(
    config: ml_collections.ConfigDict,
    shape: Sequence[int],
    classes: int,
    permutation: Sequence[int] | None = None,
) -> TrellisClassifier:
    """Returns the classifier of a config, built.

    Args:
        config: The run's config.
        shape: (T, p) of the sequences.
        classes: How many there are.
        permutation: The order in which to read the steps, or None.

    Raises:
        ValueError: An argument of the model is not valid.
    """
    model = TrellisClassifier(classes, **_arguments(config), permutation=permutation)
    model.build((None, *shape))
    return model


def _arguments(config: ml_collections.ConfigDict) -> dict[str, Any]:
    arguments = config.model.to_dict()
    deviation = arguments.pop("initial_deviation")
    return {**arguments, **initializers(deviation), "seed": config.seed}


def with_layer(layer: keras.layers.Layer, data: SequenceData) -> keras.Model:
    """Returns a recurrent layer between sequences and a dense layer to what is to be said."""
    inputs = keras.Input(data.train.inputs.shape[1:])
    return keras.Model(inputs, keras.layers.Dense(data.outputs, dtype="float32")(layer(inputs)))


def layer_of(model: keras.Model) -> TrellisLayer:
    """Returns the trellis network in a model that `build` returned."""
    if isinstance(model, TrellisClassifier):
        return model.trellis
    return next(layer for layer in model.layers if isinstance(layer, TrellisLayer))
