"""What stands before every request: its size, its time, and who asks."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from keras_trellis.serving.server import page
from keras_trellis.serving.server.errors import ApiError, check_limit, out_of_memory
from keras_trellis.serving.server.listener import Listener
from keras_trellis.serving.server.service import Service

OPEN = frozenset({"/healthz", "/readyz", *page.FILES})
"""Paths that are answered without a key; the page asks for it."""

_CLOSE = {"Connection": "close"}


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
        service: Service,
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
        seconds = self._limits.arriving
        try:
            return await asyncio.wait_for(self._all(scope, receive), seconds)
        except asyncio.TimeoutError:
            message = (
                f"a request must arrive within {seconds:g} seconds; see --arriving of the "
                "server"
            )
            raise ApiError(408, message, headers=_CLOSE) from None

    async def _all(self, scope: Scope, receive: Receive) -> bytes | None:
        announced = dict(scope["headers"]).get(b"content-length", 0)
        body, more = bytearray(), True
        self._check_size(int(announced))
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            self._check_size(len(body))
            more = message.get("more_body", False)
        return bytes(body)

    def _check_size(self, size: int) -> None:
        must = "a request must have at most {} bytes"
        check_limit(self._limits, "body_bytes", size, must, 413, headers=_CLOSE)


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
    while (await receive())["type"] != "http.disconnect":
        pass
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
