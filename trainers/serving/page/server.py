"""The page's server: three files, and answers about one model.

`GET /model` describes the model, `GET /example` returns a text to show it with; `POST /score` and
`POST /generate` take JSON objects with the fields that `page.js` sends. An error is
`{"error": ...}`: an answer with a status of 400 or more, or the last line of a text that has begun.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from trainers.serving.page.connections import USUAL, Connections, Limits, listening
from trainers.serving.page.served import ServedModel, example, score
from trainers.serving.writing import Sampling, Unknown, generate

__all__ = ["MOST_BYTES", "MOST_TOKENS", "application", "run"]

MOST_BYTES = 64 * 1024  # of a request
MOST_TOKENS = 2_000  # that a request may ask for

_FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
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
_WHOLE = {"top_k": (0, 2**31 - 1), "seed": (-_EXACT, _EXACT), "max_length": (1, MOST_TOKENS)}

_LARGEST = float(np.finfo(np.float32).max)

_MODEL = web.AppKey("model", ServedModel)
_WORKER = web.AppKey("worker", ThreadPoolExecutor)
_CONNECTIONS = web.AppKey("connections", Connections)
_DEADLINE = web.RequestKey("deadline", float)  # by the event loop's clock

_Made = TypeVar("_Made")


def application(
    model: ServedModel,
    host: str,
    limits: Limits = USUAL,
) -> web.Application:
    """Returns the page's server.

    Args:
        model: the model, which is called in a thread of its own, one call at a time.
        host: the name of this server in requests, beside `localhost` and numeric addresses. Other
            names are refused: their owner could point them here, and ask from a page of their own.
        limits: the limits of clients.
    """
    app = web.Application(middlewares=[_explained, _of_this_site(host)], client_max_size=MOST_BYTES)
    app[_MODEL], app[_CONNECTIONS] = model, Connections(limits)
    app[_WORKER] = ThreadPoolExecutor(1, "model")
    app.on_response_prepare.append(_add_headers)
    app.on_cleanup.append(_stop_worker)
    for path in _FILES:
        app.router.add_get(path, _file)
    app.router.add_get("/model", _describe)
    app.router.add_get("/example", _example)
    app.router.add_post("/score", _score)
    app.router.add_post("/generate", _generate)
    return app


def run(app: web.Application, listener: socket.socket, until: Callable[[], Awaitable[Any]]) -> None:
    """Serves the page until something has happened.

    Args:
        app: what `application` returns.
        listener: where clients come.
        until: what is waited for.
    """

    async def serve() -> None:
        async with listening(app, app[_CONNECTIONS], listener):
            await until()

    asyncio.run(serve())


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    del request
    response.headers.update(_HEADERS)


async def _stop_worker(app: web.Application) -> None:
    app[_WORKER].shutdown(wait=False, cancel_futures=True)


@web.middleware
async def _explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Sets the request's deadline, and makes errors answers that the page can show."""
    connections = request.app[_CONNECTIONS]
    request[_DEADLINE] = asyncio.get_running_loop().time() + connections.limits.seconds
    try:
        with connections.asking(request):
            return await handler(request)
    except (ConnectionError, web.RequestPayloadError):  # nobody reads the answer
        return web.Response(status=400)
    except (ValueError, asyncio.TimeoutError) as error:
        status = 400 if isinstance(error, ValueError) else 504
        return web.json_response({"error": _message(request, error)}, status=status)
    except web.HTTPException as error:
        return web.json_response({"error": error.text}, status=error.status)


