"""One HTTP request and its answer: one deadline for both, and a limit to the answer's size."""

import http.client
import socket
import threading
import time
from contextlib import suppress


class AnswerError(Exception):
    """There is no answer of HTTP; the message says why."""


def ask(
    method: str, address: str, path: str, body: bytes | None, deadline: float, most: int
) -> tuple[int, str, bytes]:
    """Sends a request; redirects are answers like others.

    Args:
        method: such as "POST".
        address: HOST:PORT.
        path: on the server, quoted.
        body: what is sent, if anything.
        deadline: seconds for all of it.
        most: bytes that the answer may have.

    Returns:
        the answer's status, such as 200, the server's words for it, and the body.

    Raises:
        TimeoutError: the deadline has passed.
        AnswerError: there is no answer, or no whole one, or too long a one.
    """
    end = time.monotonic() + deadline
    try:
        connection = http.client.HTTPConnection(address, timeout=deadline)
        connection.connect()
        # The connection's own timeout is one of each part that arrives.
        hang_up = threading.Timer(deadline, _shut_down, [connection.sock])
        hang_up.start()
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            read = response.read(most + 1)
            if len(read) <= most:
                response.read()  # raises IncompleteRead if the answer breaks off
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
    if len(read) > most:
        raise AnswerError(f"it sends more than {most:,} bytes")
    return response.status, response.reason, read


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
