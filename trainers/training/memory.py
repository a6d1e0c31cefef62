"""How much memory a run takes, by a formula, told before anything of it is there.

The number of parameters is exact. The rest is an order of magnitude to plan by, and a number that
a step cannot do with less than.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import ml_collections

from keras_trellis.heads import BLOCK, WORDS
from trainers.tasks import config as configs
from trainers.training import available_memory
from trainers.training.available_memory import Room

_BYTES = 4  # float32
_SLOTS = {"sgd": 0, "adam": 2}  # variables of the optimizer, for each parameter
_GATES = 4


class Need(NamedTuple):
    """What training takes, in bytes.

    Attributes:
        least: what has to be there at once.
        about: an estimate.
    """

    least: int
    about: int


def language_parameters(config: ml_collections.ConfigDict, vocabulary_size: int) -> int:
    """Returns the number of trainable parameters of a language model."""
    model = config.model
    table = vocabulary_size * (model.embedding_units + 1)  # with the bias of the softmax
    if model.kind == "lstm":
        inputs, total = model.embedding_units, table
        for width in [model.units] * (model.layers - 1) + [model.embedding_units]:
            total += _GATES * width * (inputs + width + 1)
            inputs = width
        return total
    outputs = model.get("output_units") or model.embedding_units
    return table + _trellis_parameters(model, model.embedding_units) + _head(model, outputs)


def sequence_parameters(config: ml_collections.ConfigDict, inputs: int, outputs: int) -> int:
    """Returns the number of trainable parameters of a model of sequences.

    Args:
        config: The run's config.
        inputs: Numbers a step.
        outputs: Numbers an answer.
    """
    width = config.model.get("output_units") or outputs
    return _trellis_parameters(config.model, inputs) + (width + 1) * outputs


def language_training(config: ml_collections.ConfigDict, vocabulary_size: int) -> Need:
    """Returns what the training of a language model takes."""
    parameters = language_parameters(config, vocabulary_size)
    model, data = config.model, config.data
    rows = data.batch_size * (data.window - data.horizon)
    kept = rows * _GATES * model.units * (model.layers if model.kind == "lstm" else model.depth)
    head = _head_numbers(model, rows, vocabulary_size) // 3
    least = _of_parameters(config, parameters) + _BYTES * (kept + head)
    return Need(least, max(least, training_bytes(config, parameters, vocabulary_size)))


def sequence_training(
    config: ml_collections.ConfigDict, steps: int, inputs: int, outputs: int, every_step: bool
) -> Need:
    """Returns what the training of a model of sequences takes.

    Args:
        config: The run's config.
        steps: T, of the sequences.
        inputs: Numbers a step.
        outputs: Numbers an answer.
        every_step: Whether each step has an answer; else the last has it, and what it does not
            depend on is not computed.
    """
    least = _of_parameters(config, sequence_parameters(config, inputs, outputs))
    model, positions = config.model, config.data.batch_size * steps
    if every_step:
        kept = _trellis_numbers(model, positions)
    else:  # where dilations double, two steps in all for each of the sequence
        kept = 2 * positions * (_GATES + 2) * model.units
    return Need(least, least + _BYTES * kept)


def training_bytes(config: ml_collections.ConfigDict, parameters: int, vocabulary_size: int) -> int:
    """Estimates the memory of a training step, without the program itself and the data.

    It counts what has to be there at once: parameters, gradients and the optimizer's variables;
    what the network keeps for the backward pass; what the head keeps of each output that is
    scored.
    """
    model, data = config.model, config.data
    scored = data.batch_size * (data.window - data.horizon)
    outputs = 1
    if model.kind == "lstm":
        kernels = parameters - vocabulary_size * (model.embedding_units + 1)
        kept = _lstm_numbers(model, data, kernels)
    else:
        kept = _trellis_numbers(model, data.batch_size * data.window)
        outputs += model.depth // model.auxiliary_every if model.auxiliary_weight else 0
    kept += _head_numbers(model, outputs * scored, vocabulary_size)
    return _of_parameters(config, parameters) + _BYTES * kept


def check_training(
    config: ml_collections.ConfigDict, need: Callable[[ml_collections.ConfigDict], Need]
) -> str | None:
    """Compares what training takes with what there is.

    Args:
        config: The run's config.
        need: What the training of a config takes, on the run's data.

    Returns:
        A warning where it may not fit, else None.

    Raises:
        ValueError: It cannot fit; the message says what would.
    """
    room, (least, about) = available_memory.room(), need(config)
    if room is None or about <= room.size:
        return None
    takes = f"training takes about {_text(about)} of memory"
    there = f"{_text(room.size)} are available ({room.limit})"
    fits = " or ".join(_that_fit(config, need, room)) or "no preset of the task"
    if least > room.size:
        raise ValueError(
            f"{takes}, {_text(least)} at the least, and {there}; what would fit: {fits}"
        )
    return f"warning: {takes}, and {there}; what would surely fit: {fits}"


def check_weights(parameters: int) -> None:
    """Raises ValueError where a model and the file of its weights cannot be in memory at once."""
    room, least = available_memory.room(), 2 * _BYTES * parameters
    if room is not None and least > room.size:
        raise ValueError(
            f"a model of {parameters:,} parameters is read in {_text(least)} of memory at the "
            f"least, and {_text(room.size)} are available ({room.limit})"
        )


def _that_fit(
    config: ml_collections.ConfigDict,
    need: Callable[[ml_collections.ConfigDict], Need],
    room: Room,
) -> Iterator[str]:
    """Yields the flags that make training fit: a smaller batch, another preset."""
    smaller = ml_collections.ConfigDict(config.to_dict())
    while smaller.data.batch_size > 1:
        smaller.data.batch_size //= 2
        if need(smaller).about <= room.size:
            yield f"--config.data.batch_size={smaller.data.batch_size}"
            break
    presets = [
        (need(configs.load(config.task, preset)).about, preset)
        for preset in importlib.import_module(f"configs.{config.task}").PRESETS
        if preset != config.preset
    ]
    if fitting := [each for each in presets if each[0] <= room.size]:
        yield f"--preset={max(fitting)[1]}"


def _of_parameters(config: ml_collections.ConfigDict, parameters: int) -> int:
    """Bytes of parameters and gradients, and of the optimizer's variables."""
    slots = _SLOTS.get(config.optimizer.name, 0) + config.schedule.average
    return _BYTES * parameters * (2 + slots)


