"""The files beside a SavedModel, by which `keras_trellis.serving` runs an export."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_trellis.export import lowering
from keras_trellis.formats import manifest
from keras_trellis.version import __version__


class Companions(NamedTuple):
    """What stands beside a SavedModel.

    Attributes:
        kind: `language_model` or `classifier`, or another that TensorFlow alone runs.
        fingerprint: of the model.
        texts: the content of further files, by name.
        functions: returns what to write as ONNX; None: nothing is to be.
        scales: of weights that are rounded to int8.
        entries: further entries of `runtime` in the manifest.
        refusal: why there are no functions.
    """

    kind: str
    fingerprint: int
    texts: Mapping[str, str] = {}
    functions: Callable[[], Mapping[str, lowering.Function]] | None = None
    scales: Sequence[np.ndarray] = ()
    entries: Mapping[str, Any] = {}
    refusal: str = "it was exported without `runtime=True`"

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes the files but for the manifest; returns what it says of the runtime."""
        for name, text in self.texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        if self.functions is None:
            return {"refused": self.refusal}
        try:
            files = lowering.write(self.functions(), folder, self.scales)
        except lowering.LoweringError as error:
            message = (
                f"the model has no form that `keras_trellis.serving` runs: {error}"
            )
            warnings.warn(message, stacklevel=2)
            for path in (*folder.glob("*.onnx"), folder / lowering.onnx_weights.NAME):
                path.unlink(missing_ok=True)
            return {"refused": message}
        return {"files": [*self.texts, *files], **self.entries}

    def finish(self, folder: Path, runtime: Mapping[str, Any]) -> None:
        """Writes the manifest, once all other files are there."""
        others = {
            name: importlib.metadata.version(name)
            for name in ("onnx", "tf2onnx")
            if "refused" not in runtime
        }
        packages = {"TensorFlow": tf.__version__, **others}
        by = ", ".join(f"{name} {number}" for name, number in packages.items())
        written_by = f"keras_trellis {__version__} with {by}"
        manifest.write(folder, self.kind, written_by, self.fingerprint, runtime)


def described(folder: Path, runtime: Mapping[str, Any]) -> str:
    """Returns what a model card says of the runtime."""
    if "refused" in runtime:
        return f"no: {runtime['refused']}"
    size = sum((folder / name).stat().st_size for name in runtime["files"])
    return f"{', '.join(runtime['files'])}: {size / 2**20:.1f} MiB"
