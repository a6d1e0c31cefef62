"""Requests over both protocols, and what may go wrong with them."""

import contextlib
import re
import socket
import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.serving import model_server
from trainers.serving import remote

TRANSPORTS = {"grpc": remote.Grpc, "rest": remote.Rest}
ECHO = {
    "x": tf.TensorSpec([None, None], tf.float32),
    "text": tf.TensorSpec([None], tf.string),
}
BITS = np.random.default_rng(0).integers(0, 0x7F800000, (1, 500), dtype=np.uint32)
REQUEST = {"x": [[1.5, 2.0]], "text": ["é 'a'"]}


class Echo:
    """What a server serves: a signature `echo` that answers what it was sent, or what it is told.

    Args:
        answer: takes the inputs, and returns the outputs.
    """

    name, version = "echo", 1

    def __init__(self, answer=dict):
        self._answer = answer
        self.metadata = get_model_metadata_pb2.SignatureDefMap()
        echo = self.metadata.signature_def["echo"]
        for infos in (echo.inputs, echo.outputs):
            for name, spec in ECHO.items():
                infos[name].dtype = spec.dtype.as_datatype_enum
                infos[name].tensor_shape.CopyFrom(spec.shape.as_proto())

    check = model_server.Model.check

    def predict(self, signature, inputs):
        return self._answer(inputs)


@pytest.fixture(params=TRANSPORTS)
def protocol(request):
    return request.param


@contextlib.contextmanager
def served(protocol, answer=dict, name="echo", deadline=30):
    with model_server.serve(Echo(answer)) as addresses:
        address = dict(zip(TRANSPORTS, addresses, strict=True))[protocol]
        yield remote.Model(TRANSPORTS[protocol](address, name, deadline))


def free_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def fails(message, model, **request):
    with pytest.raises(remote.RemoteError, match=message) as raised:
        model("echo", **(request or REQUEST))
    assert "\n" not in str(raised.value)


def test_every_bit_of_a_number_arrives(protocol):
    numbers = np.concatenate(
        [BITS.view(np.float32), [[-0.0, np.inf]]], axis=1, dtype=np.float32
    )
    with served(protocol) as model:
        answer = model("echo", x=numbers, text=["é\0\n"])
    np.testing.assert_array_equal(answer["x"].view(np.uint32), numbers.view(np.uint32))
    assert answer["x"].dtype == np.float32
    assert answer["text"].tolist() == ["é\0\n"]


def test_nothing_arrives_as_nothing(protocol):
    with served(protocol) as model:
        assert model("echo", x=[[]], text=[""])["x"].shape == (1, 0)


def test_a_wrong_name_of_the_model(protocol):
    with (
        pytest.raises(remote.RemoteError, match=r"for other: .*Latest\(other\)"),
        served(protocol, name="other"),
    ):
        pass


def test_a_server_that_is_down(protocol):
    address = free_address()
    with pytest.raises(
        remote.RemoteError, match=f"no answer from {address}: .*refused"
    ):
        remote.Model(TRANSPORTS[protocol](address, "echo", 30))


def test_the_other_protocols_port(protocol):
    with model_server.serve(Echo()) as addresses:
        address = dict(zip(TRANSPORTS, reversed(addresses), strict=True))[protocol]
        with pytest.raises(remote.RemoteError, match=f"no answer from {address}: "):
            remote.Model(TRANSPORTS[protocol](address, "echo", 30))


def test_an_answer_that_comes_too_late(protocol):
    over = threading.Event()

    def late(inputs):
        over.wait(30)
        return inputs

    with served(protocol, late, deadline=0.5) as model:
        try:
            fails("no answer from .* within 0.5 seconds", model)
        finally:
            over.set()


def test_a_request_that_is_refused(protocol):
    def refuse(inputs):
        message = "`x` isn't what it must be\n\t [[{{node Assert}}]]"
        raise tf.errors.InvalidArgumentError(None, None, message)

    with served(protocol, refuse) as model:
        fails(
            "(INVALID_ARGUMENT|400 BAD REQUEST) for echo: .*`x` isn.*t what it must be",
            model,
        )


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"x": None},
            "('echo' answered text instead of text, x|it has no outputs by name)",
        ),
        (
            {"more": np.zeros(1, np.int32)},
            "'echo' answered more, text, x instead of text, x",
        ),
        ({"x": np.array([[b"1", b"2"]], object)}, "`x` (is no|must be) float32"),
        (
            {"x": np.zeros([1], np.float32)},
            re.escape("`x` must be float32 (1, None). Received"),
        ),
        (
            {"x": np.zeros([2, 2], np.float32)},
            re.escape("`x` must be float32 (1, None). Received"),
        ),
        ({"text": np.zeros([1], np.int32)}, "`text` (is no|must be) string"),
    ],
)
def test_a_malformed_answer(protocol, change, message):
    def answer(inputs):
        return {
            name: each
            for name, each in {**inputs, **change}.items()
            if each is not None
        }

    with served(protocol, answer) as model:
        fails(f"malformed answer of echo on .*{message}", model)


def test_values_that_do_not_fill_their_shape():
    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802
            response = predict_pb2.PredictResponse()
            proto = response.outputs["x"]
            proto.CopyFrom(tf.make_tensor_proto(np.zeros([2, 3], np.float32)))
            proto.tensor_content = proto.tensor_content[:5]
            return response

    with model_server.grpc_server(Service()) as address:
        transport = remote.Grpc(address, "echo", 30)
        with pytest.raises(remote.RemoteError, match="malformed answer"):
            transport.predict("echo", {"x": np.zeros([1, 1])})
        with pytest.raises(remote.RemoteError, match="UNIMPLEMENTED"):
            transport.metadata()


@pytest.mark.parametrize(
    "body, message",
    [
        ('{"outputs": {"x": [[1.0], [1.0, 2.0]], "text": ["a"]}}', "`x` is no float32"),
        ('{"outputs": [1.0]}', "no outputs by name"),
        ("[]", "no outputs by name"),
        ("<html>", "malformed answer"),
    ],
)
def test_a_body_that_is_no_answer(body, message, monkeypatch):
    with served("rest") as model:
        monkeypatch.setattr(
            model_server.rest.Application, "_answer", lambda self, request: body
        )
        fails(message, model)
        with pytest.raises(remote.RemoteError, match="malformed answer"):
            remote.Model(model._transport)


def test_a_model_of_another_kind(protocol):
    message = "echo on .* is no language model that keras_trellis exported: "
    with served(protocol) as model:
        with pytest.raises(
            remote.RemoteError, match=f"{message}it has no signature 'score_v2', only"
        ):
            model("score_v2", text=["a"])
        fails(
            f"{message}its signature 'echo' takes text, x, not text", model, text=["a"]
        )


def test_the_limit_of_a_message_is_lifted():
    large = np.zeros([1, 2**20 + 1], np.float32)  # above 4 MiB
    with model_server.serve(Echo()) as (address, _):
        assert remote.Model(remote.Grpc(address, "echo", 30))(
            "echo", x=large, text=[""]
        )
        stub = prediction_service_pb2_grpc.PredictionServiceStub(
            grpc.insecure_channel(address)
        )
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "echo"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(large))
        with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
            stub.Predict(request, timeout=30)
