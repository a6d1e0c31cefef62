"""The page's server and clients that are slow, many, or gone."""

import contextlib
import json
import socket
import struct
import threading
import time

import numpy as np
import pytest

from tests.trainers.serving.page.running import serving

SETTINGS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3, "max_length": 2000}
TEXT = json.dumps({"text": "a", **SETTINGS}).encode()


class Model:
    """What the page asks a model, which takes its time, and answers at length."""

    def __init__(self, seconds=0.0, tokens=1):
        self._seconds, self._tokens = seconds, tokens

    def __call__(self, signature, **inputs):
        ids = {"ids": np.zeros([1, 2], np.int32), "lengths": np.int32([2])}
        ids["unknown"] = np.int32([0])
        if signature == "tokenize":
            return ids
        if signature == "prefill":
            return {}
        time.sleep(self._seconds)
        if signature == "generate":
            return {**ids, "text": ["word " * self._tokens]}
        tokens = np.full([1, self._tokens], "a", object)
        nll = np.ones([1, self._tokens], np.float32)
        return {"tokens": tokens, "words": tokens, "nll": nll, "count": [self._tokens]}


def request(path, body=TEXT, *headers, length=None):
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {length or len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def is_alive(address):
    with socket.create_connection(address, 10) as connection:
        connection.sendall(b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(12) == b"HTTP/1.0 200"


def ended(connection, within):
    """Returns what comes until the server ends the connection, and asserts that it does in time."""
    connection.settimeout(within)
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(2**16):
            found += piece
    return found


@pytest.mark.parametrize("leave", [reset, socket.socket.close])
def test_clients_that_go_away_leave_no_traceback(leave, capfd):
    beginnings = [
        (b"POST /score HT", 0),
        (request("/score", length=1000), 0),
        (request("/score"), 0),
        (request("/generate"), 0),
        (request("/generate"), 100),
        (b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
    ]
    with serving(Model(seconds=0.02, tokens=20_000)) as address:
        for sent, read in beginnings:
            connection = socket.create_connection(address, 10)
            connection.sendall(sent)
            time.sleep(0.1)
            if read:
                assert connection.recv(read)
            leave(connection)
            time.sleep(0.1)
        assert is_alive(address)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "sent",
    [
        request("/score", b"[" * 60_000),
        request("/score", b'{"text": ' * 5_000),
        request("/score", b"\xff"),
        request("/score", b"no gzip", "Content-Encoding: gzip"),
        request("/score").replace(b"/json", b"/json; charset=zip"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nno header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        request("/score", b"", "Transfer-Encoding: chunked").replace(
            b"Content-Length: 0\r\n", b""
        )
        + b"no number\r\n",
    ],
    ids=["arrays", "objects", "utf-8", "gzip", "charset", "header", "tls", "chunk"],
)
def test_what_clients_do_wrong_leaves_no_traceback(sent, capfd):
    with (
        serving(Model()) as address,
        socket.create_connection(address, 10) as connection,
    ):
        connection.sendall(sent)
        connection.settimeout(10)
        answer = connection.recv(12)
        assert answer[:7] == b"HTTP/1." and answer[8:] in (b" 400", b" 200")
    assert capfd.readouterr() == ("", "")


def test_a_request_that_drips_is_ended():
    before = time.monotonic()
    with (
        serving(Model(), arriving=0.3) as address,
        socket.create_connection(address) as connection,
    ):
        connection.sendall(request("/score", b"{", length=100))
        dripping = True

        def drip():
            with contextlib.suppress(OSError):
                while dripping:
                    connection.sendall(b" ")
                    time.sleep(0.05)

        thread = threading.Thread(target=drip)
        thread.start()
        answer = ended(connection, 10)
        taken, dripping = time.monotonic() - before, False
        thread.join()
    assert (
        answer.startswith(b"HTTP/1.0 408 ")
        and b"longer than 0.3 seconds to arrive" in answer
    )
    assert 0.3 <= taken < 5


@pytest.mark.parametrize(
    "sent", [b"", b"POST /score HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
)
def test_a_connection_that_asks_nothing_is_ended(sent):
    with (
        serving(Model(), arriving=0.3) as address,
        socket.create_connection(address) as connection,
    ):
        connection.sendall(sent)
        assert ended(connection, 10) == b""


def test_a_connection_that_is_answered_is_not_ended():
    with serving(Model(seconds=1.0), arriving=0.2) as address:
        with socket.create_connection(address) as connection:
            connection.sendall(request("/score"))
            assert ended(connection, 10).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize("path", ["/score", "/generate"])
def test_a_client_that_does_not_read_is_ended(path, capfd):
    limits = {"arriving": 0.3, "connections": 1}
    with serving(Model(tokens=1_000_000), **limits) as address:
        with socket.create_connection(address, 10) as connection:
            connection.sendall(request(path))
            assert connection.recv(12) == b"HTTP/1.0 200"
            deadline = time.monotonic() + 30
            while not is_alive(address):  # there is room for one
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert capfd.readouterr() == ("", "")


def test_connections_beyond_the_limit_wait():
    with serving(Model(), connections=2) as address, contextlib.ExitStack() as stack:
        first, _ = (
            stack.enter_context(socket.create_connection(address, 10)) for _ in range(2)
        )
        third = stack.enter_context(socket.create_connection(address, 10))
        third.sendall(b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        third.settimeout(0.3)
        with pytest.raises(TimeoutError):
            third.recv(12)
        first.close()
        third.settimeout(10)
        assert third.recv(12) == b"HTTP/1.0 200"
