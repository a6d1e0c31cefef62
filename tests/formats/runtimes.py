"""How Keras writes each format, and how the program that the format is made for runs it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

import keras
import numpy as np
import pytest

KERAS_EXPORTS = pytest.mark.skipif(
    tuple(map(int, keras.__version__.split(".")[:2])) < (3, 13),
    reason="Keras exports to all of the formats from 3.13 on",
)
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "torch"}
BACKEND = BACKENDS[keras.backend.backend()]

Run = Callable[[list[np.ndarray]], list[np.ndarray]]
"""From the inputs of a model, in the order of their names, to its outputs."""


def saved_model(model: keras.Model, folder: Path) -> Run:
    """TensorFlow."""
    tf = importlib.import_module("tensorflow")
    model.export(folder / "model", verbose=False)
    loaded = tf.saved_model.load(folder / "model")
    return lambda values: [np.asarray(each) for each in loaded.serve(*values)]


def litert(model: keras.Model, folder: Path) -> Run:
    """LiteRT, which has its own operations alone."""
    interpreter = importlib.import_module("ai_edge_litert.interpreter")
    path = folder / "model.tflite"
    model.export(path, format="litert", verbose=False)
    runner = interpreter.Interpreter(str(path)).get_signature_runner()
    names = sorted(runner.get_input_details())
    # output_0, output_1, ...
    outputs = sorted(runner.get_output_details(), key=lambda name: int(name[7:]))

    def run(values: list[np.ndarray]) -> list[np.ndarray]:
        found = runner(**dict(zip(names, values, strict=True)))
        return [found[name] for name in outputs]

    return run


def onnx(model: keras.Model, folder: Path) -> Run:
    """ONNX Runtime."""
    onnxruntime = importlib.import_module("onnxruntime")
    path = folder / "model.onnx"
    model.export(path, format="onnx", verbose=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # an exception says it as well
    session = onnxruntime.InferenceSession(str(path), options)
    names = sorted(each.name for each in session.get_inputs())
    return lambda values: session.run(None, dict(zip(names, values, strict=True)))


def openvino(model: keras.Model, folder: Path) -> Run:
    """OpenVINO on the processor, in float32."""
    os.environ["CI"] = "true"  # else it reports each conversion to its makers
    runtime = importlib.import_module("openvino")
    path = str(folder / "model.xml")  # no Path: Keras looks for its end
    model.export(path, format="openvino", verbose=False)
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = runtime.Core().compile_model(path, "CPU", options)
    # What follows the outputs are values that the network leaves unused.
    count = len(model.outputs)

    def run(values: list[np.ndarray]) -> list[np.ndarray]:
        found = compiled(values)
        return [found[place] for place in range(count)]

    return run


def exported_program(model: keras.Model, folder: Path) -> Run:
    """torch, of a model of one input."""
    torch = importlib.import_module("torch")
    path = folder / "model.pt2"
    sizes = {0: torch.export.Dim("batch", min=2)}
    if model.inputs[0].shape[1] is None:
        sizes[1] = torch.export.Dim("steps", min=2)
    # Without these, Keras exports for one row.
    model.export(path, format="torch", verbose=False, dynamic_shapes=sizes)
    program = torch.export.load(path).module()

    def run(values: list[np.ndarray]) -> list[np.ndarray]:
        outputs = program(*map(torch.tensor, values))
        return [output.detach().numpy() for output in outputs]

    return run


FORMATS: dict[str, Callable[[keras.Model, Path], Run]] = {
    "SavedModel": saved_model,
    "LiteRT": litert,
    "ONNX": onnx,
    "OpenVINO": openvino,
    "torch.export": exported_program,
}
PACKAGES = {
    "SavedModel": {"": ["tensorflow"]},
    "LiteRT": {"": ["ai-edge-litert"]},
    "ONNX": {
        "": ["onnx", "onnxruntime"],
        "TensorFlow": ["tf2onnx"],
        "JAX": ["jax2onnx"],
    },
    "OpenVINO": {"": ["openvino"]},
    "torch.export": {"": ["torch"]},
}
"""What a format needs: "", on each backend; else on that one."""
NOT_OFFERED = {
    "TensorFlow": ["torch.export"],
    "JAX": ["LiteRT", "torch.export"],
    "torch": ["LiteRT"],  # of one row and known T alone, by a package of many others
}
"""The formats that Keras does not write from a backend."""


def backends(form: str) -> list[str]:
    """Returns the backends from which Keras writes a format."""
    return [name for name in BACKENDS.values() if form not in NOT_OFFERED[name]]


def missing(names: Iterable[str]) -> list[str]:
    """Returns the packages of formats that are not installed."""
    needed = []
    for name in names:
        needed += PACKAGES[name][""] + PACKAGES[name].get(BACKEND, [])
    return [package for package in needed if version(package) is None]


def version(package: str) -> str | None:
    """Returns the version of a package that is installed, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
