"""The API: `/v1` as OpenAI's clients speak it, and scores, next tokens and tokens; and the page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import (
    FileResponse,
    JSONResponse,
    Response,
    StreamingResponse,
)

from keras_trellis.serving.server import answers, page, schemas
from keras_trellis.serving.server.answers import Choice, Json
from keras_trellis.serving.server.errors import (
    ApiError,
    out_of_memory,
    validation_error,
)
from keras_trellis.serving.server.guard import Guard
from keras_trellis.serving.server.listener import ClientGoneError
from keras_trellis.serving.server.service import Service, Work
from keras_trellis.version import __version__

_GAP = 0.02  # seconds between two parts of a stream; who reads sees no pause
_LARGE = 500  # tokens of an answer that is written while others are answered
# A proxy that collects an answer before it sends it would keep the words back.
_STREAMED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_GONE = 499  # what proxies count requests as whose clients left
_REFUSED = (
    *(ApiError, ClientGoneError, RequestValidationError),
    *(HTTPException, MemoryError, Exception),
)
_MEANINGS = {
    400: "What the request gets wrong.",
    429: "The queue is full.",
    500: "The request's step has failed.",
    503: "The server cannot answer now.",
    504: "The deadline has passed.",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer, "description": meaning}
    for status, meaning in _MEANINGS.items()
}


def _responses(path: str) -> dict[int | str, dict[str, Any]]:
    return {200: _example(path), **_ERRORS}


def _example(path: str) -> dict[str, Any]:
    return {"content": {"application/json": {"example": schemas.ANSWERS[path]}}}


def make_app(service: Service, key: str | None, hosts: Collection[str] | None) -> Guard:
    """Returns the application.

    Args:
        service: what answers.
        key: what requests must send as a bearer's token; None: nothing.
        hosts: the names by which it may be asked; None: any, because it does not listen on this
            machine alone.
    """
    app = FastAPI(
        title="keras_trellis",
        description=__doc__,
        version=__version__,
        lifespan=_lifespan(service),
        docs_url=None,  # pages that fetch their scripts from elsewhere
        redoc_url=None,
    )
    for kind in _REFUSED:
        app.add_exception_handler(kind, _refuse)
    _add_openai(app, service)
    _add_texts(app, service)
    _add_state(app, service)
    _add_page(app)
    _describe_errors(app)
    return Guard(app, service, key, hosts)


def _describe_errors(app: FastAPI) -> None:
    """Takes the errors out of the description that FastAPI would send, which are ours here."""
    description = app.openapi()  # which it keeps
    for methods in description["paths"].values():
        for method in methods.values():
            method["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        description["components"]["schemas"].pop(name, None)


def _lifespan(service: Service) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.begin()
        yield
        service.give_up()
        await service.aside(service.join)

    return lifespan


def _add_openai(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models")
    async def models() -> JSONResponse:
        """Lists the model."""
        return JSONResponse({"object": "list", "data": [_described(service)]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> JSONResponse:
        """Describes the model."""
        _check_name(service, name)
        return JSONResponse(_described(service))

    @app.post("/v1/completions", responses=_responses("/v1/completions"))
    async def completions(
        request: Request, asked: schemas.CompletionRequest
    ) -> Response:
        """Continues texts, and tells how probable their tokens are."""
        _check_name(service, asked.model)
        work = await service.submit(asked, request.state.listener)
        header = _header(service, work)
        if asked.stream:
            return await _streamed(work, asked, header)
        await work.ended()
        parts = [choice.part() for choice in answers.choices(work, asked)]
        answer = {**header, "choices": parts, "usage": answers.usage(work)}
        return await _as_json(service, answer, work)

    @app.post("/v1/chat/completions", responses=_ERRORS)
    async def chat() -> None:
        """Refuses: no model of this package is a chat model."""
        message = (
            f"{service.name} is no chat model; ask /v1/completions to continue a text"
        )
        raise ApiError(404, message, param="model", code="model_not_supported")


def _add_texts(app: FastAPI, service: Service) -> None:
    @app.post("/score", responses=_responses("/score"))
    async def score(request: Request, asked: schemas.ScoreRequest) -> Response:
        """Tells how probable each token of texts is, given those before it."""
        work = await service.answered(asked, request.state.listener)
        scores = await service.aside(answers.scores, work)
        separator = work.served.model.tokenizer.separator
        answer = {"separator": separator, "scores": scores}
        return await _as_json(service, {**_version(service, work), **answer}, work)

    @app.post("/next", responses=_responses("/next"))
    async def following(request: Request, asked: schemas.NextRequest) -> Response:
        """Lists the most probable tokens after texts."""
        work = await service.answered(asked, request.state.listener)
        tokenizer = work.served.model.tokenizer
        lists = [
            answers.likeliest(tokenizer, *row.after) for row in work.rows if row.after
        ]
        unknown = [prompt.unknown for prompt in work.prompts]
        answer = {**_version(service, work), "next": lists, "unknown": unknown}
        return JSONResponse(answer)

    @app.post("/tokenize", responses=_responses("/tokenize"))
    async def tokenize(request: Request, asked: schemas.TokenizeRequest) -> Response:
        """Cuts texts into the tokens that the model reads."""
        served = service.versions.current
        prompts = await service.read(served.model, asked)
        work = Work(served, prompts, [], request.state.listener)
        answer = {
            **_version(service, work),
            "ids": [prompt.ids[1:].tolist() for prompt in work.prompts],
            "words": [prompt.words for prompt in work.prompts],
            "unknown": [prompt.unknown for prompt in work.prompts],
        }
        return await _as_json(service, answer, work)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/card", responses={200: _example("/card")})
    async def card() -> JSONResponse:
        """Tells what the model card says of the model."""
        served = service.versions.current
        facts = await service.aside(page.facts, served.folder)
        version = {"model": service.name, "version": served.number}
        return JSONResponse({**version, "facts": facts})

    @app.get(
        "/healthz",
        responses={503: {"description": "Steps or looks for versions fail."}},
    )
    async def healthz() -> JSONResponse:
        """Tells whether the model works, or why not."""
        problem = service.problem()
        return JSONResponse({"status": problem or "ok"}, 503 if problem else 200)

    @app.get("/readyz", responses={503: {"description": "It takes no requests."}})
    async def readyz() -> JSONResponse:
        """Tells whether requests are taken."""
        problem = "stopping" if service.stopping else service.problem()
        answer = {"status": problem or "ok", "version": service.versions.current.number}
        return JSONResponse(answer, 503 if problem else 200)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counts what the server does, for Prometheus."""
        return Response(
            service.metrics.text(),
            media_type="text/plain; version=0.0.4; charset=utf-8",
        )


