"""A model on a server that speaks TensorFlow Serving's protocols.

`Grpc` and `Rest` carry requests, `Model` checks them and their answers.
"""

import http
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol
from urllib import parse

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from trainers.cli import terminal
from trainers.serving import exchange

__all__ = ["MOST_BYTES", "Grpc", "Model", "RemoteError", "Rest", "Transport"]

MOST_BYTES = 64 * 2**20  # of an answer; gRPC's own limit is 4 MiB, which caches pass

_METADATA = "signature_def"
_SERVICE = "/tensorflow.serving.PredictionService"
_ANSWERS = {
    "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataResponse,
    "Predict": predict_pb2.PredictResponse,
}
# What the signatures of a language model return: dtypes and ranks.
_RETURNED: Mapping[str, Mapping[str, tuple[tf.DType, int]]] = {
    "serving_default": {
        "next_tokens": (tf.string, 2),
        "next_probabilities": (tf.float32, 2),
        "unknown": (tf.int32, 1),
    },
    "tokenize": {"ids": (tf.int32, 2), "lengths": (tf.int32, 1), "unknown": (tf.int32, 1)},
    "score": {
        "tokens": (tf.string, 2),
        "words": (tf.string, 2),
        "nll": (tf.float32, 2),
        "total": (tf.float32, 1),
        "count": (tf.int32, 1),
    },
    "generate": {"ids": (tf.int32, 2), "lengths": (tf.int32, 1), "text": (tf.string, 1)},
}
_COUNTS = {"lengths": "ids", "count": "tokens"}  # what they count columns of


