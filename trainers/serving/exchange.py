"""One HTTP request and its answer: one deadline for both, and a limit to the answer's size."""

import asyncio
import os
import socket
from typing import NamedTuple

import aiohttp
import yarl

__all__ = ["Answer", "AnswerError", "ask"]

_PIECE = 2**16  # bytes read at a time


class AnswerError(Exception):
    """There is no answer of HTTP; the message says why."""


class Answer(NamedTuple):
    """What a server answered.

    Attributes:
        status: the code, such as 200.
        reason: the server's words for it.
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
        path: on the server, quoted.
        body: what is sent, if anything.
        deadline: seconds for all of it.
        most: bytes that the answer may have.

    Raises:
        TimeoutError: the deadline has passed.
        AnswerError: there is no answer, or no whole one, or too long a one.
    """
    try:
        url = yarl.URL(f"http://{address}{path}", encoded=True)
        return asyncio.run(_ask(method, url, body, deadline, most))
    except asyncio.TimeoutError as error:  # another class than TimeoutError in Python 3.10
        raise TimeoutError from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: no such URL can be
        raise AnswerError(_reason(error)) from error


async def _ask(
    method: str, url: yarl.URL, body: bytes | None, deadline: float, most: int
) -> Answer:
    timeout = aiohttp.ClientTimeout(total=deadline)
    headers = {"Accept-Encoding": "identity"}  # a few bytes could unpack to any number
    async with (
        aiohttp.ClientSession(timeout=timeout, headers=headers, auto_decompress=False) as session,
        session.request(method, url, data=body, allow_redirects=False) as response,
    ):
        read = bytearray()
        async for piece in response.content.iter_chunked(_PIECE):
            read += piece
            if len(read) > most:
                raise AnswerError(f"it sends more than {most:,} bytes")
        return Answer(response.status, response.reason or "", bytes(read))


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message  # without the address, which the caller tells
    cause = getattr(error, "os_error", error)
    if isinstance(cause, OSError) and cause.errno and not isinstance(cause, socket.gaierror):
        return os.strerror(cause.errno)  # asyncio's message lacks it
    return str(cause) or type(cause).__name__
