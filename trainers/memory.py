"""How much memory training takes, by a formula."""

import ml_collections

_BYTES = 4  # float32
_SLOTS = {"sgd": 0, "adam": 2}


def training_bytes(config: ml_collections.ConfigDict, parameters: int, vocabulary_size: int) -> int:
    """Estimates the memory of a training step, without the program itself and the data.

    It counts what has to be there at once: parameters, gradients and the optimizer's variables;
    what each level (each layer of an LSTM) keeps of each position for the backward pass; logits
    and their gradients for each output that is scored.
    """
    model, data = config.model, config.data
    positions = data.batch_size * data.window
    scored = data.batch_size * (data.window - data.horizon)
    slots = _SLOTS.get(config.optimizer.name, 0) + config.schedule.average
    outputs = 1
    if model.kind == "trellis" and model.auxiliary_weight:
        outputs += model.depth // model.auxiliary_every
    kept = _channels_kept(model) * positions
    logits = 3 * outputs * scored * vocabulary_size  # logits, probabilities, gradients
    return _BYTES * (parameters * (2 + slots) + kept + logits)


def _channels_kept(model: ml_collections.ConfigDict) -> int:
    """Numbers kept for a position: for each level taps, pre-activations, activations, states."""
    if model.kind == "lstm":
        return model.layers * 12 * model.units
    level = model.kernel_size + 4 + 4 + 4
    return (model.depth * level + 8) * model.units
