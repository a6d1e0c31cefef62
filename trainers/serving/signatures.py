"""Models that answer by the signatures of their export, on TensorFlow Serving."""

import math
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
from google.protobuf import message

from trainers.serving import remote
from trainers.serving.remote import Remote, Sampling, Scores
from trainers.serving.web import Web

CHUNK = 8  # tokens a request: text appears before all of it is written
# In `forbidden_ids`: `<unk>`, if the model has it, or no token.
_UNKNOWN, _NOTHING = -1, -2


class Signatures(Remote):
    """A model's answers by its signatures; see `Remote`."""

    def predict(self, signature: str, **inputs: Any) -> dict[str, Any]:
        """Calls a signature.

        Args:
            signature: its name.
            **inputs: by name, the batch first: arrays of its dtypes, or lists of texts.

        Returns:
            the outputs by name, as tensors or lists, with one for each row.
        """
        raise NotImplementedError

    def generate(
        self, prompt: str, sampling: Sampling, allow_unknown: bool = False
    ) -> Iterator[str]:
        """Yields the continuation of a prompt in pieces, with the spaces of print."""
        tokens = self.predict("tokenize", text=[f"\n{prompt}"])
        ids = self._counted(int, tokens, "ids", "lengths")
        shown = len(self._print(ids, "text"))
        read, length = _int32(ids), _int32(len(ids) - 1)
        answer = self.predict("prefill_v2", ids=read, lengths=length)
        settings = {
            "temperature": np.array([sampling.temperature], np.float32),
            "top_k": _int32(sampling.top_k),
            "top_p": np.array([sampling.top_p], np.float32),
            "seed": np.array([sampling.seed], np.int64),
            "stop_ids": _int32([-1]),
            "stop": [[""]],
            "alternatives": _int32(0),
            "forbidden_ids": _int32([_NOTHING if allow_unknown else _UNKNOWN]),
        }
        for begin in range(0, sampling.max_length, CHUNK):
            left = sampling.max_length - begin
            cache = {name: answer[name] for name in answer if name.startswith("cache_")}
            answer = self.predict(
                "generate_v2",
                ids=_int32(ids[-1:]),
                lengths=_int32(1),
                max_length=_int32(min(CHUNK, left)),
                **settings,
                **cache,
            )
            ids += self._counted(int, answer, "ids", "lengths")
            # What is not settled yet waits for the next tokens.
            text = self._print(ids, "text" if left <= CHUNK else "settled")
            yield text[shown:]
            shown = max(shown, len(text))

    def next(self, prompt: str) -> tuple[list[tuple[str, float]], int]:
        """Returns the most probable tokens after a text, and how many of its words are unknown."""
        answer = self.predict("serving_default", text=[prompt])
        tokens = self.row(str, answer, "next_tokens", 0)
        probabilities = self.row(float, answer, "next_probabilities", 0)
        unknown = self.one(int, answer, "unknown")
        return self.likeliest(tokens, probabilities), unknown

    def score(self, text: str) -> Scores:
        """Scores a text."""
        answer = self.predict("score_v2", text=[text], alternatives=_int32(0))
        words, read = (
            self._counted(str, answer, name, "count") for name in ("words", "tokens")
        )
        nll = self._counted(float, answer, "nll", "count")
        return self.scores(words, read, nll, self.one(int, answer, "unknown"))

    def unknown(self, text: str) -> tuple[int, int]:
        """Returns how many tokens of a text the vocabulary does not have, and how many it has."""
        answer = self.predict("tokenize", text=[text])
        return self.one(int, answer, "unknown"), self.one(int, answer, "lengths")

    def _counted(self, kind: type, answer: Any, name: str, count: str) -> list[Any]:
        """Returns the row of an output, of which another output counts what is no padding."""
        values, number = self.row(kind, answer, name, 0), self.one(int, answer, count)
        if not 0 <= number <= len(values):
            raise self.malformed(
                f"`{count}` must be from 0 to {len(values)}, the columns of `{name}`. "
                f"Received: {number}"
            )
        return values[:number]

    def _print(self, ids: list[int], output: str) -> str:
        lengths = _int32(len(ids))
        answer = self.predict("detokenize", ids=_int32(ids), lengths=lengths)
        return self.one(str, answer, output)


class Rest(Signatures, Web):
    """The REST API."""

    def predict(self, signature: str, **inputs: Any) -> dict[str, Any]:
        """Calls a signature; tensors are lists in the answer."""
        columns = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in inputs.items()
        }
        fields = {"signature_name": signature, "inputs": columns}
        answer = self.ask("POST", f"{self.path}:predict", fields)
        return self.part(dict, answer, "outputs")


class Grpc(Signatures):
    """The gRPC `PredictionService`."""

    def __init__(self, address: str, model: str, deadline: float) -> None:
        super().__init__(address, model, deadline)
        options = [("grpc.max_receive_message_length", remote.MOST_BYTES)]
        channel = grpc.insecure_channel(address, options)
        # gRPC logs a traceback of what it cannot decode. So it returns bytes here.
        self._predict = channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict"
        )

    def predict(self, signature: str, **inputs: Any) -> dict[str, Any]:
        """Calls a signature; tensors are arrays in the answer."""
        # They take seconds, and the other protocols do without.
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        answer = self._ask(request.SerializeToString())
        try:
            outputs = predict_pb2.PredictResponse.FromString(answer).outputs
            for proto in outputs.values():
                _check_size(proto)
            return {name: tf.make_ndarray(outputs[name]) for name in outputs}
        except (message.DecodeError, TypeError, ValueError) as error:
            raise self.malformed(error) from None

    def _ask(self, request: bytes) -> bytes:
        try:
            return self._predict(request, timeout=self.deadline)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise self.too_late()
        if code == grpc.StatusCode.UNAVAILABLE:
            raise self.unreachable(details)
        raise self.refused(code.name, details)


def _int32(*rows: Any) -> np.ndarray:
    """Returns a tensor with a number, or a list of numbers, for each row."""
    return np.array(rows, np.int32)


def _check_size(proto: Any) -> None:
    """Raises ValueError if a tensor is larger than an answer may be.

    One number may fill a tensor of any shape, so that the answer's length does not limit it.
    """
    sizes = [dimension.size for dimension in proto.tensor_shape.dim]
    most = remote.MOST_BYTES // 4
    if min(sizes, default=0) < 0 or max(math.prod(sizes), *sizes, 0) > most:
        raise ValueError(f"a tensor of shape {sizes}")
