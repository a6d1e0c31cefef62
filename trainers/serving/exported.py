"""A version of an exported language model, loaded in this process."""

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import saved_model_pb2

from keras_trellis.formats import manifest
from trainers.data.stores import to_path

_GRAPH = "saved_model.pb"
_LOADED = ("variables/", "assets/")  # what TensorFlow reads besides
_ASSERTION = re.compile(r"assertion failed: \[(.*?)\](?: \[(.*)\])?\n", re.DOTALL)


class ExportedModel:
    """The signatures of a language model, as functions of NumPy arrays.

    Args:
        version: the folder of the version.
        needed: the signatures that the caller asks for.

    Raises:
        ValueError: the folder has no language model, or not the files that were written.
    """

    def __init__(self, version: str, needed: Iterable[str]) -> None:
        _check_files(version)
        try:
            _check_signatures(version, {*needed})
            # It owns the variables of the signatures.
            self._module = tf.saved_model.load(version)
        except (OSError, message.DecodeError, tf.errors.OpError) as error:
            line = str(error).partition("\n")[0]
            raise ValueError(f"{version} cannot be loaded: {line}") from error

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
        return {name: _decoded(value.numpy()) for name, value in outputs.items()}


def _check_files(version: str) -> None:
    """Refuses files that are not those that were written, before any of them is loaded.

    An export of 0.1 has no manifest, and nothing to compare with, which a warning says.
    """
    folder = cast(Path, to_path(version))
    if not (folder / manifest.NAME).exists():
        warnings.warn(
            f"{version} has no {manifest.NAME}: whether its files were changed is not checked; "
            "export the model again",
            stacklevel=2,
        )
        return
    entries = manifest.read(folder)
    if entries.kind != "language_model":
        raise ValueError(
            f"{version} is no language model: its manifest says {entries.kind!r}"
        )
    names = [name for name in entries.files if name.startswith(_LOADED)]
    manifest.check(folder, entries, [*names, _GRAPH])


def _check_signatures(version: str, needed: set[str]) -> None:
    """Refuses a SavedModel by its signatures without loading it, which would run it."""
    saved = saved_model_pb2.SavedModel.FromString(
        (to_path(version) / _GRAPH).read_bytes()
    )
    hidden = "__saved_model_init_op"  # by its name TensorFlow 1 finds what to run first
    names = {name for graph in saved.meta_graphs for name in graph.signature_def}
    if missing := needed - names:
        raise ValueError(
            f"{version} is no language model: it lacks the signatures "
            f"{', '.join(sorted(missing))}, and has {', '.join(sorted(names - {hidden}))}"
        )


def _decoded(values: np.ndarray) -> np.ndarray:
    """Returns an array whose texts, if it has any, are strings instead of bytes."""
    if values.dtype != object:
        return values
    return np.vectorize(bytes.decode, otypes=[object])(values)


def _refusal(message: str) -> str:
    """Returns the message of an endpoint's check, without its place in the graph."""
    match = _ASSERTION.search(message)
    return " ".join(filter(None, match.groups())) if match else message
