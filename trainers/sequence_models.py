"""Models of sequences: one answer a sequence, or one a step."""

import keras
import ml_collections

from keras_trellis import TrellisClassifier, TrellisLayer
from trainers.data.sequences import SequenceData
from trainers.initial_values import initializers


def build(config: ml_collections.ConfigDict, data: SequenceData) -> keras.Model:
    """Returns the model of a config for its data, built.

    Raises:
        ValueError: An argument of the model is not valid.
    """
    arguments = config.model.to_dict()
    arguments |= initializers(arguments.pop("initial_deviation"))
    if not data.classes:
        every_step = data.train.targets.ndim == 2
        layer = TrellisLayer(**arguments, return_sequences=every_step, seed=config.seed)
        return with_layer(layer, data)
    model = TrellisClassifier(
        len(data.classes), **arguments, permutation=data.permutation, seed=config.seed
    )
    model.build((None, *data.train.inputs.shape[1:]))
    return model


def with_layer(layer: keras.layers.Layer, data: SequenceData) -> keras.Model:
    """Returns a recurrent layer between sequences and a dense layer to what is to be said."""
    inputs = keras.Input(data.train.inputs.shape[1:])
    return keras.Model(inputs, keras.layers.Dense(data.outputs, dtype="float32")(layer(inputs)))


def layer_of(model: keras.Model) -> TrellisLayer:
    """Returns the trellis network in a model that `build` returned."""
    if isinstance(model, TrellisClassifier):
        return model.trellis
    return next(layer for layer in model.layers if isinstance(layer, TrellisLayer))
