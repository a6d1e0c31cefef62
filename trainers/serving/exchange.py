"""One HTTP request and its answer, both within one deadline, the answer within one size.

The standard library's limit of time is that of each read: a server that sends a byte now and then
could hold a client for ever.
"""

import contextlib
import http.client
import socket
import time
from typing import Any, NamedTuple

__all__ = ["Answer", "AnswerError", "ask"]

_PIECE = 2**16  # bytes read at a time


class AnswerError(Exception):
    """There is no answer of HTTP; the message says why."""


class Answer(NamedTuple):
    """What a server answered.

    Attributes:
        status: the code, such as 200.
        reason: what the server says beside it.
        body: not decoded.
    """

    status: int
    reason: str
    body: bytes


def ask(
    method: str, address: str, path: str, body: bytes | None, *, deadline: float, most: int
) -> Answer:
    """Sends a request and returns the answer; redirects are answers like others.

    Args:
        method: such as "POST".
        address: HOST:PORT.
        path: on the server.
        body: what is sent, if anything.
        deadline: seconds for all of it. The resolver of names has its own limit.
        most: bytes that the answer may have.

    Raises:
        TimeoutError: the deadline has passed.
        AnswerError: there is no answer, or no whole one, or too long a one.
    """
    try:
        with contextlib.closing(_Connection(address, time.monotonic() + deadline)) as connection:
            connection.request(method, path, body, {"Connection": "close"})
            response = connection.getresponse()
            return Answer(response.status, response.reason, _read(response, most))
    except TimeoutError:
        raise
    # UnicodeError and OverflowError: HOST:PORT is none.
    except (OSError, UnicodeError, OverflowError, http.client.HTTPException) as error:
        raise AnswerError(str(error) or type(error).__name__) from error


def _read(response: http.client.HTTPResponse, most: int) -> bytes:
    body = bytearray()
    while piece := response.read(_PIECE):
        body += piece
        if len(body) > most:
            raise AnswerError(f"it sends more than {most:,} bytes")
    if response.length:  # which no error tells where a read has a limit
        raise AnswerError(f"it broke off {response.length:,} bytes before its end")
    return bytes(body)


class _Socket(socket.socket):
    """A socket with one limit of time for all that is done with it.

    Attributes:
        end: when it ends, by `time.monotonic`.
    """

    end: float

    def connect(self, address: Any) -> None:
        self._limit()
        super().connect(address)

    def sendall(self, *arguments: Any) -> None:
        self._limit()
        super().sendall(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        self._limit()
        return super().recv_into(*arguments)

    def _limit(self) -> None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: str, end: float) -> None:
        super().__init__(address)
        self._end = end

    def connect(self) -> None:
        """Connects to the first of the host's addresses that lets it."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for index, (family, kind, protocol, _, address) in enumerate(found):
            opened = _Socket(family, kind, protocol)
            opened.end = self._end
            try:
                opened.connect(address)
            except OSError as error:
                opened.close()
                if isinstance(error, TimeoutError) or index == len(found) - 1:
                    raise
            else:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.sock = opened
                return
