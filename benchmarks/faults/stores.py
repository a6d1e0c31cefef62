"""Object stores on this machine, and what goes wrong on the way to them.

The servers are moto's S3 and gcp-storage-emulator. A proxy stands before each.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import logging
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
from etils import epath

from trainers.data.stores import to_path

BUCKET = "bucket"
SLOW_SECONDS = 0.2
# What becomes of a request, and what the client sees.
FAULTS = {
    "busy": "the store answers 503",
    "slow": "the store takes its time",
    "dropped": "the connection ends before the request is done",
    "unanswered": "the request is done, and the connection ends before the answer",
    "cut": "the connection ends in the middle of the answer",
    "stale": "a listing is the one of the request before",
    "denied": "the store answers 403",
}
_DENIED_S3 = (
    "<?xml version='1.0' encoding='UTF-8'?><Error><Code>InvalidAccessKeyId</Code><Message>"
    "The AWS Access Key Id you provided does not exist in our records.</Message></Error>"
)
_BUSY_S3 = (
    "<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code><Message>"
    "Please reduce your request rate.</Message></Error>"
)
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclasses.dataclass
class Store:
    """A store that answers on this machine.

    Attributes:
        scheme: "s3" or "gs".
        environment: the variables by which a client finds it.
        fault: says what becomes of a request, by its number from 1, its method and its path: one of
            `FAULTS`, or None.
        requests: the method and the path of each so far.
    """

    scheme: str
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    fault: Callable[[int, str, str], str | None] = lambda *_: None
    requests: list[tuple[str, str]] = dataclasses.field(
        default_factory=list, repr=False
    )

    @property
    def url(self) -> str:
        """The URL of its only bucket."""
        return f"{self.scheme}://{BUCKET}"


@contextlib.contextmanager
def serving(scheme: str) -> Iterator[Store]:
    """Starts an empty store with one bucket, and ends it with the context."""
    store = Store(scheme)
    upstream = {"s3": _s3, "gs": _gs}[scheme]
    with upstream() as port, _proxy(store, port) as url:
        environments = {
            "s3": {
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": url,
                "AWS_EC2_METADATA_DISABLED": "true",
                # Of botocore; s3fs repeats what it gives up.
                "AWS_MAX_ATTEMPTS": "2",
            },
            "gs": {
                "STORAGE_EMULATOR_HOST": url,
                "FSSPEC_GS_TOKEN": "anon",
                # It would ask another server, which the emulator does not have.
                "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            },
        }
        store.environment |= environments[scheme]
        yield store


@contextlib.contextmanager
def _s3() -> Iterator[int]:
    from moto import server  # it imports half of the AWS

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    serving.start()
    try:
        _, port = serving.get_host_and_port()
        _send(port, "POST", "/moto-api/reset")
        _send(port, "PUT", f"/{BUCKET}")
        yield port
    finally:
        serving.stop()


@contextlib.contextmanager
def _gs() -> Iterator[int]:
    from gcp_storage_emulator import server

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serving = server.create_server(
        "127.0.0.1", port, in_memory=True, default_bucket=BUCKET
    )
    serving.start()
    try:
        yield port
    finally:
        serving.stop()


def _send(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


@contextlib.contextmanager
def _proxy(store, port):
    handler = type("Handler", (_Handler,), {"store": store, "port": port})
    handler.listings = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Passes requests on, or lets them go wrong."""

    protocol_version = "HTTP/1.1"
    # The second piece of an answer would wait for the client's acknowledgement.
    disable_nagle_algorithm = True
    store: Store
    port: int
    listings: dict[str, tuple]

    def handle_one_request(self):
        # A client that was killed leaves its connections.
        with contextlib.suppress(ConnectionError):
            return super().handle_one_request()
        self.close_connection = True

    def log_message(self, *_):
        pass

    def _pass_on(self):
        body = self._body()
        self.store.requests.append((self.command, self.path))
        number = len(self.store.requests)
        fault = self.store.fault(number, self.command, self.path)
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        if fault in ("busy", "denied"):
            self._answer(*self._refusal(fault))
            return
        if fault == "dropped":
            self._hang_up()
            return
        headers = {
            k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP
        }
        answer = _send(self.port, self.command, self.path, body, headers)
        if self.command == "GET" and (
            "list-type" in self.path or "prefix=" in self.path
        ):
            former = self.listings.get(self.path, answer)
            self.listings[self.path] = answer
            answer = former if fault == "stale" else answer
        if fault == "unanswered":
            self._hang_up()
            return
        self._answer(*answer, cut=fault == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _pass_on  # noqa: N815

    def _body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _refusal(self, fault):
        status = {"busy": 503, "denied": 403}[fault]
        if self.store.scheme == "s3":
            text = _BUSY_S3 if fault == "busy" else _DENIED_S3
            return status, [("Content-Type", "application/xml")], text.encode()
        error = {"error": {"code": status, "message": FAULTS[fault]}}
        return (
            status,
            [("Content-Type", "application/json")],
            json.dumps(error).encode(),
        )

    def _answer(self, status, headers, body, cut=False):
        length = next((v for k, v in headers if k.lower() == "content-length"), None)
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header(
            "Content-Length", length if is_head and length else str(len(body))
        )
        self.end_headers()
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self._hang_up()
        elif not is_head:
            self.wfile.write(body)

    def _hang_up(self):
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True


def fetch(store: Store, folder: Path) -> None:
    """Copies all objects of a store to a folder.

    A process of its own does it: a client of this one would go on in commands forked from it.
    """
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_fetch_all, args=(store, folder))
    process.start()
    process.join()
    if process.exitcode:
        raise OSError(f"{store.url} cannot be copied")


def _fetch_all(store, folder):
    with configured(store):
        copy(to_path(store.url), folder)


def copy(path: epath.Path, folder: Path) -> None:
    """Copies all objects below a path to a folder."""
    folder.mkdir(exist_ok=True)
    for entry in path.iterdir():
        if entry.is_dir():
            copy(entry, folder / entry.name)
        else:
            (folder / entry.name).write_bytes(entry.read_bytes())


@contextlib.contextmanager
def configured(store: Store) -> Iterator[None]:
    """Lets new clients in this process find a store, in the context."""
    before = {name: os.environ.get(name) for name in store.environment}
    os.environ.update(store.environment)
    fsspec.config.set_conf_env(fsspec.config.conf)
    # It keeps clients, which would ask a former store.
    fsspec.get_filesystem_class(store.scheme).clear_instance_cache()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
