"""A model on a server that speaks TensorFlow Serving's protocols.

`Grpc` and `Rest` carry requests, `Model` checks them and their answers.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol
from urllib import parse

import grpc
import numpy as np
import requests
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

__all__ = ["Grpc", "Model", "RemoteError", "Rest", "Transport"]

_UNLIMITED = ("grpc.max_receive_message_length", -1)  # 4 MiB by default, which caches pass
_METADATA = "signature_def"


class RemoteError(Exception):
    """There is no answer, or none that can be used; the message, a line, says why."""


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
        channel = grpc.insecure_channel(address, options=[_UNLIMITED])
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """Asks what the model's signatures are."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=[_METADATA])
        request.model_spec.name = self.model
        with self._told():
            response = self._stub.GetModelMetadata(request, timeout=self._deadline)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        if not response.metadata[_METADATA].Unpack(signatures):
            _malformed(self, "it does not tell the model's signatures")
        return signatures

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Calls a signature; see `Transport`."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        with self._told():
            response = self._stub.Predict(request, timeout=self._deadline)
        try:
            return {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}
        except (TypeError, ValueError) as error:  # the values do not fill the shape
            _malformed(self, error)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
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
        deadline: seconds that each request may wait.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        self.address, self.model, self._deadline = address, model, deadline
        self._session = requests.Session()

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """Asks what the model's signatures are."""
        answer = self._ask("GET", "/metadata")
        signatures = get_model_metadata_pb2.SignatureDefMap()
        try:
            json_format.ParseDict(answer["metadata"][_METADATA], signatures)
        except (KeyError, TypeError, json_format.ParseError):
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
        url = f"http://{self.address}/v1/models/{parse.quote(self.model, safe='')}{path}"
        data = body and json.dumps(body)  # as the server reads it: `json=` refuses NaN
        try:
            answer = self._session.request(method, url, data=data, timeout=self._deadline)
        except requests.Timeout:
            _too_late(self, self._deadline)
        except requests.RequestException as error:
            _unreachable(self, error)
        if not answer.ok:
            _refused(self, f"{answer.status_code} {answer.reason}", _error_of(answer.text))
        try:
            return json.loads(answer.text)
        except ValueError as error:
            _malformed(self, error)


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
        """
        specs = self._checked(signature, inputs)
        arrays = {
            name: np.asarray(value, _numpy_dtype(specs.inputs[name]))
            for name, value in inputs.items()
        }
        outputs = self._transport.predict(signature, arrays)
        if {*outputs} != {*specs.outputs}:
            _malformed(
                self._transport,
                f"{signature!r} answered {_names(outputs)} instead of {_names(specs.outputs)}",
            )
        rows = len(next(iter(arrays.values())))
        return {name: self._read(name, value, specs, rows) for name, value in outputs.items()}

    def _checked(self, signature: str, inputs: Mapping[str, Any]) -> Any:
        """Returns what is known of a signature, which has to be the language model's one."""
        where = f"{self._transport.model} on {self._transport.address}"
        if signature not in self._signatures:
            raise RemoteError(
                f"{where} is no language model that keras_trellis exported: it has no signature "
                f"{signature!r}, only {_names(self._signatures)}"
            )
        found = self._signatures[signature]
        if {*found.inputs} != {*inputs}:
            raise RemoteError(
                f"{where} is no language model that keras_trellis exported: its signature "
                f"{signature!r} takes {_names(found.inputs)}, not {_names(inputs)}"
            )
        return found

    def _read(self, name: str, value: Any, specs: Any, rows: int) -> np.ndarray:
        spec = specs.outputs[name]
        dtype = _numpy_dtype(spec)
        shape = tf.TensorShape(spec.tensor_shape)
        expected = tf.TensorShape([rows]).concatenate(shape[1:])
        try:
            array = value if isinstance(value, np.ndarray) else _array(value, dtype)
        except (TypeError, ValueError) as error:
            _malformed(self._transport, f"`{name}` is no {tf.as_dtype(dtype).name}: {error}")
        if array.dtype != dtype or not expected.is_compatible_with(array.shape):
            _malformed(
                self._transport,
                f"`{name}` must be {tf.as_dtype(dtype).name} {expected}. "
                f"Received: {tf.as_dtype(array.dtype).name} {array.shape}",
            )
        return _decoded(array) if dtype.kind == "O" else array


def _names(names: Any) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _numpy_dtype(spec: Any) -> np.dtype:
    return np.dtype(tf.as_dtype(spec.dtype).as_numpy_dtype)


def _array(value: Any, dtype: np.dtype) -> np.ndarray:
    """Returns a list from JSON as an array, which no number is rounded or cut for."""
    if dtype.kind == "O":
        array = np.array(value, object)
        if not all(isinstance(each, str) for each in array.flat):
            raise TypeError("not all of it is text")
        return array
    array = np.array(value)
    if array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"it has values of {array.dtype}")
    return array.astype(dtype)


def _decoded(array: np.ndarray) -> np.ndarray:
    texts = [each.decode() if isinstance(each, bytes) else each for each in array.flat]
    return np.array(texts, object).reshape(array.shape)


def _error_of(text: str) -> str:
    """Returns the message of an error's body, which the server does not always make JSON of."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text


def _unreachable(to: Transport, reason: Any) -> NoReturn:
    raise RemoteError(f"no answer from {to.address}: {_line(reason)}") from None


def _too_late(to: Transport, deadline: float) -> NoReturn:
    raise RemoteError(f"no answer from {to.address} within {deadline:g} seconds") from None


def _refused(to: Transport, code: str, reason: str) -> NoReturn:
    raise RemoteError(f"{to.address} answered {code} for {to.model}: {_line(reason)}") from None


def _malformed(to: Transport, reason: Any) -> NoReturn:
    raise RemoteError(f"malformed answer of {to.model} on {to.address}: {_line(reason)}") from None


def _line(reason: Any) -> str:
    return " ".join(str(reason).split())
