"""The connections of the page's server, with limits to their number and their time.

aiohttp has no such limits: a client could open any number, and begin requests that never end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from aiohttp import http_exceptions, web

__all__ = ["USUAL", "Connections", "Limits", "listening"]

_FULL = json.dumps({"error": "too many connections are open; try again later"}).encode()
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_FULL), _FULL)
)
_LINGER = 1.0  # seconds that a client has to read a refusal
_ROUNDS = 10  # checks for connections that wait too long, in the time that they may wait


class Limits(NamedTuple):
    """The limits of clients.

    Attributes:
        seconds: for a request, once it has arrived, and its answer.
        arriving: seconds for a request's body to arrive.
        waiting: seconds for the last answer to be read and the next request to begin.
        connections: the number open at once.
    """

    seconds: float = 120.0
    arriving: float = 10.0
    waiting: float = 15.0
    connections: int = 64


USUAL = Limits()


class Connections:
    """The connections with a request, and since when the others wait.

    Args:
        limits: their limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._asking: set[web.RequestHandler] = set()
        self._waiting: dict[web.RequestHandler, float] = {}  # since when

    @contextlib.contextmanager
    def asking(self, request: web.Request) -> Iterator[None]:
        """Counts a request's connection as busy while the context lasts."""
        self._waiting.pop(request.protocol, None)
        self._asking.add(request.protocol)
        try:
            yield
        finally:
            self._asking.discard(request.protocol)

    async def end_the_waiting(self, server: web.Server) -> None:
        """Ends connections that wait too long; never returns."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            # This forgets closed connections.
            self._waiting = {
                each: self._waiting.get(each, now)
                for each in server.connections
                if each not in self._asking
            }
            for each, since in self._waiting.items():
                if now - since > self.limits.waiting and each.transport is not None:
                    each.transport.abort()  # `close` would wait until all is written
            await asyncio.sleep(self.limits.waiting / _ROUNDS)


class _Door(asyncio.Protocol):
    """Hands a new connection to the server, or refuses it if there are enough."""

    def __init__(self, server: web.Server, most: int) -> None:
        self._server, self._most = server, most

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._server.connections) < self._most:
            handler = self._server()
            transport.set_protocol(handler)
            handler.connection_made(transport)
        else:
            transport.write(_REFUSAL)
            # A connection closed at once, its request unread, may lose the refusal.
            asyncio.get_running_loop().call_later(_LINGER, transport.abort)


@contextlib.asynccontextmanager
async def listening(
    app: web.Application, connections: Connections, listener: socket.socket
) -> AsyncIterator[None]:
    """Serves an application while the context lasts.

    Args:
        app: the application, which reports its requests to `connections`.
        connections: its connections.
        listener: the socket that accepts them.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,
        shutdown_timeout=1.0,
    )
    await runner.setup()
    server = runner.server
    assert server is not None
    loop = asyncio.get_running_loop()
    most = connections.limits.connections
    door = await loop.create_server(lambda: _Door(server, most), sock=listener)
    ending = asyncio.create_task(connections.end_the_waiting(server))
    logger, quiet = logging.getLogger("aiohttp.server"), _Quiet()
    logger.addFilter(quiet)
    try:
        yield
    finally:
        ending.cancel()
        door.close()
        await runner.cleanup()
        logger.removeFilter(quiet)


class _Quiet(logging.Filter):
    """Drops the tracebacks that aiohttp logs of clients' mistakes."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        of_clients = (http_exceptions.HttpProcessingError, web.RequestPayloadError, ConnectionError)
        return not isinstance(error, of_clients)
