"""One HTTP request and its answer: one deadline for both, and a limit to the answer's size."""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class AnswerError(Exception):
    """There is no answer of HTTP; the message says why."""


class Asked(NamedTuple):
    """A request.

    Attributes:
        method: such as "POST".
        address: HOST:PORT.
        path: on the server, quoted.
        body: what is sent, if anything.
        deadline: seconds for the request and all of its answer.
        most: bytes that the answer may have.
        headers: sent with it.
    """

    method: str
    address: str
    path: str
    body: bytes | None
    deadline: float
    most: int
    headers: Mapping[str, str] = {}


def ask(asked: Asked) -> tuple[int, str, bytes]:
    """Sends a request; redirects are answers like others.

    Returns:
        the answer's status, such as 200, the server's words for it, and the body.

    Raises:
        TimeoutError: the deadline has passed.
        AnswerError: there is no answer, or no whole one, or too long a one.
    """
    with _answered(asked) as response:
        read = response.read(asked.most + 1)
        if len(read) <= asked.most:
            response.read()  # raises IncompleteRead if the answer breaks off
    if len(read) > asked.most:
        raise _too_long(asked)
    return response.status, response.reason, read


def lines(asked: Asked) -> Iterator[bytes]:
    """Yields the lines of an answer as they come, those of a refusal as one, after its status.

    The first line is the status and the server's words for it.

    Raises:
        TimeoutError: the deadline has passed.
        AnswerError: there is no answer, or too long a one.
    """
    left = asked.most
    with _answered(asked) as response:
        yield f"{response.status} {response.reason}".encode()
        if response.status != http.HTTPStatus.OK:
            yield response.read(left)
            return
        while line := response.readline(left + 1):
            left -= len(line)
            if left < 0:
                break
            yield line
    if left < 0:
        raise _too_long(asked)


@contextlib.contextmanager
def _answered(asked: Asked) -> Iterator[http.client.HTTPResponse]:
    end = time.monotonic() + asked.deadline
    try:
        connection = http.client.HTTPConnection(asked.address, timeout=asked.deadline)
        connection.connect()
        # The connection's own timeout is one of each part that arrives.
        hang_up = threading.Timer(asked.deadline, _shut_down, [connection.sock])
        hang_up.daemon = True
        hang_up.start()
        try:
            connection.request(
                asked.method, asked.path, asked.body, dict(asked.headers)
            )
            yield connection.getresponse()
        finally:
            hang_up.cancel()
            connection.close()
    except (http.client.HTTPException, OSError, ValueError) as error:
        if time.monotonic() < end:
            reason = (
                getattr(error, "strerror", None) or str(error) or type(error).__name__
            )
            raise AnswerError(reason) from error
    if time.monotonic() >= end:
        raise TimeoutError


def _too_long(asked: Asked) -> AnswerError:
    return AnswerError(f"it sends more than {asked.most:,} bytes")


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