def _message(request: web.Request, error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    seconds = request.app[_CONNECTIONS].limits.seconds
    return f"the model needs longer than {seconds:g} seconds; ask for less"


def _of_this_site(host: str) -> Middleware:
    """Returns the middleware that refuses other sites' pages, and other names of this machine."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = urlsplit(f"//{request.host}").hostname or ""
        if name not in ("localhost", host.lower()) and not _is_address(name):
            raise web.HTTPForbidden(
                text=f"this page is not at {name}; open it by an address in numbers, or localhost"
            )
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text=f"pages of {origin} may not ask here")
        return await handler(request)

    return check


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _file(request: web.Request) -> web.FileResponse:
    return web.FileResponse(Path(__file__).with_name(_FILES[request.path]))


async def _describe(request: web.Request) -> web.Response:
    model = request.app[_MODEL]
    return web.json_response({"name": model.name, "card": model.card, "most_tokens": MOST_TOKENS})


async def _example(request: web.Request) -> web.Response:
    return web.json_response({"text": await _ask(request, example, request.app[_MODEL])})


async def _score(request: web.Request) -> web.Response:
    fields = await _fields(request)
    scores = await _ask(request, score, request.app[_MODEL], _text(fields))
    return web.json_response(scores._asdict())


async def _generate(request: web.Request) -> web.StreamResponse:
    """Answers with lines of JSON, `{"text": ...}` each, as the model writes.

    The first line tells how much of the prompt is unknown. When the client goes away the task is
    cancelled, and asks the model for no more.
    """
    fields = await _fields(request)
    told: list[Unknown] = []
    pieces = generate(request.app[_MODEL], _text(fields), _sampling(fields), tell=told.append)
    piece = await _ask(request, next, pieces, None)
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    try:
        await _send(request, response, {"unknown": told[0]._asdict()})
        while piece is not None:
            await _send(request, response, {"text": piece})
            piece = await _ask(request, next, pieces, None)
    except (ValueError, asyncio.TimeoutError) as error:
        await _send(request, response, {"error": _message(request, error)})
    return response


async def _send(
    request: web.Request, response: web.StreamResponse, line: Mapping[str, Any]
) -> None:
    """Writes a line; raises ConnectionError where the client does not read."""
    written = response.write(f"{json.dumps(line)}\n".encode())
    try:
        await asyncio.wait_for(written, request.app[_CONNECTIONS].limits.arriving)
    except asyncio.TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read") from None


async def _ask(request: web.Request, function: Callable[..., _Made], *arguments: Any) -> _Made:
    """Calls a function of the model; raises asyncio.TimeoutError at the request's deadline."""
    loop = asyncio.get_running_loop()
    call = loop.run_in_executor(request.app[_WORKER], function, *arguments)
    return await asyncio.wait_for(call, request[_DEADLINE] - loop.time())


async def _fields(request: web.Request) -> Mapping[str, Any]:
    # Other sites' forms cannot send this type.
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(
            text=f"a request must be application/json. Received: {request.content_type}"
        )
    seconds = request.app[_CONNECTIONS].limits.arriving
    try:
        fields = json.loads(await asyncio.wait_for(request.read(), seconds))
    except asyncio.TimeoutError:
        raise web.HTTPRequestTimeout(
            text=f"the request took longer than {seconds:g} seconds to arrive"
        ) from None
    except (UnicodeDecodeError, RecursionError):
        raise ValueError("a request must be UTF-8, and not nested deeply") from None
    if not isinstance(fields, dict):
        raise ValueError(f"a request must be a JSON object. Received: {type(fields).__name__}")
    return fields


def _text(fields: Mapping[str, Any]) -> str:
    text = fields.get("text")
    if not isinstance(text, str):
        raise ValueError(f"`text` must be a string. Received: text={text!r}")
    return text


def _sampling(fields: Mapping[str, Any]) -> Sampling:
    """Returns the settings, in the signature's types and sizes; the model checks their values."""
    return Sampling(
        temperature=_real(fields, "temperature"),
        top_k=_integer(fields, "top_k"),
        top_p=_real(fields, "top_p"),
        seed=_integer(fields, "seed"),
        max_length=_integer(fields, "max_length"),
    )


def _real(fields: Mapping[str, Any], name: str) -> float:
    value: Any = fields.get(name)
    if type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"`{name}` must be a finite number. Received: {name}={value!r}")
    return float(value)


def _integer(fields: Mapping[str, Any], name: str) -> int:
    value, (least, most) = fields.get(name), _WHOLE[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"`{name}` must be a whole number from {least:,} to {most:,}. "
            f"Received: {name}={value!r}"
        )
    return value
