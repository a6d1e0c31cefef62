"""What a server may answer the client that no model server should."""

import contextlib
import itertools
import json
import math
import re
import socket
import threading
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from tensorflow_serving.apis import get_model_metadata_pb2

from tests.serving import model_server
from trainers import client
from trainers.serving import remote, signatures, web

PROTOCOLS = {"grpc": signatures.Grpc, "rest": signatures.Rest}
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Clears the screen, names the window, ...
SCREEN = "\x1b[2J\x1b]0;taken\x07\r\x9b31m\u202e"


@contextlib.contextmanager
def talking(talk):
    """Runs a server of bytes: `talk` gets each connection. Yields its address and its requests."""
    asked = []

    def answer():
        for number in itertools.count():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                asked.append(connection.recv(2**16))
                talk(connection, number)
                # What is left unread would reset the connection before its answer is read.
                connection.settimeout(1)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(2**16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def http_of(body, status="200 OK", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def rest(address, deadline=30.0):
    return signatures.Rest(address, "liar", deadline)


def asks(model):
    return lambda: model.score("a b")


def refusal(call):
    """Returns the message of the error that a call raises: a line that a terminal may show."""
    with pytest.raises(remote.RemoteError) as raised:
        call()
    message = str(raised.value)
    assert not CONTROL.search(message) and "\n" not in message and len(message) < 3_000
    return message


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: ", id="headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", id="body"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n", id="chunk"
        ),
    ],
)
def test_a_dripping_answer_ends_at_the_deadline(begun):
    def drip(connection, _):
        connection.sendall(begun)
        for _ in range(100):
            time.sleep(0.05)
            connection.sendall(b"1")

    with talking(drip) as (address, _):
        before = time.monotonic()
        message = refusal(asks(rest(address, deadline=0.4)))
        taken = time.monotonic() - before
    assert message == f"no answer from {address} within 0.4 seconds"
    assert 0.4 <= taken < 3  # all of the drops take 5


@pytest.mark.parametrize("framed", ["whole", "chunked", "until the end"])
def test_an_answer_has_a_limit(framed, monkeypatch):
    monkeypatch.setattr(remote, "MOST_BYTES", 100_000)
    body = b"[" + b"1," * 60_000

    def talk(connection, _):
        if framed == "whole":
            connection.sendall(http_of(body))
        elif framed == "chunked":
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            connection.sendall(b"2\r\n1,\r\n" * 100_000)
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    with talking(talk) as (address, _):
        message = refusal(asks(rest(address)))
    assert message == f"no answer from {address}: it sends more than 100,000 bytes"


@pytest.mark.parametrize("status", ["301 Moved Permanently", "307 Temporary Redirect"])
def test_nobody_is_led_elsewhere(status):
    with talking(lambda connection, _: connection.sendall(http_of(b"{}"))) as (
        other,
        never,
    ):

        def talk(connection, _):
            connection.sendall(
                http_of(b"", status, f"Location: http://{other}/v1/models/liar")
            )

        with talking(talk) as (address, asked):
            assert f"answered {status}" in refusal(asks(rest(address)))
            assert len(asked) == 1
    assert not never


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "answer, message",
    [
        (http_of(DEEP), "malformed answer of liar on"),
        (
            http_of(b'{"outputs": ' + b'{"a":' * 900 + b"1" + b"}" * 901),
            "malformed answer",
        ),
        (http_of(DEEP, "400 Bad Request"), "answered 400 Bad Request for liar: [[["),
        (http_of(b'{"outputs": "\xff"}'), "malformed answer"),
        (http_of(b"1" * 10_000), "malformed answer"),
        (
            http_of(b'{"error": "' + SCREEN.encode() + b'"}', "500 Oh"),
            "answered 500 Oh for liar",
        ),
        (http_of(json.dumps({"error": SCREEN}).encode(), "500 Oh"), r"\x1b[2J"),
        (http_of(b"", f"500 {SCREEN[:-1]}"), r"answered 500 \x1b[2J"),
        (http_of(b"", "500 taken\x9b31m"), "answered 500 "),
        (http_of(b"no " * 10**6, "404 Not Found"), "no no no"),
        (b"\x1b[2J\r\n\r\n", "no answer from"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{", "malformed answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "no answer from"),
    ],
)
def test_bodies_that_are_no_answers(answer, message):
    with talking(lambda connection, _: connection.sendall(answer)) as (address, _):
        assert message in refusal(asks(rest(address)))


def texts(*row):
    return np.array([[each.encode() for each in row]], object)


SCORE = {
    "tokens": texts("a", "b"),
    "words": texts("a", "b"),
    "nll": np.float32([[1, 2]]),
    "total": np.float32([3]),
    "count": np.int32([2]),
    "unknown": np.int32([0]),
}
RETURNED = {
    "score_v2": SCORE,
    "serving_default": {
        "next_tokens": texts("a", "b"),
        "next_probabilities": np.float32([[0.75, 0.25]]),
        "perplexity": np.float32([2]),
        "unknown": np.int32([0]),
    },
}