def _add_page(app: FastAPI) -> None:
    def add(path: str, name: str, kind: str) -> None:
        @app.get(path, include_in_schema=False)
        async def file() -> Response:
            return FileResponse(page.path_of(name), 200, page.HEADERS, kind)

    for path, (name, kind) in page.FILES.items():
        add(path, name, kind)


async def _streamed(
    work: Work, asked: schemas.CompletionRequest, header: Json
) -> Response:
    """Returns a stream, once there is something to send."""
    choices = answers.choices(work, asked)
    try:
        parts = await _next_parts(work, choices)
    except BaseException:
        work.cancel()
        raise

    async def events() -> AsyncIterator[str]:
        nonlocal parts
        try:
            while True:
                for part in parts:
                    yield _event({**header, "choices": [part]})
                if all(choice.has_ended for choice in choices):
                    break
                await asyncio.sleep(_GAP)
                parts = await _next_parts(work, choices)
            if asked.stream_options is not None and asked.stream_options.include_usage:
                yield _event({**header, "choices": [], "usage": answers.usage(work)})
            yield "data: [DONE]\n\n"
        except ApiError as error:
            yield _event(error.body())
        except ClientGoneError:
            return
        finally:
            work.cancel()

    return StreamingResponse(events(), 200, _STREAMED, "text/event-stream")


async def _next_parts(work: Work, choices: Sequence[Choice]) -> list[Json]:
    """Waits for what there is to send next."""
    while True:
        await work.news()
        parts = [part for choice in choices if (part := choice.part())]
        if parts:
            return parts


def _event(answer: Json) -> str:
    return f"data: {json.dumps(answer, ensure_ascii=False)}\n\n"


async def _as_json(service: Service, answer: Json, work: Work) -> Response:
    size = sum(len(prompt.ids) for prompt in work.prompts)
    size += sum(len(row.written) for row in work.rows)
    if size <= _LARGE:
        return JSONResponse(answer)
    response: JSONResponse = await service.aside(JSONResponse, answer)
    return response


def _header(service: Service, work: Work) -> Json:
    return {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": service.name,
        "system_fingerprint": f"{work.served.number}-{work.served.model.fingerprint}",
    }


def _version(service: Service, work: Work) -> Json:
    """Returns what answers say of the model."""
    return {"model": service.name, "version": work.served.number}


def _described(service: Service) -> Json:
    served = service.versions.current
    return {
        "id": service.name,
        "object": "model",
        "created": served.created,
        "owned_by": "keras_trellis",
        "version": served.number,
        "fingerprint": served.model.fingerprint,
        "vocabulary_size": served.model.vocabulary_size,
        "max_prompt_tokens": service.limits.prompt_tokens,
        "max_tokens": service.limits.new_tokens,
        "max_alternatives": service.limits.alternatives,
    }


def _check_name(service: Service, name: str) -> None:
    if name != service.name:
        message = f"`model` must be {service.name!r}, the one that is served"
        raise ApiError(404, message, param="model", code="model_not_found")


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientGoneError):
        return Response(status_code=_GONE)
    return _refusal(request, error).response()


def _refusal(request: Request, error: Exception) -> ApiError:
    """Returns an error as the API tells it."""
    if isinstance(error, ApiError):
        return error
    # FastAPI takes too little memory for the body's fault.
    if any(isinstance(each, MemoryError) for each in (error, error.__cause__)):
        return out_of_memory()
    if isinstance(error, RequestValidationError):
        return validation_error(error.errors())
    if isinstance(error, HTTPException):
        missing = f"there is no {request.url.path}"
        message = missing if error.status_code == 404 else str(error.detail)
        return ApiError(error.status_code, message, headers=error.headers)
    return ApiError(500, "the server has an error of its own")
