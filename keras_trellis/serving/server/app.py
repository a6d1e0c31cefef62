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

from keras_trellis.serving.rows import Row
from keras_trellis.serving.runtime import LanguageModel
from keras_trellis.serving.server import answers, page, schemas
from keras_trellis.serving.server.answers import Choice, Json
from keras_trellis.serving.server.errors import (
    ApiError,
    out_of_memory,
    validation_error,
)
from keras_trellis.serving.server.guard import ClientGoneError, Guard, Listener
from keras_trellis.serving.server.service import (
    MakeRows,
    Prompt,
    Service,
    Work,
    cancel,
)
from keras_trellis.version import __version__

_GAP = 0.02  # seconds between two parts of a stream; who reads sees no pause
_LARGE = 500  # tokens of an answer that is written while others are answered
# A proxy that collects an answer before it sends it would keep the words back.
_STREAMED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_GONE = 499  # what proxies count requests as whose clients left
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.ErrorAnswer, "description": "What the request gets wrong."},
    429: {"model": schemas.ErrorAnswer, "description": "The queue is full."},
    500: {
        "model": schemas.ErrorAnswer,
        "description": "The request's step has failed.",
    },
    503: {"model": schemas.ErrorAnswer, "description": "The server cannot answer now."},
    504: {"model": schemas.ErrorAnswer, "description": "The deadline has passed."},
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
    app.add_exception_handler(ApiError, _refuse)
    app.add_exception_handler(ClientGoneError, _end_unread)
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(MemoryError, _refuse_for_now)
    app.add_exception_handler(Exception, _fail)
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
        listener = request.state.listener
        texts = _prompts(asked.prompt)
        work = await service.submit(
            "prompt",
            texts,
            lambda model, prompts: service.completion_rows(
                model, prompts, asked, listener
            ),
        )
        header = _header(service, work)
        if asked.stream:
            return await _streamed(service, work, asked, listener, header)
        await service.ended(work, listener)
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
        listener = request.state.listener

        def rows(model: LanguageModel, prompts: list[Prompt]) -> list[Row]:
            return service.score_rows(model, prompts, asked.alternatives, listener)

        work = await _answered(service, asked.texts, rows, listener)
        scores = await service.aside(answers.scores, work)
        separator = work.served.model.tokenizer.separator
        answer = {"separator": separator, "scores": scores}
        return await _as_json(service, {**_version(service, work), **answer}, work)

    @app.post("/next", responses=_responses("/next"))
    async def following(request: Request, asked: schemas.NextRequest) -> Response:
        """Lists the most probable tokens after texts."""
        listener = request.state.listener

        def rows(model: LanguageModel, prompts: list[Prompt]) -> list[Row]:
            return service.next_rows(model, prompts, asked.count, listener)

        work = await _answered(service, asked.texts, rows, listener)
        tokenizer = work.served.model.tokenizer
        lists = [
            answers.likeliest(tokenizer, *row.after) for row in work.rows if row.after
        ]
        unknown = [prompt.unknown for prompt in work.prompts]
        answer = {**_version(service, work), "next": lists, "unknown": unknown}
        return JSONResponse(answer)

    @app.post("/tokenize", responses=_responses("/tokenize"))
    async def tokenize(asked: schemas.TokenizeRequest) -> Response:
        """Cuts texts into the tokens that the model reads."""
        served = service.versions.current
        prompts = await service.read(served.model, "texts", asked.texts)
        work = Work(served, prompts, [])
        answer = {
            **_version(service, work),
            "ids": [prompt.ids[1:].tolist() for prompt in prompts],
            "words": [prompt.words for prompt in prompts],
            "unknown": [prompt.unknown for prompt in prompts],
        }
        return await _as_json(service, answer, work)


async def _answered(
    service: Service, texts: Sequence[str], rows: MakeRows, listener: Listener
) -> Work:
    """Returns the rows of a request's `texts`, all of which have ended."""
    work = await service.submit("texts", texts, rows)
    await service.ended(work, listener)
    return work


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
    service: Service,
    work: Work,
    asked: schemas.CompletionRequest,
    listener: Listener,
    header: Json,
) -> Response:
    """Returns a stream, once there is something to send."""
    choices = answers.choices(work, asked)
    try:
        parts = await _next_parts(service, work, choices, listener)
    except BaseException:
        cancel(work.rows)
        raise
    stream = _events(service, work, asked, listener, header, choices, parts)
    return StreamingResponse(stream, 200, _STREAMED, "text/event-stream")


async def _events(
    service: Service,
    work: Work,
    asked: schemas.CompletionRequest,
    listener: Listener,
    header: Json,
    choices: Sequence[Choice],
    parts: Sequence[Json],
) -> AsyncIterator[str]:
    try:
        while True:
            for part in parts:
                yield _event({**header, "choices": [part]})
            if all(choice.has_ended for choice in choices):
                break
            await asyncio.sleep(_GAP)
            parts = await _next_parts(service, work, choices, listener)
        if asked.stream_options is not None and asked.stream_options.include_usage:
            yield _event({**header, "choices": [], "usage": answers.usage(work)})
        yield "data: [DONE]\n\n"
    except ApiError as error:
        yield _event(error.body())
    except ClientGoneError:
        return
    finally:
        cancel(work.rows)


async def _next_parts(
    service: Service, work: Work, choices: Sequence[Choice], listener: Listener
) -> list[Json]:
    """Waits for what there is to send next."""
    while True:
        await listener.wait()
        if listener.gone:
            raise ClientGoneError
        service.check(work.rows)
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


def _prompts(prompt: Any) -> list[Any]:
    """Returns prompts one by one: a text, several, ids or several lists of ids."""
    is_one = isinstance(prompt, str) or (prompt and isinstance(prompt[0], int))
    prompts: list[Any] = [prompt] if is_one else prompt
    return prompts


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _refuse_fields(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return validation_error(error.errors()).response()


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(
        error.__cause__, MemoryError
    ):  # FastAPI takes it for the body's fault
        return await _refuse_for_now(request, error)
    message = str(error.detail)
    if error.status_code == 404:
        message = f"there is no {request.url.path}"
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _refuse_for_now(request: Request, error: Exception) -> Response:
    return out_of_memory().response()


async def _end_unread(request: Request, error: Exception) -> Response:
    return Response(status_code=_GONE)


async def _fail(request: Request, error: Exception) -> Response:
    return ApiError(500, "the server has an error of its own").response()
