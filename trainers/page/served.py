"""An exported language model in this process, and what the page asks of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_trellis.export import versions

__all__ = ["Sampling", "Scores", "ServedModel", "generate", "score"]

_NEEDED = frozenset({"tokenize", "score", "prefill", "generate"})
_CHUNK = 8  # tokens: the text comes in pieces, and a call's cost is spread
_ASSERTION = re.compile(r"assertion failed: \[(.*?)\] \[(.*)\]\n", re.DOTALL)


class Scores(NamedTuple):
    """How surprising a text is.

    Attributes:
        tokens: as the model reads them.
        nll: of each, in nats.
        separator: what stands between tokens of a line: a space, nothing between characters.
    """

    tokens: list[str]
    nll: list[float]
    separator: str


class Sampling(NamedTuple):
    """How to continue a text, as the signature `generate` has it.

    Attributes:
        temperature: divides the log-probabilities; 0: the most probable token.
        top_k: from how many of the most probable tokens to choose; 0: from all.
        top_p: choose from the fewest tokens that have this probability.
        seed: the same text with the same seed is continued alike.
        max_length: how many tokens to add.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int
    max_length: int


class ServedModel:
    """The newest version of an exported language model.

    Args:
        path: the model's folder.

    Attributes:
        name: the folder's name, and the version.

    Raises:
        ValueError: it is no such folder, or what is in it is no language model.
    """

    def __init__(self, path: str) -> None:
        version = versions.newest(path)
        self.name = f"{os.path.basename(path.rstrip('/'))}, version {os.path.basename(version)}"
        try:
            module = tf.saved_model.load(version)
        except (OSError, tf.errors.OpError) as error:
            line = str(error).partition("\n")[0]
            raise ValueError(f"{version} cannot be loaded: {line}") from error
        self._module = module  # signatures are functions of the variables that it keeps
        missing = _NEEDED - {*module.signatures}
        if missing:
            raise ValueError(
                f"{version} is no language model: it lacks the signatures "
                f"{', '.join(sorted(missing))}, and has {', '.join(sorted(module.signatures))}"
            )

    def __call__(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Calls a signature.

        Args:
            signature: its name.
            **inputs: by name, what can be made arrays of its dtypes.

        Returns:
            The outputs by name; texts are strings.

        Raises:
            ValueError: the model refuses the inputs; the message is the model's.
        """
        function = self._module.signatures[signature]
        _, specs = function.structured_input_signature
        tensors = {name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()}
        try:
            outputs = function(**tensors)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(_refusal(error.message)) from error
        return {name: _decoded(value.numpy()) for name, value in outputs.items()}


def score(model: ServedModel, text: str) -> Scores:
    """Returns how surprising each token of a text is.

    Raises:
        ValueError: the model cannot read the text, or has no numbers for it.
    """
    answer = model("score", text=[text])
    tokens, nll = answer["tokens"][0], answer["nll"][0]
    if not np.isfinite(nll).all():
        raise ValueError("the model's probabilities are not finite: its weights are damaged")
    # A space is a token where tokens are characters, and is none between words.
    separator = "" if model("tokenize", text=[" "])["lengths"][0] else " "
    return Scores(tokens.tolist(), nll.tolist(), separator)


def generate(model: ServedModel, prompt: str, sampling: Sampling) -> Iterator[str]:
    """Yields what a model adds to a prompt, some tokens at a time.

    Raises:
        ValueError: the model cannot read the prompt, or refuses the sampling.
    """
    ids = model("tokenize", text=[f"\n{prompt}"])["ids"]  # a line's end begins a text
    answer = model("prefill", ids=ids[:, :-1], lengths=[ids.shape[1] - 1])
    settings = {name: [value] for name, value in sampling._asdict().items()}
    for begin in range(0, sampling.max_length, _CHUNK):
        settings["max_length"] = [min(_CHUNK, sampling.max_length - begin)]
        cache = {name: answer[name] for name in answer if name.startswith("cache_")}
        answer = model("generate", ids=ids[:, -1:], lengths=[1], stop_id=[-1], **settings, **cache)
        ids = answer["ids"]
        yield answer["text"][0]


def _decoded(values: np.ndarray) -> np.ndarray:
    if values.dtype != object:
        return values
    return np.vectorize(bytes.decode, otypes=[object])(values)


def _refusal(message: str) -> str:
    """Returns what an endpoint's check said, without where in the graph it stands."""
    match = _ASSERTION.search(message)
    if not match:
        return message
    # TensorFlow writes quotes as a C program would, and other letters as they are.
    return " ".join(match.groups()).encode("latin-1", "backslashreplace").decode("unicode_escape")
