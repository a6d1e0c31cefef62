"""The model card of an exported model."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_trellis.formats.manifest import NOT_STATED
from keras_trellis.version import __version__

_MEANINGS = {
    "text": "UTF-8",
    "ids": "token ids",
    "lengths": "ids in each row",
    "temperature": "divides the log-probabilities; 0: the most probable token",
    "top_k": "choose from so many of the most probable tokens; 0: from all",
    "top_p": "choose from the fewest tokens of this probability, in (0, 1]",
    "seed": "the same row with the same seed is continued alike",
    "max_length": "tokens to add, from 1 to 65,536",
    "stop_ids": "tokens that end a row; -1: none",
    "stop": "texts that end a row; empty: none",
    "alternatives": "how many of the most probable tokens to return in the place of each",
    "forbidden_ids": "tokens not to write; -1: `<unk>`, where there is one; -2: nothing",
    "unknown": "words that the vocabulary does not have",
    "perplexity": "of the tokens after the line break that each text begins after",
    "next_tokens": "the most probable first",
    "next_probabilities": "of these",
    "tokens": "as the model reads them; empty after a text's end",
    "words": "the text's own; another than the token where the vocabulary does not have it",
    "nll": "negative log-likelihood of each token in nats; 0 where none was scored",
    "total": "the sum of `nll`",
    "count": "tokens scored",
    "log_probs": "of the next token, or of each that is written",
    "ranks": "1: the token was the most probable one; 0 where none was scored",
    "likeliest_ids": "the most probable in the place of each; -1 after as many as asked for",
    "likeliest_tokens": "the most probable in the place of each",
    "likeliest_log_probs": "of these",
    "settled": "the beginning of `text` that more ids do not change",
    "stopped": "whether a stop ended the row",
    "cache_inputs": "cache: the last inputs",
    "cache_steps": "cache: tokens read",
    "cache_fingerprint": "cache: the model's",
    "sequences": "the steps of each sequence",
    "probabilities": "of each class",
    "classes": "the most probable classes, the first first",
    "labels": "what these are called",
    "values": "the predicted numbers",
    "scores": "how unlike the training data each step is, from the first that has a score",
}


_LAYER_FACTS = {
    "Hidden channels": "units",
    "Levels": "depth",
    "Kernel size": "kernel_size",
    "Dilations": "dilation_rate",
}


def card(
    title: str,
    facts: Mapping[str, Any],
    model: keras.Model,
    functions: Mapping[str, tf.types.experimental.ConcreteFunction],
    written: Mapping[str, str],
) -> str:
    """Returns a model card in Markdown: a table of facts, a row each, then one for each signature.

    Args:
        title: the heading.
        facts: rows of the table, by name; they replace all others of their names.
        model: the model.
        functions: the traced signatures.
        written: rows of what was written.
    """
    facts = {
        "Parameters": f"{model.count_params():,}",
        **_layer_facts(model.trellis),
        "Trained on": NOT_STATED,
        "Licence of the data": NOT_STATED,
        **written,
        **facts,
        "Written by": f"keras_trellis {__version__} with "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}",
        "Written on": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d} (UTC)",
    }
    lines = [f"# {title}", "", "| | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items()]
    lines += [
        "",
        "The batch is the first dimension of every input and output; -1 is any size.",
    ]
    for name, function in functions.items():
        lines += [
            "",
            f"## `{name}`",
            "",
            "| | name | dtype | shape | |",
            "|---|---|---|---|---|",
        ]
        ((inputs,), _) = function.structured_input_signature
        lines += _rows("in", inputs) + _rows("out", function.structured_outputs)
    return "\n".join([*lines, ""])


def _layer_facts(layer: Any) -> dict[str, Any]:
    """Returns what is known of a sequence layer; most of it only a trellis network has."""
    field = layer.receptive_field
    facts = {"Layer": type(layer).__name__}
    for name, attribute in _LAYER_FACTS.items():
        if hasattr(layer, attribute):
            facts[name] = getattr(layer, attribute)
    if "Dilations" in facts:
        facts["Dilations"] = ", ".join(map(str, facts["Dilations"]))
    facts["Receptive field"] = (
        "all steps before" if field is None else f"{field:,} steps"
    )
    return facts


def _cell(value: Any) -> str:
    """Returns a cell of a table, which is one line and ends at a bar."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _rows(kind: str, tensors: Mapping[str, Any]) -> list[str]:
    return [
        f"| {kind} | `{name}` | {value.dtype.name} | {_shape(value)} | {_meaning(name)} |"
        for name, value in sorted(tensors.items())
    ]


def _shape(value: Any) -> str:
    return f"[{', '.join('-1' if size is None else str(size) for size in value.shape)}]"


def _meaning(name: str) -> str:
    if name in _MEANINGS:
        return _MEANINGS[name]
    number = name.rpartition("_")[2]
    if name.startswith("cache_levels_"):
        return f"cache: the levels' past of state {number}"
    if name.startswith("cache_state_"):
        return f"cache: the last step of state {number}"
    return ""
