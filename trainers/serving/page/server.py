"""The page's server: three files, and answers about one model.

`GET /model` describes the model, `GET /example` returns a text to show it with; `POST /score` and
`POST /generate` take JSON objects with the fields that `page.js` sends. An error is
`{"error": ...}`: an answer with a status of 400 or more, or the last line of a text that has begun.
"""

import concurrent.futures
import http.server
import io
import ipaddress
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np

from trainers.models.fields import TEXT, integer, number
from trainers.serving.page.served import ServedModel, example, scored
from trainers.serving.writing import Sampling, generate, unknown

MOST_BYTES = 64 * 1024  # of a request
_MOST_READ = 16 * MOST_BYTES  # a client whose request is not read may lose the refusal
MOST_TOKENS = 2_000  # that a request may ask for

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    # Nothing but the page's own files; and no script may write HTML.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_EXACT = 2**53 - 1  # JavaScript, and many readers of JSON, round larger numbers
_LARGEST = float(np.finfo(np.float32).max)
_REAL = number("a finite number", lambda value: abs(value) <= _LARGEST)
_ALLOWED = {
    "text": TEXT,
    "temperature": _REAL,
    "top_k": integer(0),
    "top_p": _REAL,
    "seed": integer(-_EXACT, _EXACT),
    "max_length": integer(1, MOST_TOKENS),
}

_Made = TypeVar("_Made")


class Limits(NamedTuple):
    """The limits of clients.

    Attributes:
        seconds: for an answer, once the request has arrived.
        arriving: seconds for a request to arrive, and for a part of an answer to be read.
        connections: the number open at once; others wait.
    """

    seconds: float = 120.0
    arriving: float = 10.0
    connections: int = 64