class RemoteError(Exception):
    """There is no answer, or none that can be used; the message, a line, says why.

    Args:
        reason: why; what a server says of it may be in it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(terminal.line(" ".join(reason.split())))


class Transport(Protocol):
    """How requests get to one model on one server.

    Both methods raise RemoteError where the answer is not one.

    Attributes:
        address: HOST:PORT.
        model: the model's name.
    """

    address: str
    model: str

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """Asks what the model's signatures are."""

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Calls a signature.

        Args:
            signature: its name.
            inputs: by name, the batch first; strings as objects.

        Returns:
            the outputs by name, as arrays or lists.
        """


class Grpc:
    """The gRPC `PredictionService`.

    Args:
        address: HOST:PORT.
        model: the model's name.
        deadline: seconds that each request may take.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        self.address, self.model, self._deadline = address, model, deadline
        options = [("grpc.max_receive_message_length", MOST_BYTES)]
        channel = grpc.insecure_channel(address, options)
        self._calls = {name: channel.unary_unary(f"{_SERVICE}/{name}") for name in _ANSWERS}

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """Asks what the model's signatures are."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=[_METADATA])
        request.model_spec.name = self.model
        response = self._ask("GetModelMetadata", request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        try:
            told = response.metadata[_METADATA].Unpack(signatures)
        except message.DecodeError:
            told = False
        if not told:
            _malformed(self, "it does not tell the model's signatures")
        return signatures

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Calls a signature; see `Transport`."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = self._ask("Predict", request)
        try:
            return {name: _from_proto(proto) for name, proto in response.outputs.items()}
        except (TypeError, ValueError) as error:  # the values do not fill the shape
            _malformed(self, error)

    def _ask(self, name: str, request: message.Message) -> Any:
        try:
            answer = self._calls[name](request.SerializeToString(), timeout=self._deadline)
            return _ANSWERS[name].FromString(answer)
        except message.DecodeError as error:  # of which gRPC, if it read the answer, logs where
            _malformed(self, error)
        except grpc.RpcError as error:
            code = error.code()
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                _too_late(self, self._deadline)
            if code == grpc.StatusCode.UNAVAILABLE:
                _unreachable(self, error.details())
            _refused(self, code.name, error.details())


class Rest:
    """The REST API.

    Args:
        address: HOST:PORT.
        model: the model's name.
        deadline: seconds that each request may take.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        self.address, self.model, self._deadline = address, model, deadline

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """Asks what the model's signatures are."""
        answer = self._ask("GET", "/metadata")
        signatures = get_model_metadata_pb2.SignatureDefMap()
        try:
            json_format.ParseDict(answer["metadata"][_METADATA], signatures)
        except (KeyError, TypeError, RecursionError, json_format.ParseError):
            _malformed(self, "it does not tell the model's signatures")
        return signatures

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Calls a signature; see `Transport`."""
        columns = {name: value.tolist() for name, value in inputs.items()}
        answer = self._ask("POST", ":predict", {"signature_name": signature, "inputs": columns})
        outputs = answer.get("outputs") if isinstance(answer, dict) else None
        if not isinstance(outputs, dict):
            _malformed(self, "it has no outputs by name")
        return outputs

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        path = f"/v1/models/{parse.quote(self.model, safe='')}{path}"
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = exchange.ask(
                method, self.address, path, data, deadline=self._deadline, most=MOST_BYTES
            )
        except TimeoutError:
            _too_late(self, self._deadline)
        except exchange.AnswerError as error:
            _unreachable(self, error)
        if answer.status != http.HTTPStatus.OK:  # redirects too: whoever named them is not asked
            _refused(self, f"{answer.status} {answer.reason}", _error_of(answer.body))
        try:
            return json.loads(answer.body.decode())
        except (ValueError, RecursionError) as error:
            _malformed(self, error)


class _Signature(NamedTuple):
    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]


class Model:
    """A model on a server.

    Args:
        transport: what leads there.

    Raises:
        RemoteError: the server does not have it.
    """

    def __init__(self, transport: Transport) -> None:
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
                Nor may a number be none but in a cache, or a count go beyond what it counts.
        """
        specs = self._checked(signature, inputs)
        arrays = {
            name: self._cast(name, value, specs.inputs[name].dtype)
            for name, value in inputs.items()
        }
        outputs = self._transport.predict(signature, arrays)
        if {*outputs} != {*specs.outputs}:
            _malformed(
                self._transport,
                f"{signature!r} answered {_names(outputs)} instead of {_names(specs.outputs)}",
            )
        rows = len(next(iter(arrays.values())))
        answer = {name: self._read(name, value, specs, rows) for name, value in outputs.items()}
        self._check_values(answer, _RETURNED.get(signature, {}))
        return answer

    def _checked(self, signature: str, inputs: Mapping[str, Any]) -> _Signature:
        """Returns what is known of a signature, which has to be the language model's one."""
        if signature not in self._signatures:
            self._other(f"it has no signature {signature!r}, only {_names(self._signatures)}")
        found = self._signatures[signature]
        if {*found.inputs} != {*inputs}:
            takes = f"takes {_names(found.inputs)}, not {_names(inputs)}"
            self._other(f"its signature {signature!r} {takes}")
        try:
            specs = _Signature(_specs(found.inputs), _specs(found.outputs))
        except (TypeError, ValueError) as error:
            _malformed(self._transport, error)
        for name, (dtype, rank) in _RETURNED.get(signature, {}).items():
            spec = specs.outputs.get(name)
            if spec is None or (spec.dtype, spec.shape.rank) != (dtype, rank):
                returns = f"does not return `{name}` {dtype.name} of rank {rank}"
                self._other(f"its signature {signature!r} {returns}")
        return specs

    def _cast(self, name: str, value: Any, dtype: tf.DType) -> np.ndarray:
        try:
            return np.asarray(value, dtype.as_numpy_dtype)
        except (TypeError, ValueError, OverflowError):
            self._other(f"its `{name}` is {dtype.name}, and cannot be {value}")

    def _other(self, reason: str) -> NoReturn:
        raise RemoteError(
            f"{self._transport.model} on {self._transport.address} is no language model that "
            f"keras_trellis exported: {reason}"
        )

    def _read(self, name: str, value: Any, specs: _Signature, rows: int) -> np.ndarray:
        spec = specs.outputs[name]
        expected = tf.TensorShape([rows]).concatenate(spec.shape[1:])
        try:
            array = value if isinstance(value, np.ndarray) else _array(value, spec.dtype)
            array = _decoded(array) if array.dtype == object else array
        except (TypeError, ValueError, OverflowError) as error:
            _malformed(self._transport, f"`{name}` is no {spec.dtype.name}: {error}")
        dtype = tf.as_dtype(array.dtype)
        if dtype != spec.dtype or not expected.is_compatible_with(array.shape):
            _malformed(
                self._transport,
                f"`{name}` must be {spec.dtype.name} {expected}. "
                f"Received: {dtype.name} {array.shape}",
            )
        return array

    def _check_values(self, answer: Mapping[str, np.ndarray], names: Iterable[str]) -> None:
        for name in names:
            value = answer[name]
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                _malformed(self._transport, f"`{name}` must be finite numbers")
            if name in _COUNTS:
                most = answer[_COUNTS[name]].shape[1]
                if not ((value >= 0) & (value <= most)).all():
                    _malformed(
                        self._transport,
                        f"`{name}` must be from 0 to {most}, the columns of "
                        f"`{_COUNTS[name]}`. Received: {value.tolist()}",
                    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _specs(infos: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
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
    sizes = [each.size for each in proto.tensor_shape.dim]
    if min(sizes, default=0) < 0 or max(math.prod(sizes), *sizes, 0) > MOST_BYTES // 4:
        raise ValueError(f"a tensor of shape {sizes}")
    return tf.make_ndarray(proto)


def _array(value: Any, dtype: tf.DType) -> np.ndarray:
    """Returns a list from JSON as an array, which no number is rounded or cut for."""
    if dtype == tf.string:
        array = np.array(value, object)
        if not all(isinstance(each, str) for each in array.flat):
            raise TypeError("not all of it is text")
        return array
    array = np.array(value)
    kinds = "iuf" if dtype.is_floating else "iu"
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"it has values of {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype.as_numpy_dtype)
    lost = np.isfinite(array) & ~np.isfinite(cast) if dtype.is_floating else cast != array
    if lost.any():
        raise TypeError(f"it has {array[lost].flat[0]}")
    return cast


def _decoded(array: np.ndarray) -> np.ndarray:
    texts = [each.decode() if isinstance(each, bytes) else each for each in array.flat]
    return np.array(texts, object).reshape(array.shape)


def _error_of(body: bytes) -> str:
    """Returns the message of an error's body, which the server does not always make JSON of."""
    text = body.decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def _unreachable(to: Transport, reason: Any) -> NoReturn:
    raise RemoteError(f"no answer from {to.address}: {reason}") from None


def _too_late(to: Transport, deadline: float) -> NoReturn:
    raise RemoteError(f"no answer from {to.address} within {deadline:g} seconds") from None


def _refused(to: Transport, code: str, reason: str) -> NoReturn:
    raise RemoteError(f"{to.address} answered {code} for {to.model}: {reason}") from None


def _malformed(to: Transport, reason: Any) -> NoReturn:
    raise RemoteError(f"malformed answer of {to.model} on {to.address}: {reason}") from None
