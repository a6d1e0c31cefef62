"""A version of an exported language model, loaded in this process."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from trainers.serving.writing import decoded

_ASSERTION = re.compile(r"assertion failed: \[(.*?)\](?: \[(.*)\])?\n", re.DOTALL)


class ExportedModel:
    """The signatures of a language model, as functions of NumPy arrays.

    Args:
        version: the folder of the version.
        needed: the signatures that the caller asks for.

    Raises:
        ValueError: the folder has no language model.
    """

    def __init__(self, version: str, needed: Iterable[str]) -> None:
        try:
            module = tf.saved_model.load(version)
        except (OSError, tf.errors.OpError) as error:
            line = str(error).partition("\n")[0]
            raise ValueError(f"{version} cannot be loaded: {line}") from error
        self._module = module  # it owns the variables of the signatures
        missing = {*needed} - {*module.signatures}
        if missing:
            raise ValueError(
                f"{version} is no language model: it lacks the signatures "
                f"{', '.join(sorted(missing))}, and has {', '.join(sorted(module.signatures))}"
            )

    @property
    def signatures(self) -> frozenset[str]:
        """The names of the signatures."""
        return frozenset(self._module.signatures)

    def outputs(self, signature: str) -> frozenset[str]:
        """Returns the names of a signature's outputs."""
        return frozenset(self._module.signatures[signature].structured_outputs)

    def __call__(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Calls a signature.

        Args:
            signature: its name.
            **inputs: by name; they are converted to the signature's dtypes.

        Returns:
            the outputs by name; texts are strings.

        Raises:
            ValueError: the model refuses the inputs; the message is the model's.
        """
        function = self._module.signatures[signature]
        _, specs = function.structured_input_signature
        tensors = {
            name: tf.constant(value, specs[name].dtype)
            for name, value in inputs.items()
        }
        try:
            outputs = function(**tensors)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(_refusal(error.message)) from error
        return {name: decoded(value.numpy()) for name, value in outputs.items()}


def _refusal(message: str) -> str:
    """Returns the message of an endpoint's check, without its place in the graph."""
    match = _ASSERTION.search(message)
    return " ".join(filter(None, match.groups())) if match else message
