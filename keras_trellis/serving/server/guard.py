"""What stands before every request: its size, its time, who asks; and what listens for its end."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Collection, MutableMapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from keras_trellis.serving.server import page
from keras_trellis.serving.server.errors import ApiError, late, out_of_memory
from keras_trellis.serving.server.metrics import Metrics
from keras_trellis.serving.server.settings import Limits

OPEN = frozenset({"/healthz", "/readyz", *page.FILES})
"""Paths that are answered without a key; the page asks for it."""


_LEEWAY = 2.0  # seconds for a step to end that began before a deadline


class ClientGoneError(Exception):
    """Nobody reads the answer."""


class Listener:
    """Whom news of a request's rows concern.

    Args:
        seconds: for the answer, from now.

    Attributes:
        gone: whether the client has left.
        deadline: until when the answer is wanted, by `time.monotonic`.
    """

    def __init__(self, seconds: float) -> None:
        self.gone = False
        self.deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Tells that there is news."""
        self._news.set()

    async def wait(self) -> None:
        """Waits for news.

        Raises:
            ApiError: there is none, not even that a row is late: its step does not end.
        """
        left = self.deadline + _LEEWAY - time.monotonic()
        try:
            await asyncio.wait_for(self._news.wait(), max(left, 0))
        except asyncio.TimeoutError:
            raise late(self._seconds) from None
        self._news.clear()


class Guarded(Protocol):
    """What stands behind a guard.

    Attributes:
        limits: what it takes on.
        metrics: what counts answers.
        stopping: whether it is about to end.
    """

    limits: Limits
    metrics: Metrics
    stopping: bool


class Guard:
    """Lets requests through to an application, as `scope["state"]["listener"]` with a `Listener`.

    Args:
        app: the application.
        service: what it serves.
        key: what requests must send as a bearer's token; None: nothing.
        hosts: the names in `Host` that are let through, beside those of this machine: by others,
            another site's page could reach a server that listens on this machine alone. None: all.
    """

    def __init__(
        self,
        app: FastAPI,
        service: Guarded,
        key: str | None,
        hosts: Collection[str] | None,
    ) -> None:
        self._app = app
        self._service = service
        self._limits = service.limits
        self._key = None if key is None else key.encode()
        self._hosts = hosts
        self._paths = {route.path for route in app.routes if isinstance(route, Route)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begin, status = time.monotonic(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._service.stopping:  # the next request would find nobody
                    message["headers"] = [
                        *message["headers"],
                        (b"connection", b"close"),
                    ]
            await send(message)

        try:
            await self._guarded(scope, receive, sent)
        finally:
            self._service.metrics.answered(
                self._path(scope), status, time.monotonic() - begin
            )

    def _path(self, scope: Scope) -> str:
        """Returns what a request is counted as: a path of the application, which are few."""
        route = scope.get("route")
        path = getattr(route, "path", scope["path"])
        return path if path in self._paths else "other"

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            body = await self._body(scope, receive)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        except MemoryError:
            await out_of_memory().response()(scope, receive, send)
            return
        if body is None:  # the client has left
            return
        listener = Listener(self._limits.deadline)
        scope.setdefault("state", {})["listener"] = listener
        watch = asyncio.create_task(_watch(receive, listener))
        try:
            await self._app(scope, _replayed(body, watch), send)
        finally:
            watch.cancel()

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self._hosts is not None:
            _check_host(headers.get(b"host", b"").decode("latin-1"), self._hosts)
        if self._key is None or scope["path"] in OPEN:
            return
        given = headers.get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self._key):
            message = "the key must be sent as `Authorization: Bearer KEY`"
            raise ApiError(
                401,
                message,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Returns the body of a request; None if the client leaves meanwhile."""
        limits = self._limits
        lengths = [v for name, v in scope["headers"] if name == b"content-length"]
        if lengths and int(lengths[0]) > limits.body_bytes:
            raise self._too_long(int(lengths[0]))
        try:
            return await asyncio.wait_for(self._all(receive), limits.arriving)
        except asyncio.TimeoutError:
            message = (
                f"a request must arrive within {limits.arriving:g} seconds; see --arriving of the "
                "server"
            )
            raise ApiError(408, message, headers={"Connection": "close"}) from None

    async def _all(self, receive: Receive) -> bytes | None:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > self._limits.body_bytes:
                raise self._too_long(size)
            more = message.get("more_body", False)
        return b"".join(parts)

    def _too_long(self, size: int) -> ApiError:
        message = (
            f"a request must have at most {self._limits.body_bytes} bytes, see --body-bytes of the "
            f"server. Received: {size}"
        )
        return ApiError(413, message, headers={"Connection": "close"})


def _check_host(host: str, allowed: Collection[str]) -> None:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name != "localhost" and name not in allowed:
            ipaddress.ip_address(name)
    except ValueError:
        message = (
            "a server that listens on this machine alone must be named by localhost, by an address "
            f"in numbers or by a name of --allow-host. Received: Host: {host[:80]!r}"
        )
        raise ApiError(403, message) from None


async def _watch(receive: Receive, listener: Listener) -> None:
    """Waits until the client leaves."""
    message: MutableMapping[str, Any] = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
    listener.gone = True
    listener.wake()


def _replayed(body: bytes, watch: asyncio.Task[None]) -> Receive:
    """Returns what receives a body that has been received."""
    messages: list[Message] = [
        {"type": "http.request", "body": body, "more_body": False}
    ]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.wait([watch])
        return {"type": "http.disconnect"}

    return receive
