"""Requests over both protocols, and what may go wrong with them."""

import contextlib
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
from trainers.serving import remote, signatures

TRANSPORTS = {"grpc": signatures.Grpc, "rest": signatures.Rest}
ECHO = {
    "x": tf.TensorSpec([None, None], tf.float32),
    "text": tf.TensorSpec([None], tf.string),
}
BITS = np.random.default_rng(0).integers(0, 0x7F800000, (1, 500), dtype=np.uint32)
REQUEST = {"x": np.float32([[1.5, 2.0]]), "text": ["é 'a'"]}


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
        yield TRANSPORTS[protocol](address, name, deadline)


def free_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def fails(message, model, **request):
    with pytest.raises(remote.RemoteError, match=message) as raised:
        model.predict("echo", **(request or REQUEST))
    assert "\n" not in str(raised.value)


def test_every_bit_of_a_number_arrives(protocol):
    numbers = np.concatenate(
        [BITS.view(np.float32), [[-0.0, np.inf]]], axis=1, dtype=np.float32
    )
    with served(protocol) as model:
        answer = model.predict("echo", x=numbers, text=["é\0\n"])
        assert model.one(str, answer, "text") == "é\0\n"
    found = np.asarray(answer["x"], np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), numbers.view(np.uint32))


def test_nothing_arrives_as_nothing(protocol):
    with served(protocol) as model:
        answer = model.predict("echo", x=np.zeros([1, 0], np.float32), text=[""])
        assert model.row(float, answer, "x", 0) == []


def test_a_wrong_name_of_the_model(protocol):
    with served(protocol, name="other") as model:
        fails(r"for other: .*Latest\(other\)", model)


def test_a_server_that_is_down(protocol):
    address = free_address()
    model = TRANSPORTS[protocol](address, "echo", 30)
    fails(f"no answer from {address}: .*refused", model)


def test_the_other_protocols_port(protocol):
    with model_server.serve(Echo()) as addresses:
        address = dict(zip(TRANSPORTS, reversed(addresses), strict=True))[protocol]
        model = TRANSPORTS[protocol](address, "echo", 30)
        fails(f"no answer from {address}: ", model)


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
        ({"x": None}, "(its `x.0` is no list|it has no `outputs`)"),
        ({"x": np.array([[b"1", b"2"]], object)}, "its `x.0` has values of"),
        ({"x": np.zeros([1], np.float32)}, "its `x.0` is no list"),
        ({"x": np.zeros([1, 2, 2], np.float32)}, "its `x.0` is no list"),
        ({"x": np.array([[np.nan]], np.float32)}, "its `x.0` must be finite"),
        ({"text": np.zeros([1], np.int32)}, "its `text` is no text"),
        ({"text": np.array([b"a", b"b"], object)}, "its `text` is not for one text"),
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
        with pytest.raises(
            remote.RemoteError, match=f"malformed answer of echo on .*{message}"
        ):
            outputs = model.predict("echo", **REQUEST)
            model.row(float, outputs, "x", 0)
            model.one(str, outputs, "text")


def test_values_that_do_not_fill_their_shape():
    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802
            response = predict_pb2.PredictResponse()
            proto = response.outputs["x"]
            proto.CopyFrom(tf.make_tensor_proto(np.zeros([2, 3], np.float32)))
            proto.tensor_content = proto.tensor_content[:5]
            return response

    with model_server.grpc_server(Service()) as address:
        fails("malformed answer", signatures.Grpc(address, "echo", 30))


@pytest.mark.parametrize(
    "body, message",
    [
        ('{"outputs": [1.0]}', "it has no `outputs`, a dict"),
        ("[]", "it is no JSON object"),
        ("<html>", "Expecting value"),
    ],
)
def test_a_body_that_is_no_answer(body, message, monkeypatch):
    with served("rest") as model:
        monkeypatch.setattr(
            model_server.rest.Application, "_answer", lambda self, request: body
        )
        fails(f"malformed answer of echo on .*{message}", model)


def test_a_model_of_another_kind(protocol):
    message = '(for echo: .*"score_v2.* not found|its `words.0` is no list)'
    with (
        served(protocol) as model,
        pytest.raises(remote.RemoteError, match=message),
    ):
        model.score("a")


def test_the_limit_of_a_message_is_lifted():
    large = np.zeros([1, 2**20 + 1], np.float32)  # above 4 MiB
    with model_server.serve(Echo()) as (address, _):
        assert signatures.Grpc(address, "echo", 30).predict("echo", x=large, text=[""])
        stub = prediction_service_pb2_grpc.PredictionServiceStub(
            grpc.insecure_channel(address)
        )
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "echo"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(large))
        with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
            stub.Predict(request, timeout=30)
