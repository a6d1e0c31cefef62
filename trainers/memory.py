"""How much memory training takes, by a formula: an order of magnitude to plan by, not a bound."""

import ml_collections

from keras_trellis.heads import BLOCK, WORDS

_BYTES = 4  # float32
_SLOTS = {"sgd": 0, "adam": 2}  # variables of the optimizer, for each parameter
_GATES = 4


def training_bytes(config: ml_collections.ConfigDict, parameters: int, vocabulary_size: int) -> int:
    """Estimates the memory of a training step, without the program itself and the data.

    It counts what has to be there at once: parameters, gradients and the optimizer's variables;
    what the network keeps for the backward pass; what the head keeps of each output that is
    scored.
    """
    model, data = config.model, config.data
    scored = data.batch_size * (data.window - data.horizon)
    slots = _SLOTS.get(config.optimizer.name, 0) + config.schedule.average
    outputs = 1
    if model.kind == "lstm":
        kernels = parameters - vocabulary_size * (model.embedding_units + 1)
        kept = _lstm_numbers(model, data, kernels)
    else:
        kept = _trellis_numbers(model, data)
        outputs += model.depth // model.auxiliary_every if model.auxiliary_weight else 0
    kept += _head_numbers(model, outputs * scored, vocabulary_size)
    return _BYTES * (parameters * (2 + slots) + kept)


def _head_numbers(model: ml_collections.ConfigDict, rows: int, vocabulary_size: int) -> int:
    """Logits and what they are computed from and into, all of them or by blocks."""
    head = model.get("head")
    if head is None:
        return 2 * rows * vocabulary_size
    rows *= head.get("experts", 1)
    words = min(vocabulary_size, WORDS)
    return 3 * min(rows * words, BLOCK) + (words + 3 * rows) * model.embedding_units


def _trellis_numbers(model: ml_collections.ConfigDict, data: ml_collections.ConfigDict) -> int:
    """Numbers kept of all positions, were the upper levels as wide as the lower ones."""
    # The pre-activations, the hidden state and the cell of each level; of one level at a time, and
    # of the injected input, what the gradients are computed from.
    level, once = _GATES + 2, 6 * _GATES
    return data.batch_size * data.window * (model.depth * level + once) * model.units


def _lstm_numbers(
    model: ml_collections.ConfigDict, data: ml_collections.ConfigDict, kernels: int
) -> int:
    """Numbers kept of all positions, as in a trellis network's level, and by Keras's loop."""
    positions = data.batch_size * data.window * model.layers * (2 * _GATES + 4) * model.units
    return positions + data.window * kernels  # the loop keeps the kernels that each step reads
