"""A model on a server that speaks TensorFlow Serving's protocols.

`Grpc` and `Rest` carry requests, `Model` checks them and their answers.
"""

import http
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any
from urllib import parse

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from trainers.serving import exchange, terminal
from trainers.serving.writing import decoded

MOST_BYTES = 64 * 2**20  # of an answer; a cache may exceed gRPC's own limit, 4 MiB

Arrays = Mapping[str, np.ndarray]
_METADATA = "signature_def"
# What the signatures of a language model return: dtypes and ranks.
_RETURNED: Mapping[str, Mapping[str, tuple[tf.DType, int]]] = {
    "serving_default": {
        "next_tokens": (tf.string, 2),
        "next_probabilities": (tf.float32, 2),
        "unknown": (tf.int32, 1),
    },
    "tokenize": {
        "ids": (tf.int32, 2),
        "lengths": (tf.int32, 1),
        "unknown": (tf.int32, 1),
    },
    "score": {
        "tokens": (tf.string, 2),
        "words": (tf.string, 2),
        "nll": (tf.float32, 2),
        "count": (tf.int32, 1),
    },
    "generate": {
        "ids": (tf.int32, 2),
        "lengths": (tf.int32, 1),
        "text": (tf.string, 1),
    },
}
_Specs = dict[str, tf.TensorSpec]
# Counts, and the output whose columns they count.
_COUNTS = {"lengths": "ids", "count": "tokens"}


class RemoteError(ValueError):
    """There is no answer, or none that can be used; the message, a line, says why.

    Args:
        reason: why; it may contain the server's own words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(terminal.line(" ".join(reason.split())))


class Transport:
    """How requests get to one model on one server.

    All methods raise RemoteError where there is no answer, or none that can be used.

    Args:
        address: HOST:PORT.
        model: the model's name.
        deadline: seconds that each request may take.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        self.address, self.model, self.deadline = address, model, deadline

    def unreachable(self, reason: Any) -> RemoteError:
        """Returns the error for a server that gives no answer."""
        return RemoteError(f"no answer from {self.address}: {reason}")

    def too_late(self) -> RemoteError:
        """Returns the error for an answer that did not come before the deadline."""
        return RemoteError(
            f"no answer from {self.address} within {self.deadline:g} seconds"
        )

    def refused(self, code: str, reason: Any) -> RemoteError:
        """Returns the error for a server that refuses a request."""
        return RemoteError(f"{self.address} answered {code} for {self.model}: {reason}")

    def malformed(self, reason: Any) -> RemoteError:
        """Returns the error for an answer that cannot be used."""
        return RemoteError(
            f"malformed answer of {self.model} on {self.address}: {reason}"
        )


class Grpc(Transport):
    """The gRPC `PredictionService`; see `Transport`."""

    def __init__(self, address: str, model: str, deadline: float) -> None:
        super().__init__(address, model, deadline)
        options = [("grpc.max_receive_message_length", MOST_BYTES)]
        self._channel = grpc.insecure_channel(address, options)

    def metadata(self) -> SignatureDefMap:
        """Returns what the server says of the model's signatures."""
        request = GetModelMetadataRequest(metadata_field=[_METADATA])
        request.model_spec.name = self.model
        response = self._ask("GetModelMetadata", request, GetModelMetadataResponse)
        try:
            return SignatureDefMap.FromString(response.metadata[_METADATA].value)
        except message.DecodeError:
            raise self.malformed("it does not tell the model's signatures") from None

    def predict(self, signature: str, inputs: Arrays) -> dict[str, Any]:
        """Calls a signature.

        Args:
            signature: its name.
            inputs: by name, the batch first; strings as objects.

        Returns:
            the outputs by name, as arrays.
        """
        request = PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = self._ask("Predict", request, PredictResponse)
        try:
            return {
                name: _from_proto(proto) for name, proto in response.outputs.items()
            }
        except (TypeError, ValueError) as error:  # the values do not fill the shape
            raise self.malformed(error) from None

    def _ask(self, method: str, request: message.Message, expected: Any) -> Any:
        # gRPC logs a traceback of what it cannot decode. So it returns bytes here.
        call = self._channel.unary_unary(
            f"/tensorflow.serving.PredictionService/{method}"
        )
        try:
            answer = call(request.SerializeToString(), timeout=self.deadline)
            return expected.FromString(answer)
        except message.DecodeError as error:
            raise self.malformed(error) from None
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise self.too_late()
        if code == grpc.StatusCode.UNAVAILABLE:
            raise self.unreachable(details)
        raise self.refused(code.name, details)


