"""From signatures to a version of a served model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_trellis.engine.tracing import for_inference
from keras_trellis.export import versions
from keras_trellis.export.weights import Weights

__all__ = ["Signature", "check_requirements", "save"]

# TensorFlow Serving's names: https://www.tensorflow.org/tfx/serving/saved_model_warmup
_EXTRA, _WARM_UP = "assets.extra", "tf_serving_warmup_requests"
_CARD = "model_card.md"


class Signature(NamedTuple):
    """What a server is asked.

    Attributes:
        function: takes the inputs by name, and returns the outputs by name.
        inputs: their shapes and dtypes; the batch is the first dimension of each.
        example: one request, a row.
    """

    function: Callable[..., dict[str, tf.Tensor]]
    inputs: Mapping[str, tf.TensorSpec]
    example: Mapping[str, tf.Tensor]


def check_requirements() -> None:
    """Raises ImportError where what writes the warm-up requests is not installed."""
    try:
        import tensorflow_serving.apis.prediction_log_pb2  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "an export holds warm-up requests, which tensorflow-serving-api writes: "
            "pip install 'keras_trellis[serving]'"
        ) from error


def save(
    signatures: Mapping[str, Signature],
    weights: Weights,
    parts: Mapping[str, tf.Module],
    path: str,
    describe: Callable[[Mapping[str, tf.types.experimental.ConcreteFunction], int], str],
) -> str:
    """Writes a new version of a served model.

    Args:
        signatures: by name.
        weights: what the functions find in their model.
        parts: what else the functions use, such as a vocabulary.
        path: the model's folder.
        describe: from the traced signatures and the bytes of the SavedModel to the model card.

    Returns:
        The version's folder.

    Raises:
        ValueError: an example has an answer that is not finite.
    """
    module = tf.Module()
    module.weights = weights.stored
    for name, part in parts.items():
        setattr(module, name, part)
    traced: dict[Callable, tf.types.experimental.ConcreteFunction] = {}
    functions = {}
    with for_inference():
        for name, signature in signatures.items():
            if signature.function not in traced:
                traced[signature.function] = _trace(signature, weights)
            if len(signature.inputs) > 1:
                # `keras.layers.TFSMLayer` has one argument to give: here it is a dictionary. What
                # is saved is what was traced: a function that can be traced would be so again.
                setattr(module, name, traced[signature.function])
            functions[name] = traced[signature.function]
    _check_answers(signatures, functions)

    def write(folder: str) -> None:
        tf.saved_model.save(module, folder, signatures=functions)
        extra = os.path.join(folder, _EXTRA)
        os.makedirs(extra)
        _write_warm_up(os.path.join(extra, _WARM_UP), signatures)
        with open(os.path.join(extra, _CARD), "w", encoding="utf-8") as file:
            file.write(describe(functions, _size(folder)))

    return versions.publish(write, path)


def _trace(signature: Signature, weights: Weights) -> tf.types.experimental.ConcreteFunction:
    def function(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # What is fed to a graph need not have the shape that the graph was built for.
        shaped = {
            name: tf.ensure_shape(inputs[name], spec.shape, name=name)
            for name, spec in signature.inputs.items()
        }
        return weights.call(signature.function, **shaped)

    specs = [dict(signature.inputs)]
    return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def _check_answers(
    signatures: Mapping[str, Signature],
    functions: Mapping[str, tf.types.experimental.ConcreteFunction],
) -> None:
    """Refuses what a server would warm up by NaN, or by infinities, which JSON has not."""
    asked = set()
    for name, signature in signatures.items():
        if signature.function in asked:  # under another name
            continue
        asked.add(signature.function)
        for output, value in functions[name](dict(signature.example)).items():
            wrong = value.numpy() if value.dtype.is_floating else np.zeros([])
            wrong = wrong[~np.isfinite(wrong)]
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
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
            log = prediction_log_pb2.PredictLog(request=request)
            record = prediction_log_pb2.PredictionLog(predict_log=log)
            writer.write(record.SerializeToString())


def _size(folder: str) -> int:
    paths = (os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)
    return sum(map(os.path.getsize, paths))