class Liar:
    """A language model's signatures of a text, that return what they are told to.

    Args:
        changed: outputs of `score_v2` and `serving_default`.
    """

    name, version = "liar", 1

    def __init__(self, changed):
        self._outputs = {
            signature: {
                **outputs,
                **{name: changed[name] for name in outputs.keys() & changed},
            }
            for signature, outputs in RETURNED.items()
        }
        self.metadata = get_model_metadata_pb2.SignatureDefMap()
        for signature, outputs in RETURNED.items():
            described = self.metadata.signature_def[signature]
            taken = {"text": tf.string}
            if signature == "score_v2":
                taken["alternatives"] = tf.int32
            for name, dtype in taken.items():
                info = described.inputs[name]
                info.dtype = dtype.as_datatype_enum
                info.tensor_shape.CopyFrom(tf.TensorShape([None]).as_proto())
            for name, value in outputs.items():
                info, shape = described.outputs[name], [None] * value.ndim
                info.dtype = tf.as_dtype(value.dtype).as_datatype_enum
                info.tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())

    check = model_server.Model.check

    def predict(self, signature, inputs):
        return self._outputs[signature]


@contextlib.contextmanager
def lying(protocol, changed):
    """Yields the address of a `Liar`."""
    with model_server.serve(Liar(changed)) as found:
        yield dict(zip(PROTOCOLS, found, strict=True))[protocol]


def model_at(protocol, address):
    return PROTOCOLS[protocol](address, "liar", 30)


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            {"count": np.int32([3])},
            "`count` must be from 0 to 2, the columns of `words`",
        ),
        (
            {"count": np.int32([-1])},
            "`count` must be from 0 to 2, the columns of `words`",
        ),
        ({"count": np.int32([2**31 - 1])}, "`count` must be from 0 to 2"),
        ({"count": np.int32([2, 2])}, "its `count` is not for one text"),
        ({"nll": np.float32([[1, np.nan]])}, "`nll.0` must be finite numbers"),
        ({"nll": np.float32([[1, np.inf]])}, "`nll.0` must be finite numbers"),
        ({"tokens": texts("a")}, "`count` must be from 0 to 1"),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_that_cannot_be(protocol, changed, message):
    with lying(protocol, changed) as address:
        assert message in refusal(asks(model_at(protocol, address)))


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"count": "[true]"}, "its `count` has values of bool"),
        # 2 in 32 bits
        ({"count": "[4294967298]"}, "its `count` must be finite numbers of 32 bits"),
        ({"count": "[18446744073709551618]"}, "its `count` has values of object"),
        ({"count": "[2.0]"}, "its `count` has values of float64"),
        ({"count": f"[{'9' * 5_000}]"}, "malformed answer"),
        ({"nll": "[[1, 1e400]]"}, "`nll.0` must be finite numbers"),
        ({"nll": "[[1, null]]"}, "`nll.0` has values of object"),
        ({"nll": "[[[1, 2]]]"}, "`nll.0` is no list"),
        ({"nll": "[[1, [2]]]"}, "`nll.0` is no list"),
        ({"nll": "[" * 900 + "]" * 900}, "`nll.0` "),
        ({"tokens": '[["a", ["b"]]]'}, "`tokens.0` is no text"),
        ({"tokens": '[["a", {"b64": "Yg=="}]]'}, "`tokens.0` is no text"),
    ],
)
def test_json_that_cannot_be(changed, message, recwarn, monkeypatch):
    values = dict.fromkeys(SCORE, '[["a", "b"]]')
    values |= {
        name: json.dumps(value.tolist())
        for name, value in SCORE.items()
        if value.dtype != object
    }
    values |= changed
    body = ", ".join(f'"{name}": {value}' for name, value in values.items())
    monkeypatch.setattr(
        model_server.rest.Application,
        "_predict",
        lambda *_: f'{{"outputs": {{{body}}}}}',
    )
    with lying("rest", {}) as address:
        assert message in refusal(asks(model_at("rest", address)))
    assert not recwarn.list


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_perplexity_beyond_all_numbers(protocol):
    with lying(protocol, {"nll": np.float32([[1, 1e30]])}) as address:
        assert math.isinf(model_at(protocol, address).score("a b").perplexity)


def command(protocol, address, mode):
    values = flags.FlagValues()
    client.define_flags(values)
    line = ["client", "--model=liar", f"--protocol={protocol}", f"--server={address}"]
    return client.run(values([*line, f"--mode={mode}", "--prompt=a"]), values)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tokens_do_not_command_the_terminal(protocol, capsys):
    tokens = texts(f"{SCREEN}\n\t", "é 語 \u200d")
    with lying(
        protocol, dict.fromkeys(("tokens", "words", "next_tokens"), tokens)
    ) as address:
        for mode in ("score", "next"):
            assert command(protocol, address, mode) == 0
            first, second, *_ = capsys.readouterr().out.split("\n")
            assert first.split()[1] == r"\x1b[2J\x1b]0;taken\x07\r\x9b31m\u202e\n\t"
            assert second.endswith("  é 語 \u200d")