def _trellis_parameters(model: ml_collections.ConfigDict, inputs: int) -> int:
    """Kernels of the input and of the hidden state, their gains, and the bias."""
    taps, groups = model.get("kernel_size", 2), model.get("groups", 1)
    channels = _GATES * model.units
    if groups == 1:
        input_channels = channels
        kernels = taps * (inputs + model.units) * channels
    else:
        input_channels = channels // groups
        rows = (taps - 1) * groups + groups - 1
        kernels = (inputs + rows * (model.units // groups)) * input_channels
    gains = input_channels + channels if model.get("weight_normalization") else 0
    return kernels + gains + channels


def _head(model: ml_collections.ConfigDict, outputs: int) -> int:
    """Parameters of a head beside the bias of the words."""
    head = model.get("head")
    if head is None:
        return 0
    if head.get("kind") == "mixture":
        return (outputs + 1) * head.experts * (1 + model.embedding_units)
    if head.get("kind") == "adaptive":
        return len(head.cutoffs) * (model.embedding_units + 1)
    return 0


def _head_numbers(model: ml_collections.ConfigDict, rows: int, vocabulary_size: int) -> int:
    """Logits and what they are computed from and into, all of them or by blocks."""
    head = model.get("head")
    if head is None:
        return 2 * rows * vocabulary_size
    rows *= head.get("experts", 1)
    words = min(vocabulary_size, WORDS)
    return 3 * min(rows * words, BLOCK) + (words + 3 * rows) * model.embedding_units


def _trellis_numbers(model: ml_collections.ConfigDict, positions: int) -> int:
    """Numbers kept of all positions, were the upper levels as wide as the lower ones."""
    # The pre-activations, the hidden state and the cell of each level; of one level at a time, and
    # of the injected input, what the gradients are computed from.
    level, once = _GATES + 2, 6 * _GATES
    return positions * (model.depth * level + once) * model.units


def _lstm_numbers(
    model: ml_collections.ConfigDict, data: ml_collections.ConfigDict, kernels: int
) -> int:
    """Numbers kept of all positions, as in a trellis network's level, and by Keras's loop."""
    positions = data.batch_size * data.window * model.layers * (2 * _GATES + 4) * model.units
    return positions + data.window * kernels  # the loop keeps the kernels that each step reads


def _text(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
