"""An exported language model in this process, and what the page asks of it."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_trellis.export import versions

__all__ = ["Scores", "ServedModel", "score"]

_NEEDED = frozenset({"tokenize", "score", "prefill", "generate"})
_ASSERTION = re.compile(r"assertion failed: \[(.*?)\](?: \[(.*)\])?\n", re.DOTALL)


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


def _decoded(values: np.ndarray) -> np.ndarray:
    if values.dtype != object:
        return values
    return np.vectorize(bytes.decode, otypes=[object])(values)


def _refusal(message: str) -> str:
    """Returns what an endpoint's check said, without where in the graph it stands."""
    match = _ASSERTION.search(message)
    return " ".join(filter(None, match.groups())) if match else message