def test_a_written_text_does_not_command_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr(
        signatures.Grpc, "generate", lambda *_: iter([f"{SCREEN}\n", "\tb\ud800"])
    )
    monkeypatch.setattr(signatures.Grpc, "unknown", lambda *_: (0, 1))
    assert command("grpc", "localhost:1", "generate") == 0
    assert capsys.readouterr().out == (
        "a" + r"\x1b[2J\x1b]0;taken\x07\r\x9b31m\u202e" + "\n\tb" + r"\ud800" + "\n"
    )


@contextlib.contextmanager
def bytes_over_grpc(answer, **options):
    """Yields a transport to a server that answers all requests with these bytes."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)

    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Handler()], **options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield signatures.Grpc(f"127.0.0.1:{port}", "liar", 30)
    finally:
        server.stop(grace=None).wait()


def predicted(proto):
    response = model_server.predict_pb2.PredictResponse()
    response.outputs["x"].CopyFrom(proto)
    return response.SerializeToString()


@pytest.mark.parametrize(
    "shape", [[1, 10**12], [2**62, 2**62], [0, 2**62], [-1]], ids=str
)
def test_a_number_that_fills_a_huge_tensor(shape):
    proto = tf.make_tensor_proto(np.float32([1]))
    proto.tensor_shape.Clear()
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    with bytes_over_grpc(predicted(proto)) as model:
        assert "malformed answer" in refusal(asks(model))


def test_bytes_that_are_no_message(caplog):
    with bytes_over_grpc(b"\xff" * 100) as model:
        assert "malformed answer" in refusal(asks(model))
    assert not caplog.records


def test_text_that_is_no_text():
    response = {**SCORE, "tokens": np.array([[b"\xff", b"b"]], object)}
    with lying("grpc", response) as address:
        assert "`tokens.0` is no text" in refusal(asks(model_at("grpc", address)))


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip]
)
def test_a_message_has_a_limit(compression, monkeypatch):
    monkeypatch.setattr(remote, "MOST_BYTES", 2**20)
    large = predicted(tf.make_tensor_proto(np.zeros([2**19], np.float32)))
    with bytes_over_grpc(large, compression=compression) as model:
        assert "answered RESOURCE_EXHAUSTED" in refusal(asks(model))


DESCRIBED = {"id": "m", "fingerprint": 1}
GOOD = {"words": ["a"], "tokens": ["a"], "nll": [1.0], "unknown": 0}
PART = b'data: {"choices": [{"printed": "a"}]}\n\n'


@pytest.mark.parametrize(
    "mode, body, message",
    [
        ("score", b"[]", "it is no JSON object"),
        ("score", b"<html>", "malformed answer"),
        ("score", {"scores": []}, "it has no `scores.0`, a dict"),
        ("score", {"scores": [{**GOOD, "nll": [math.nan]}]}, "must be finite"),
        ("score", {"scores": [{**GOOD, "nll": [True]}]}, "has values of bool"),
        ("score", {"scores": [{**GOOD, "words": [3]}]}, "`words` is no text"),
        ("score", {"scores": [{**GOOD, "words": []}]}, "must have one length"),
        ("next", {"next": [[{"token": 1, "log_prob": 0}]]}, "`token` is no text"),
        ("next", {"next": [[{"token": "a"}]]}, "`log_prob` has values of object"),
        (
            "next",
            {"next": [[{"token": "a", "log_prob": 800}]], "unknown": [0]},
            "each token must have one probability",
        ),
        ("next", {"next": [1]}, "it has no `next.0`, a list"),
        ("generate", PART, "the text breaks off"),
        ("generate", PART + b"data: {\n\n", "malformed answer"),
        (
            "generate",
            b'data: {"error": {"message": "\\u001b[2J"}}\n\n',
            "answered an error",
        ),
        ("generate", PART * 100_000, "it sends more than 1,000,000 bytes"),
    ],
)
def test_what_our_own_server_would_not_answer(mode, body, message, monkeypatch, capsys):
    monkeypatch.setattr(remote, "MOST_BYTES", 1_000_000)
    body = body if isinstance(body, bytes) else json.dumps(body).encode()

    def talk(connection, number):
        answer = body if number else json.dumps(DESCRIBED).encode()
        connection.sendall(http_of(answer))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(2**16):  # else what is unread would break the answer
            pass

    with talking(talk) as (address, _):
        line = [f"--server={address}", "--model=m", "--protocol=http", f"--mode={mode}"]
        values = flags.FlagValues()
        client.define_flags(values)
        assert client.run(values(["client", *line]), values) == 2
    output = capsys.readouterr()
    assert message in output.err and not CONTROL.search(output.out + output.err)
    assert output.err.count("\n") == 1


def test_another_server_is_not_taken_for_our_own():
    with (
        talking(lambda connection, _: connection.sendall(http_of(b"{}"))) as (where, _),
        pytest.raises(remote.RemoteError, match="is not that of `keras-trellis serve`"),
    ):
        web.Server(where, "m", 30)
