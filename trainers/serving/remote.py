"""A model on a server that speaks TensorFlow Serving's protocols.

`Grpc` and `Rest` carry requests, `Model` checks them and their answers.
"""

import http
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib import parse

import grpc
import numpy as np
from google.protobuf import json_format, message

from trainers.data import terminal
from trainers.serving import exchange, protocol
from trainers.serving.protocol import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    PredictRequest,
    PredictResponse,
    SignatureDefMap,
)
from trainers.serving.writing import decoded

MOST_BYTES = 64 * 2**20  # of an answer; a cache may exceed gRPC's own limit, 4 MiB

Arrays = Mapping[str, np.ndarray]
_METADATA = "signature_def"
# What the signatures of a language model return: dtypes and ranks.
_RETURNED: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "serving_default": {
        "next_tokens": ("string", 2),
        "next_probabilities": ("float32", 2),
        "unknown": ("int32", 1),
    },
    "tokenize": {
        "ids": ("int32", 2),
        "lengths": ("int32", 1),
        "unknown": ("int32", 1),
    },
    "detokenize": {"text": ("string", 1), "settled": ("string", 1)},
    "score_v2": {
        "tokens": ("string", 2),
        "words": ("string", 2),
        "nll": ("float32", 2),
        "count": ("int32", 1),
        "unknown": ("int32", 1),
    },
    "generate_v2": {
        "ids": ("int32", 2),
        "lengths": ("int32", 1),
        "text": ("string", 1),
    },
}


class _Spec(NamedTuple):
    """What a signature says of a tensor; None in its shape is any size, and for it any shape."""

    dtype: str
    shape: tuple[int | None, ...] | None


_Specs = dict[str, _Spec]
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
            request.inputs[name].CopyFrom(protocol.to_proto(value))
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
            told = answer["metadata"][_METADATA]
            return json_format.ParseDict(
                told, SignatureDefMap(), ignore_unknown_fields=True
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
                exchange.Asked(
                    method, self.address, path, data, self.deadline, MOST_BYTES
                )
            )
        except TimeoutError:
            raise self.too_late() from None
        except exchange.AnswerError as error:
            raise self.unreachable(error) from None
        if status != http.HTTPStatus.OK:  # a redirect too: it is not followed
            raise self.refused(f"{status} {reason}", error_message(content))
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

    @property
    def signatures(self) -> frozenset[str]:
        """The names of the signatures that the server says it has."""
        return frozenset(self._signatures)

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
            if spec is None or spec.dtype != dtype or len(spec.shape or ()) != rank:
                returns = f"does not return `{name}` {dtype} of rank {rank}"
                raise self._other(f"its signature {signature!r} {returns}")
        return taken, promised

    def _cast(self, name: str, value: Any, dtype: str) -> np.ndarray:
        try:
            return np.asarray(value, protocol.numpy_dtype(dtype))
        except (TypeError, ValueError, OverflowError):
            raise self._other(
                f"its `{name}` is {dtype}, and cannot be {value}"
            ) from None

    def _other(self, reason: str) -> RemoteError:
        return RemoteError(
            f"{self._transport.model} on {self._transport.address} is no language model that "
            f"keras_trellis exported: {reason}"
        )

    def _read(self, name: str, value: Any, spec: _Spec, rows: int) -> np.ndarray:
        expected = None if spec.shape is None else (rows, *spec.shape[1:])
        try:
            is_array = isinstance(value, np.ndarray)
            array = decoded(value) if is_array else _array(value, spec.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            reason = f"`{name}` is no {spec.dtype}: {error}"
            raise self._transport.malformed(reason) from None
        if not is_array and not array.size and expected is not None:
            # JSON has no shapes: an empty list says nothing of the axes behind it.
            missing = len(expected) - array.ndim
            array = array.reshape(*array.shape, *[0] * missing)
        dtype = protocol.name_of_dtype(array)
        if dtype != spec.dtype or not _fits(array.shape, expected):
            reason = f"`{name}` must be {spec.dtype} {expected}. Received: {dtype}"
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
        name: _Spec(protocol.dtype_name(info.dtype), protocol.sizes(info.tensor_shape))
        for name, info in infos.items()
    }


def _from_proto(proto: Any) -> np.ndarray:
    """Returns a tensor as an array.

    Raises:
        TypeError, ValueError: it is none, or larger than an answer may be. One number may fill a
            tensor of any shape, so that the answer's length does not limit it.
    """
    sizes = [dimension.size for dimension in proto.tensor_shape.dim]
    most = MOST_BYTES // 4
    if min(sizes, default=0) < 0 or max(math.prod(sizes), *sizes, 0) > most:
        raise ValueError(f"a tensor of shape {sizes}")
    return protocol.from_proto(proto)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...] | None) -> bool:
    """Returns whether a shape is one that is expected."""
    if expected is None:
        return True
    pairs = zip(shape, expected, strict=False)
    same = all(other in (None, size) for size, other in pairs)
    return same and len(shape) == len(expected)


def _array(value: Any, dtype: str) -> np.ndarray:
    """Returns a list from JSON as an array, which no number is rounded or cut for."""
    if dtype == "string":
        array = np.array(value, object)
        if not all(isinstance(item, str) for item in array.flat):
            raise TypeError("not all of it is text")
        return array
    array = np.array(value)
    wanted = np.dtype(dtype)
    is_floating = wanted.kind == "f"
    kinds = {"f": "iuf", "b": "b"}.get(wanted.kind, "iu")
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"it has values of {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(wanted)
    lost = cast != array
    if is_floating:
        lost = np.isfinite(array) & ~np.isfinite(cast)
    if lost.any():
        raise TypeError(f"it has {array[lost].flat[0]}")
    return cast


def error_message(body: bytes) -> str:
    """Returns the message of an error's body, which the server does not always make JSON of."""
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
