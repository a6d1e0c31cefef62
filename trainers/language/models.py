"""Builds the language model of a config, counts its parameters, estimates its memory."""

import keras
from ml_collections import ConfigDict

from keras_trellis import TrellisLM, arguments
from trainers.models import layers
from trainers.models.heads import HEADS
from trainers.models.kinds import Batch
from trainers.models.layers import LAYERS
from trainers.training import memory


def build(config: ConfigDict, vocabulary_size: int) -> TrellisLM:
    """Returns the model of a config, built.

    Raises:
        ValueError: the vocabulary lacks words that the config names.
    """
    model = config.model
    check_vocabulary(model, vocabulary_size)
    head = HEADS[model.head].build(model, config.seed)
    embeddings = keras.initializers.get(model.embeddings_initializer.to_dict())
    layer = layers.build(model, outputs(model), seed=config.seed, dropout=model.dropout)
    return TrellisLM(
        vocabulary_size,
        layer,
        embedding_units=model.embedding_units,
        head=head,
        embedding_dropout=model.embedding_dropout,
        output_dropout=model.output_dropout,
        auxiliary_every=model.auxiliary_every,
        auxiliary_from=model.auxiliary_from,
        auxiliary_weight=model.auxiliary_weight,
        activation_weight=model.activation_weight,
        temporal_weight=model.temporal_weight,
        embeddings_initializer=embeddings,
        untrained_input_id=model.untrained_input_id,
        seed=config.seed,
        dtype=model.dtype,
    )


def outputs(model: ConfigDict) -> int:
    """Returns the number of channels of the head's input."""
    return model.output_units or model.embedding_units


def parameters(config: ConfigDict, vocabulary_size: int) -> int:
    """Returns the number of trainable parameters.

    Raises:
        ValueError: as `build`.
    """
    model = config.model
    check_vocabulary(model, vocabulary_size)
    table = vocabulary_size * model.embedding_units
    head = HEADS[model.head].parameters(model, outputs(model), vocabulary_size)
    return table + layer_parameters(config) + head


def layer_parameters(config: ConfigDict) -> int:
    """Returns the number of those of the sequence layer."""
    model = config.model
    return LAYERS[model.layer].parameters(model, model.embedding_units, outputs(model))


def need(config: ConfigDict, vocabulary_size: int) -> memory.Need:
    """Returns the memory that training takes."""
    model, data = config.model, config.data
    layer, head = LAYERS[model.layer], HEADS[model.head]
    steps = data.window - data.horizon
    scored = data.batch_size * steps
    scores = 1
    if model.auxiliary_weight:
        scores += len(
            arguments.inner_levels(
                model.auxiliary_every, model.auxiliary_from, model.depth
            )
        )
    # The steps of the horizon may keep less than the others.
    least = layer.activations(model, Batch(data.batch_size, steps)).least
    about = layer.activations(model, Batch(data.batch_size, data.window)).about
    least += head.activations(model, scored, vocabulary_size) // 3
    about += head.activations(model, scores * scored, vocabulary_size)
    return memory.training(config, parameters(config, vocabulary_size), least, about)


def check_vocabulary(model: ConfigDict, size: int) -> None:
    """Raises ValueError if the group `model` names words that a vocabulary does not have."""
    if model.head == "adaptive" and model.adaptive.cutoffs[-1] >= size:
        cutoffs, expected = (
            model.adaptive.cutoffs,
            f"below the vocabulary's size, {size}",
        )
        raise arguments.refusal("config.model.adaptive.cutoffs", cutoffs, expected)
    untrained = model.untrained_input_id or 0
    if not -size <= untrained < size:
        expected = f"from {-size} to {size - 1}, by the vocabulary's size, {size}"
        raise arguments.refusal("config.model.untrained_input_id", untrained, expected)
