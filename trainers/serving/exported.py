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
from trainers.serving.writing import decoded

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
        needed = {*needed}
        _check_files(version)
        _check_signatures(version, needed, _signatures(version))
        try:
            module = tf.saved_model.load(version)
        except (OSError, tf.errors.OpError) as error:
            line = str(error).partition("\n")[0]
            raise ValueError(f"{version} cannot be loaded: {line}") from error
        self._module = module  # it owns the variables of the signatures
        _check_signatures(version, needed, module.signatures)

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


def _check_signatures(
    version: str, needed: set[str], signatures: Iterable[str] | None
) -> None:
    if signatures is None:
        return
    missing = needed - {*signatures}
    if missing:
        raise ValueError(
            f"{version} is no language model: it lacks the signatures "
            f"{', '.join(sorted(missing))}, and has {', '.join(sorted(signatures))}"
        )


def _signatures(version: str) -> list[str] | None:
    """Returns the names of a SavedModel's signatures without loading it, which would run it.

    None: there is no such file, or it is damaged, which loading it says too.
    """
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((to_path(version) / _GRAPH).read_bytes())
    except (OSError, message.DecodeError):
        return None
    hidden = "__saved_model_init_op"  # by its name TensorFlow 1 finds what to run first
    names = {name for graph in saved.meta_graphs for name in graph.signature_def}
    return sorted(names - {hidden})


def _refusal(message: str) -> str:
    """Returns the message of an endpoint's check, without its place in the graph."""
    match = _ASSERTION.search(message)
    return " ".join(filter(None, match.groups())) if match else message