class Rest(Transport):
    """The REST API; see `Transport`."""

    def metadata(self) -> SignatureDefMap:
        """Returns what the server says of the model's signatures."""
        answer = self._ask("GET", "/metadata")
        try:
            return json_format.ParseDict(
                answer["metadata"][_METADATA], SignatureDefMap()
            )
        except (KeyError, TypeError, RecursionError, json_format.ParseError):
            raise self.malformed("it does not tell the model's signatures") from None

    def predict(self, signature: str, inputs: Arrays) -> dict[str, Any]:
        """Calls a signature as `Grpc` does; returns the outputs by name, as lists."""
        columns = {name: value.tolist() for name, value in inputs.items()}
        answer = self._ask(
            "POST", ":predict", {"signature_name": signature, "inputs": columns}
        )
        outputs = answer.get("outputs") if isinstance(answer, dict) else None
        if not isinstance(outputs, dict):
            raise self.malformed("it has no outputs by name")
        return outputs

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Any:
        path = f"/v1/models/{parse.quote(self.model, safe='')}{path}"
        data = None if body is None else json.dumps(body).encode()
        try:
            status, reason, content = exchange.ask(
                method, self.address, path, data, self.deadline, MOST_BYTES
            )
        except TimeoutError:
            raise self.too_late() from None
        except exchange.AnswerError as error:
            raise self.unreachable(error) from None
        if status != http.HTTPStatus.OK:  # a redirect too: it is not followed
            raise self.refused(f"{status} {reason}", _error_message(content))
        try:
            return json.loads(content.decode())
        except (ValueError, RecursionError) as error:
            raise self.malformed(error) from None


