"""Exports of a streamed model: a SavedModel, a LiteRT file, an ONNX file, by TensorFlow."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.backend.tensorflow import onnx_model
from keras_trellis.formats import rings
from keras_trellis.models.streamed import c_source, running
from keras_trellis.models.streamed.costs import iterates
from keras_trellis.models.streamed.plan import Plan

_SIGNATURE = "serving_default"
_KEEPERS = ("graph", "host")
_RECORDED = 64
"""How many chunks the recording beside a C form has."""


def write(
    streamed: Any,
    plan: Plan,
    path: str | os.PathLike[str],
    form: str,
    steps: int,
    batch_size: int | None,
    cache: str,
) -> None:
    """Writes a chunk's pass; see `StreamedModel.export`."""
    writer = WRITERS.get(form)
    if writer is None:
        raise arguments.refusal("format", form, f"one of {[*WRITERS]}")
    if cache not in _KEEPERS:
        raise arguments.refusal("cache", cache, f"one of {[*_KEEPERS]}")
    if form == "c":
        if batch_size not in (None, 1):
            raise arguments.refusal("batch_size", batch_size, "1 in format='c'")
        cache = "host"  # the rings are part of what is written
    path = os.fspath(path)
    if form != "tf_saved_model":  # the other formats, or their runtimes, lack loops
        plan = plan.stepwise()
    chunk = Chunk(streamed, plan, steps, keeps_past=cache == "host")
    table = None if form == "c" else chunk.table
    files = [path] if table is None else [path, rings.table_path(path)]
    for file in files:
        if tf.io.gfile.exists(file):
            raise ValueError(
                f"`path` must not be there yet. Received: path={path!r}, and {file} is there"
            )
    if batch_size is not None:
        batch_size = arguments.positive("batch_size", batch_size)
    writer(chunk, batch_size, path)
    # Last: where a table lies, its graph does.
    if table is not None:
        with tf.io.gfile.GFile(rings.table_path(path), "w") as file:
            file.write(table.to_json())


