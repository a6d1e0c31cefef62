"""From signatures to a version of a served model."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from keras_trellis.export import lowering, versions
from keras_trellis.export.checks import Tensors, same_batch
from keras_trellis.export.weights import Weights
from keras_trellis.formats import manifest
from keras_trellis.version import __version__

# TensorFlow Serving's names: https://www.tensorflow.org/tfx/serving/saved_model_warmup
_EXTRA = "assets.extra"
_WARM_UP = "tf_serving_warmup_requests"
_CARD = "model_card.md"

ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction


class Signature(NamedTuple):
    """A function that a server calls.

    Attributes:
        function: takes the inputs by name, all of one batch size; returns the outputs by name.
        specs: the inputs' shapes and dtypes; the batch is the first dimension of each.
        example: a request of one row.
    """

    function: Callable[..., Tensors]
    specs: Mapping[str, tf.TensorSpec]
    example: Mapping[str, Any]

    @classmethod
    def from_example(
        cls,
        function: Callable[..., Tensors],
        example: Mapping[str, Any],
        specs: Mapping[str, tf.TensorSpec] | None = None,
    ) -> Signature:
        """Returns the signature of an example, whose sizes may vary unless `specs` has them."""
        shapes = {}
        for name, value in example.items():
            dtype = tf.string if value.dtype == object else value.dtype
            shapes[name] = tf.TensorSpec([None] * len(value.shape), dtype, name)
        return cls(function, shapes | dict(specs or {}), example)


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


def check_requirements() -> None:
    """Raises ImportError unless the library that writes the warm-up requests is installed."""
    try:
        import tensorflow_serving.apis.prediction_log_pb2  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "an export needs tensorflow-serving-api, which writes its warm-up requests: "
            "pip install 'keras_trellis[serving]'"
        ) from error


def save(
    signatures: Mapping[str, Signature],
    weights: Weights,
    parts: Mapping[str, tf.Module],
    path: str,
    describe: Callable[[Mapping[str, ConcreteFunction], Mapping[str, str]], str],
    beside: Companions,
) -> str:
    """Writes a new version of a served model.

    Args:
        signatures: by name.
        weights: the weights that the functions find in their model.
        parts: the other things that the functions use, such as a vocabulary.
        path: the model's folder.
        describe: from the traced signatures and rows of the model card to the card.
        beside: the files beside the SavedModel.

    Returns:
        the version's folder.

    Raises:
        ValueError: an example has an answer that is not finite.
    """
    module = tf.Module()
    module.weights = weights.stored
    for name, part in parts.items():
        setattr(module, name, part)
    traced: dict[Callable, ConcreteFunction] = {}
    functions = {}
    for name, signature in signatures.items():
        if signature.function not in traced:
            traced[signature.function] = _trace(signature, weights)
        functions[name] = traced[signature.function]
        if len(signature.specs) > 1:
            # `keras.layers.TFSMLayer` passes one argument: here it is a dictionary. Save the
            # traced function, as TensorFlow would trace another one again.
            setattr(module, name, functions[name])
    for name, signature in signatures.items():
        _check_answer(name, functions[name], signature.example)

    def write(folder: str) -> None:
        tf.saved_model.save(module, folder, signatures=functions)
        # What TensorFlow could not remove it leaves behind, and says nothing.
        temporary = os.path.join(folder, "variables", "variables_temp")
        if os.path.isdir(temporary):
            shutil.rmtree(temporary)
        size = _size(folder)
        extra = os.path.join(folder, _EXTRA)
        os.makedirs(extra)
        _write_warm_up(os.path.join(extra, _WARM_UP), signatures)
        runtime = beside.write(Path(folder))
        facts = {
            "Size": f"{size / 2**20:.1f} MiB",
            "Without TensorFlow": described(Path(folder), runtime),
            "Fingerprint": str(beside.fingerprint),
        }
        with open(os.path.join(extra, _CARD), "w", encoding="utf-8") as file:
            file.write(describe(functions, facts))
        beside.finish(Path(folder), runtime)

    return versions.publish(write, path)


def _trace(signature: Signature, weights: Weights) -> ConcreteFunction:
    def function(inputs: Tensors) -> Tensors:
        shaped = {}
        for name, spec in signature.specs.items():
            # A server may feed a graph other shapes than those that it was built for.
            shaped[name] = tf.ensure_shape(inputs[name], spec.shape, name=name)
        if len(shaped) > 1:
            shaped = same_batch(shaped)
        return weights.call(signature.function, **shaped)

    specs = [dict(signature.specs)]
    return tf.function(
        function, input_signature=specs, autograph=False
    ).get_concrete_function()


def _check_answer(
    name: str, function: ConcreteFunction, example: Mapping[str, Any]
) -> None:
    """Refuses NaN and infinities, which a server would warm up by, and JSON cannot say."""
    specs = function.structured_outputs
    numbers = [output for output in specs if specs[output].dtype.is_floating]
    if not numbers:
        return
    answer = function(tf.nest.map_structure(tf.constant, dict(example)))
    for output in numbers:
        values = answer[output].numpy()
        wrong = values[~np.isfinite(values)]
        if wrong.size:
            raise ValueError(
                "`model` must answer the warm-up requests by finite numbers. "
                f"Received: {wrong[0]} in the output {output!r} of the signature {name!r}"
            )


def _write_warm_up(path: str, signatures: Mapping[str, Signature]) -> None:
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    with tf.io.TFRecordWriter(path) as writer:
        for name, signature in signatures.items():
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = name
            for key, value in signature.example.items():
                proto = tf.make_tensor_proto(np.asarray(value))
                request.inputs[key].CopyFrom(proto)
            log = prediction_log_pb2.PredictLog(request=request)
            record = prediction_log_pb2.PredictionLog(predict_log=log)
            writer.write(record.SerializeToString())


def _size(folder: str) -> int:
    return sum(
        path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()
    )