class Page(socketserver.ThreadingTCPServer):
    """The server, which listens at once; `serve_forever` answers.

    Args:
        host: the name or address to listen at. Requests may name the server by it, by `localhost`
            or by a numeric address. Other names are refused: their owner could point them here, and
            ask from a page of their own.
        port: the port; 0: any free one.
        limits: the limits of clients; by default those of `Limits`.

    Attributes:
        model: the model, to be set before the first request. It is called in a thread of its own,
            one call at a time.

    Raises:
        OSError, UnicodeError: the address cannot be used.
    """

    allow_reuse_address = True
    daemon_threads = True
    model: ServedModel

    def __init__(self, host: str, port: int, limits: Limits | None = None) -> None:
        addresses: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.address_family, *_, address = addresses[0]
        self.host, self.limits = host.lower(), limits or Limits()
        self.worker = concurrent.futures.ThreadPoolExecutor(1, "model")
        self._room = threading.Semaphore(self.limits.connections)
        super().__init__(address[:2], _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers a connection in a thread of its own, once there is room for one more."""
        self._room.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers a connection and makes room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def server_close(self) -> None:
        """Stops listening and asks the model for no more."""
        super().server_close()
        self.worker.shutdown(wait=False, cancel_futures=True)


class _Arriving(io.RawIOBase):
    """What a connection receives; raises TimeoutError after some seconds, whatever has come.

    Args:
        connection: the connection.
        seconds: from now.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        self._connection.settimeout(max(left, 1e-3))  # 0 would mean: do not wait
        return self._connection.recv_into(buffer)


class _RefusedError(ValueError):
    """A request is refused with a status other than 400."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Request(http.server.BaseHTTPRequestHandler):
    """A request and its answer, after which the connection ends."""

    server: Page
    # Without a version the answer would have no status.
    default_request_version = "HTTP/1.0"

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(
            _Arriving(self.connection, self.server.limits.arriving)
        )

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):  # nobody reads the answer
            try:
                super().handle()
            except ValueError as error:
                status = getattr(error, "status", HTTPStatus.BAD_REQUEST)
                self.send_error(status, str(error))

    def parse_request(self) -> bool:
        """Reads all of a request before anything is answered, and checks where it is from."""
        if not super().parse_request():
            return False
        limits = self.server.limits
        length = int(self.headers.get("Content-Length", 0))
        try:
            self._body = self.rfile.read(max(0, min(length, _MOST_READ)))
        except TimeoutError:
            message = (
                f"the request took longer than {limits.arriving:g} seconds to arrive"
            )
            raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT, message) from None
        self._deadline = time.monotonic() + limits.seconds
        self.connection.settimeout(limits.arriving)
        if length > MOST_BYTES:
            message = (
                f"a request must have at most {MOST_BYTES} bytes. Received: {length}"
            )
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        self._check_site()
        return True

    def _check_site(self) -> None:
        """Refuses other sites' pages, and other names of this machine."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        name = urlsplit(f"//{host}").hostname or ""
        try:
            if name not in ("localhost", self.server.host):
                ipaddress.ip_address(name)
        except ValueError:
            message = f"this page is not at {name}; open it by an address in numbers, or localhost"
            raise _RefusedError(HTTPStatus.FORBIDDEN, message) from None
        if origin is not None and urlsplit(origin).netloc != host:
            raise _RefusedError(
                HTTPStatus.FORBIDDEN, f"pages of {origin} may not ask here"
            )

    def do_GET(self) -> None:  # noqa: N802
        model = self.server.model
        if self.path in _FILES:
            name, kind = _FILES[self.path]
            self._send(Path(__file__).with_name(name).read_bytes(), kind)
        elif self.path == "/model":
            described = {
                "name": model.name,
                "card": model.card,
                "most_tokens": MOST_TOKENS,
            }
            self._send_json(described)
        elif self.path == "/example":
            self._send_json({"text": self._ask(example, model)})
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:  # noqa: N802
        if self.path == "/score":
            text = _checked(self._fields(), "text")["text"]
            self._send_json(self._ask(scored, self.server.model, text))
        elif self.path == "/generate":
            self._generate()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _generate(self) -> None:
        """Answers with lines of JSON, `{"text": ...}` each, as the model writes.

        The first line tells how much of the prompt is unknown. If the client goes away, the next
        line cannot be sent, and the model is asked for no more.
        """
        fields = _checked(self._fields(), "text", *Sampling._fields)
        text = fields.pop("text")
        counts = self._ask(unknown, self.server.model, text)
        pieces = generate(self.server.model, text, Sampling(**fields))
        piece = self._ask(next, pieces, None)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        self._send_line({"unknown": counts._asdict()})
        try:
            while piece is not None:
                self._send_line({"text": piece})
                piece = self._ask(next, pieces, None)
        except ValueError as error:
            self._send_line({"error": str(error)})

    def _ask(self, function: Callable[..., _Made], *arguments: Any) -> _Made:
        """Calls a function of the model; raises _RefusedError at the request's deadline."""
        call = self.server.worker.submit(function, *arguments)
        try:
            return call.result(self._deadline - time.monotonic())
        except concurrent.futures.TimeoutError:
            call.cancel()
            seconds = self.server.limits.seconds
            message = f"the model needs longer than {seconds:g} seconds; ask for less"
            raise _RefusedError(HTTPStatus.GATEWAY_TIMEOUT, message) from None

    def _fields(self) -> Mapping[str, Any]:
        kind = self.headers.get_content_type()
        if kind != "application/json":  # other sites' forms cannot send this type
            message = f"a request must be application/json. Received: {kind}"
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        try:
            fields = json.loads(self._body)
        except (UnicodeDecodeError, RecursionError):
            raise ValueError("a request must be UTF-8, and not nested deeply") from None
        if not isinstance(fields, dict):
            raise ValueError(
                f"a request must be a JSON object. Received: {type(fields).__name__}"
            )
        return fields

    def _send_json(self, value: Any, status: int = HTTPStatus.OK) -> None:
        self._send(json.dumps(value).encode(), "application/json", status)

    def _send(self, body: bytes, kind: str, status: int = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_line(self, value: Any) -> None:
        self.wfile.write(f"{json.dumps(value)}\n".encode())

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Answers with an error that the page can show."""
        del explain
        self._send_json({"error": message or HTTPStatus(code).phrase}, code)

    def log_message(self, *_: Any) -> None:
        """Says nothing of requests."""


def _checked(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Returns some of the fields; the model checks the values of settings further."""
    for name in names:
        value = fields.get(name)
        if not _ALLOWED[name].allows(value):
            expected = _ALLOWED[name].expected
            raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")
    return {name: fields[name] for name in names}
