"""The server at work: connections, signals, and a stop within a stated time."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Collection
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from keras_trellis.serving.server.app import make_app
from keras_trellis.serving.server.errors import ApiError
from keras_trellis.serving.server.service import Service

_LINGERS = 2.0  # seconds for another request of connections that are kept
_LOOKS = 0.05  # seconds between two looks whether any is left
_ABORTED_AFTER = 2.0  # seconds after `grace`, for answers that nobody reads


def serve(
    service: Service,
    listening: socket.socket,
    key: str | None,
    hosts: Collection[str] | None,
    ready: Callable[[], None],
) -> None:
    """Answers until SIGTERM or SIGINT, and then those requests that are open.

    Args:
        service: what answers.
        listening: the socket to listen at.
        key: what requests must send as a bearer's token; None: nothing.
        hosts: the names by which it may be asked; None: any.
        ready: is called when requests are answered, and a signal ends that.
    """
    limits = service.limits
    config = uvicorn.Config(
        make_app(service, key, hosts),
        http=_connection(limits.arriving, limits.connections),
        ws="none",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=max(int(limits.arriving), 1),
        timeout_graceful_shutdown=int(limits.grace + 2 * _ABORTED_AFTER) + 1,
    )
    server = _Server(config, service, ready)

    def stop(*_: Any) -> None:
        server.should_exit = True

    # uvicorn handles both while it runs, and raises what it has received once more at its end.
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        server.run([listening])
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """Gives open requests `grace` seconds to end.

    Args:
        config: uvicorn's.
        service: what answers.
        ready: see `serve`.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes connections, and says so."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes no more connections, and waits for those that are open.

        A connection whose next request comes soon ends with its answer, which says so. If uvicorn
        closed it at once, that request would find it reset.
        """
        self._service.stopping = True
        loop, grace = asyncio.get_running_loop(), self._service.limits.grace
        timers = [
            loop.call_later(grace, self._service.give_up),
            loop.call_later(grace + _ABORTED_AFTER, self._abort),
        ]
        for server in self.servers:
            server.close()
        end = loop.time() + min(_LINGERS, grace)
        while self.server_state.connections and loop.time() < end:
            await asyncio.sleep(_LOOKS)
        await super().shutdown(sockets)
        for timer in timers:
            timer.cancel()

    def _abort(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _connection(seconds: float, most: int) -> type[asyncio.Protocol]:
    """Returns the class of connections that end if they neither ask nor read for some seconds."""

    class Connection(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._seen: Any = None
            if len(self.connections) > most:
                transport.abort()
                return
            self._timer = self.loop.call_later(seconds, self._check)

        def send_400_response(self, msg: str) -> None:
            """Refuses what is no HTTP, as JSON, like all that is refused."""
            refusal = ApiError(400, "the request must be one of HTTP/1.1").response()
            fields = [*refusal.raw_headers, (b"connection", b"close")]
            lines = [b"HTTP/1.1 400 Bad Request", *map(b": ".join, fields), b"", b""]
            self.transport.write(b"\r\n".join(lines) + refusal.body)
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if len(self.connections) <= most:
                self._timer.cancel()
            super().connection_lost(exc)

        def _check(self) -> None:
            """Ends the connection if it is where it was at the last check."""
            idle = self.cycle is None or self.cycle.response_complete
            unread = self.transport.get_write_buffer_size()
            stands = (self.cycle, unread) if idle or unread else None
            if stands is not None and stands == self._seen:
                self.transport.abort()
                return
            self._seen = stands
            self._timer = self.loop.call_later(seconds, self._check)

    return Connection