class Model:
    """A model on a server.

    Args:
        transport: what leads there.

    Raises:
        RemoteError: the server does not have it.
    """

    def __init__(self, transport: Grpc | Rest) -> None:
        self._transport = transport
        self._signatures = transport.metadata().signature_def

    def __call__(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Returns a signature's answer.

        Args:
            signature: its name.
            **inputs: by name, the batch first.

        Returns:
            the outputs by name, each of the dtype and the shape that the signature promises, and
            with as many rows as the inputs have; strings are `str`.

        Raises:
            RemoteError: the model has no such signature, or there is no answer, or none like that.
                Numbers must be finite but in a cache, and counts must fit what they count.
        """
        taken, promised = self._specs(signature, inputs)
        arrays = {
            name: self._cast(name, inputs[name], spec.dtype)
            for name, spec in taken.items()
        }
        outputs = self._transport.predict(signature, arrays)
        if {*outputs} != {*promised}:
            answered = f"{_names(outputs)} instead of {_names(promised)}"
            raise self._transport.malformed(f"{signature!r} answered {answered}")
        rows = len(next(iter(arrays.values())))
        answer = {
            name: self._read(name, outputs[name], promised[name], rows)
            for name in outputs
        }
        for name in _RETURNED.get(signature, {}):
            self._check_values(name, answer)
        return answer

    def _specs(
        self, signature: str, inputs: Mapping[str, Any]
    ) -> tuple[_Specs, _Specs]:
        """Returns the inputs and outputs of a signature, which must be the language model's."""
        if signature not in self._signatures:
            raise self._other(
                f"it has no signature {signature!r}, only {_names(self._signatures)}"
            )
        proto = self._signatures[signature]
        if {*proto.inputs} != {*inputs}:
            takes = f"takes {_names(proto.inputs)}, not {_names(inputs)}"
            raise self._other(f"its signature {signature!r} {takes}")
        try:
            taken, promised = _specs(proto.inputs), _specs(proto.outputs)
        except (TypeError, ValueError) as error:
            raise self._transport.malformed(error) from None
        for name, (dtype, rank) in _RETURNED.get(signature, {}).items():
            spec = promised.get(name)
            if spec is None or (spec.dtype, spec.shape.rank) != (dtype, rank):
                returns = f"does not return `{name}` {dtype.name} of rank {rank}"
                raise self._other(f"its signature {signature!r} {returns}")
        return taken, promised

    def _cast(self, name: str, value: Any, dtype: tf.DType) -> np.ndarray:
        try:
            return np.asarray(value, dtype.as_numpy_dtype)
        except (TypeError, ValueError, OverflowError):
            raise self._other(
                f"its `{name}` is {dtype.name}, and cannot be {value}"
            ) from None

    def _other(self, reason: str) -> RemoteError:
        return RemoteError(
            f"{self._transport.model} on {self._transport.address} is no language model that "
            f"keras_trellis exported: {reason}"
        )

    def _read(
        self, name: str, value: Any, spec: tf.TensorSpec, rows: int
    ) -> np.ndarray:
        expected = tf.TensorShape([rows]).concatenate(spec.shape[1:])
        try:
            is_array = isinstance(value, np.ndarray)
            array = decoded(value) if is_array else _array(value, spec.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            reason = f"`{name}` is no {spec.dtype.name}: {error}"
            raise self._transport.malformed(reason) from None
        dtype = tf.as_dtype(array.dtype)
        if dtype != spec.dtype or not expected.is_compatible_with(array.shape):
            reason = (
                f"`{name}` must be {spec.dtype.name} {expected}. Received: {dtype.name}"
            )
            raise self._transport.malformed(f"{reason} {array.shape}")
        return array

    def _check_values(self, name: str, answer: Arrays) -> None:
        value = answer[name]
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise self._transport.malformed(f"`{name}` must be finite numbers")
        if counted := _COUNTS.get(name):
            most = answer[counted].shape[1]
            if value.min() < 0 or value.max() > most:
                reason = f"`{name}` must be from 0 to {most}, the columns of `{counted}`. Received:"
                raise self._transport.malformed(f"{reason} {value.tolist()}")


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _specs(infos: Mapping[str, Any]) -> _Specs:
    """Returns what a signature says of its tensors.

    Raises:
        TypeError, ValueError: it says what cannot be.
    """
    return {
        name: tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype))
        for name, info in infos.items()
    }


def _from_proto(proto: Any) -> np.ndarray:
    """Returns a tensor as an array.

    Raises:
        TypeError, ValueError: it is none, or larger than an answer may be. One number may fill a
            tensor of any shape, so that the answer's length does not limit it.
    """
    sizes = [dimension.size for dimension in proto.tensor_shape.dim]
    if min(sizes, default=0) < 0 or max(math.prod(sizes), *sizes, 0) > MOST_BYTES // 4:
        raise ValueError(f"a tensor of shape {sizes}")
    return tf.make_ndarray(proto)


def _array(value: Any, dtype: tf.DType) -> np.ndarray:
    """Returns a list from JSON as an array, which no number is rounded or cut for."""
    if dtype == tf.string:
        array = np.array(value, object)
        if not all(isinstance(item, str) for item in array.flat):
            raise TypeError("not all of it is text")
        return array
    array = np.array(value)
    kinds = "iuf" if dtype.is_floating else "iu"
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"it has values of {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype.as_numpy_dtype)
    lost = cast != array
    if dtype.is_floating:
        lost = np.isfinite(array) & ~np.isfinite(cast)
    if lost.any():
        raise TypeError(f"it has {array[lost].flat[0]}")
    return cast


def _error_message(body: bytes) -> str:
    """Returns the message of an error's body, which the server does not always make JSON of."""
    text = body.decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