class Chunk:
    """The pass over one chunk, as a function of tensors with names.

    Args:
        streamed: the streamed model.
        plan: its plan.
        steps: the number of steps of a chunk.
        keeps_past: whether the host keeps the past, by `formats.rings`.

    Attributes:
        table: the delay lines that the host keeps; None if the graph has the whole cache.
        past: the sizes of a row and the dtype of each input but the chunk, by name: the cache, or
            what the chunk reads of each pool.
    """

    def __init__(
        self, streamed: Any, plan: Plan, steps: int, keeps_past: bool = False
    ) -> None:
        self.streamed = streamed
        self.plan = plan
        self.steps = steps
        self.table = running.line_table(plan, steps) if keeps_past else None
        self.past: dict[str, tuple[Sequence[int], str]] = {}
        if self.table is None:
            for name, spec in plan.specs.items():
                self.past[name] = spec.shape[1:], spec.dtype
        else:
            for pool in self.table.pools:
                sizes = [len(pool.read.line), *pool.shape]
                self.past[pool.name] = sizes, pool.dtype

    def specs(self, batch_size: int | None) -> list[tf.TensorSpec]:
        """Returns its inputs: the chunk, then the past."""
        inputs = [
            ([self.steps, *tensor.shape[2:]], tensor.dtype)
            for tensor in self.streamed.model.inputs
        ]
        known = dict(zip(self.streamed.input_names, inputs, strict=True)) | self.past
        return [
            tf.TensorSpec([batch_size, *sizes], dtype, name)
            for name, (sizes, dtype) in known.items()
        ]

    def function(self, batch_size: int | None) -> Any:
        """Returns the graph; B is `batch_size`, None for any."""
        count = len(self.plan.inputs)

        def run(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            # In the order of `specs`: the chunk, then the past.
            inputs = list(tensors[:count])
            past = dict(zip(self.past, tensors[count:], strict=True))
            rows = tf.shape(inputs[0])[0] if batch_size is None else batch_size
            outputs, after = self._run(inputs, past, rows)
            return dict(zip(self.streamed.output_names, outputs, strict=True)) | after

        specs = self.specs(batch_size)
        return tf.function(run, input_signature=specs, autograph=False)

    def _run(
        self, inputs: list[tf.Tensor], past: dict[str, tf.Tensor], rows: Any
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        if self.table is None:
            outputs, after = self.plan.run(inputs, [None] * len(inputs), past, rows)
            return outputs, {name: after[name] for name in past}
        outputs, made = running.advance(self.plan, self.table, inputs, past, rows)
        return outputs, {rings.new(name): made[name] for name in past}


def _write_saved_model(chunk: Chunk, batch_size: int | None, path: str) -> None:
    # In a SavedModel of a tf.Module that holds the model LiteRT reads other weights.
    archive = keras.export.ExportArchive()
    archive.track(chunk.streamed.model)
    archive.add_endpoint(_SIGNATURE, chunk.function(batch_size))
    archive.write_out(path, verbose=False)


def _check_precision(form: str, chunk: Chunk) -> None:
    """Refuses other precisions than float32, which the runtimes lack operations for."""
    dtypes = {}
    for tensor in chunk.streamed.model.inputs:
        dtypes[f"the input {tensor.name!r}"] = tensor.dtype
    for node in chunk.plan.nodes:
        dtype = getattr(node.rule.layer, "compute_dtype", "float32")
        dtypes[f"layer {node.path!r}"] = dtype
    for name, dtype in dtypes.items():
        if "float" in dtype and dtype != "float32":
            raise ValueError(
                f"format={form!r} holds models in float32 alone. Copy the weights to the same "
                f"model in float32, by `set_weights`. Received: {name} in {dtype}"
            )


def _write_litert(chunk: Chunk, batch_size: int | None, path: str) -> None:
    _check_precision("litert", chunk)
    # Without SELECT_TF_OPS it has its own operations alone.
    with tempfile.TemporaryDirectory() as folder:
        _write_saved_model(chunk, batch_size or 1, folder)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        try:
            content = converter.convert()
        except Exception as error:
            raise _no_conversion("litert", chunk, error) from error
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)


def _onnx(form: str, chunk: Chunk, batch_size: int | None) -> Any:
    """Returns the pass as an ONNX model."""
    try:
        importlib.import_module("tf2onnx")
    except ImportError as error:
        raise ImportError(f"format={form!r} needs the package tf2onnx") from error
    _check_precision(form, chunk)
    for node in chunk.plan.nodes:
        if iterates(node.rule.layer):
            raise ValueError(
                f"format={form!r} cannot hold {node.path!r}: ONNX Runtime refuses the iteration of "
                "an EquilibriumTrellisLayer. Write format='litert' or 'tf_saved_model'."
            )
    function = chunk.function(batch_size)
    try:
        return onnx_model(function.python_function, chunk.specs(batch_size))
    except Exception as error:
        raise _no_conversion(form, chunk, error) from error


def _write_onnx(chunk: Chunk, batch_size: int | None, path: str) -> None:
    model = _onnx("onnx", chunk, batch_size)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(model.SerializeToString())


def _write_c(chunk: Chunk, batch_size: int | None, path: str) -> None:
    model = _onnx("c", chunk, 1)
    table = running.line_table(chunk.plan, chunk.steps)
    try:
        files = c_source.sources(
            model.graph,
            table,
            chunk.streamed.input_names,
            chunk.streamed.output_names,
            c_source.identifier(os.path.basename(os.path.normpath(path))),
        )
    except c_source.UnknownOperationError as error:
        raise _no_conversion("c", chunk, error) from error
    files |= _recording(chunk)
    tf.io.gfile.makedirs(path)
    for name, content in files.items():
        with tf.io.gfile.GFile(os.path.join(path, name), "w") as file:
            file.write(content)


def _recording(chunk: Chunk) -> dict[str, str]:
    """Returns numbers to stream, and what the model answers to them, a line for each chunk."""
    random = np.random.default_rng(0)
    given, answers = [], []
    cache = chunk.streamed.get_initial_cache(1)
    for _ in range(_RECORDED):
        inputs = [
            random.normal(size=[1, chunk.steps, *tensor.shape[2:]]).astype("float32")
            for tensor in chunk.streamed.model.inputs
        ]
        outputs, cache = chunk.plan.run(inputs, [None] * len(inputs), cache, 1)
        given.append(_csv(inputs))
        answers.append(_csv(outputs))
    return {"recording.csv": "".join(given), "expected.csv": "".join(answers)}


def _csv(tensors: Sequence[Any]) -> str:
    numbers = np.concatenate([np.asarray(tensor).reshape(-1) for tensor in tensors])
    return ",".join(f"{number:.9g}" for number in numbers) + "\n"


def _no_conversion(form: str, chunk: Chunk, error: Exception) -> ValueError:
    """Returns the error of a converter as one of `export`."""
    kinds = sorted({type(node.rule.layer).__name__ for node in chunk.plan.nodes})
    words = str(error).split()
    message = " ".join(words)[:300]
    return ValueError(
        f"format={form!r} cannot hold this model, of the layers {', '.join(kinds)}. "
        f"Its converter says: {message}"
    )


WRITERS: dict[str, Callable[[Chunk, int | None, str], None]] = {
    "tf_saved_model": _write_saved_model,
    "litert": _write_litert,
    "onnx": _write_onnx,
    "c": _write_c,
}
"""What writes each format."""
