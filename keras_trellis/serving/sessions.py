"""ONNX models, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats import telemetry
from keras_trellis.formats.manifest import ManifestError
from keras_trellis.formats.names import NEXT

Arrays = dict[str, np.ndarray]

# What ONNX calls otherwise than NumPy.
_NAMES = {"float": "float32", "double": "float64"}


class Spec(NamedTuple):
    """What an input must be; a size that is no number may be any."""

    dtype: np.dtype[Any]
    sizes: Sequence[Any]

    def __str__(self) -> str:
        return f"{self.dtype.name} of shape {[*self.sizes]}"

    def fits(self, other: Spec) -> bool:
        """Returns whether two tensors may be the same one."""
        return (self.dtype, len(self.sizes)) == (other.dtype, len(other.sizes)) and all(
            not isinstance(a, int) or not isinstance(b, int) or a == b
            for a, b in zip(self.sizes, other.sizes, strict=True)
        )

    def checked(self, name: str, value: Any) -> np.ndarray:
        """Returns an input as an array.

        Raises:
            ValueError: it has another shape, or numbers that the dtype does not hold.
        """
        try:
            given = np.asarray(value)
            array = given.astype(self.dtype)
        except (TypeError, ValueError):
            raise ValueError(
                f"`{name}` must be {self.dtype.name}. Received: {type(value).__name__}"
            ) from None
        if not self.fits(Spec(array.dtype, array.shape)):
            sizes = [size if isinstance(size, int) else "any" for size in self.sizes]
            raise ValueError(
                f"`{name}` must be of shape {sizes}. Received: {list(array.shape)}"
            )
        if array.dtype.kind in "iu" and not np.array_equal(array, given):
            raise ValueError(
                f"`{name}` must be {array.dtype.name}. Received: {given.dtype} with "
                f"{given[array != given].flat[0]}"
            )
        return array


class Session:
    """A function that an ONNX file holds.

    Args:
        path: the file.
        threads: how many threads compute an operation; 0: as many as there are cores.

    Attributes:
        specs: what the inputs must be, by name.
        returned: what the outputs are, by name; see `__call__`.

    Raises:
        ManifestError: ONNX Runtime does not load it.
    """

    def __init__(self, path: Path, threads: int) -> None:
        telemetry.refuse()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # A thread that waits for the next operation would take a core's time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # errors
        providers = ["CPUExecutionProvider"]
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers)
            inputs, outputs = session.get_inputs(), session.get_outputs()
            self.specs = {value.name: _spec(value) for value in inputs}
            self.returned = {
                value.name.removeprefix(NEXT): _spec(value) for value in outputs
            }
        except Exception as error:  # ONNX Runtime's have no other class in common
            first = str(error).partition("\n")[0]
            raise ManifestError(
                f"{path} must be a model that ONNX Runtime loads. Received: {first}"
            ) from error
        self._session = session
        self._outputs = [value.name for value in outputs]

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs by name; those of `NEXT` have the names of their inputs."""
        given = {name: inputs[name] for name in self.specs}
        values = self._session.run(self._outputs, given)
        return dict(zip(self.returned, values, strict=True))


def _spec(value: Any) -> Spec:
    """Returns what an input or output of a session is."""
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    return Spec(np.dtype(_NAMES.get(kind, kind)), value.shape)
