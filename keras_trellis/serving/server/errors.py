"""Errors of the API, in the form that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse

from keras_trellis.serving.schema import shown


class ApiError(Exception):
    """A request has this answer instead of another one.

    Args:
        status: of HTTP.
        message: one sentence for the person who asked.
        param: the field that it is about, if any.
        code: a word for programs.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """Returns the answer's JSON."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def response(self) -> JSONResponse:
        """Returns the answer."""
        return JSONResponse(self.body(), self.status, self.headers)


def late(seconds: float) -> ApiError:
    """Returns what a request is told whose deadline has passed."""
    message = (
        f"the answer takes longer than {seconds:g} seconds; ask for less, or see --deadline of the "
        "server"
    )
    return ApiError(504, message)


def validation_error(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """Returns the first of the errors of a request's fields as the API tells it."""
    first = errors[0]
    place = [part for part in first["loc"] if part != "body"]
    # What pydantic calls the kinds of a field that may be several of them is no part of a name.
    names = [str(part) for part in place if not _is_kind(part)]
    param = ".".join(names) or None
    name = f"`{param}`" if param else "the request"
    kind, message = first["type"], first["msg"]
    received = f"Received: {shown(first.get('input'))}"
    if kind == "missing":
        text = f"{name} is missing" if param else "the request has no body"
    elif kind == "extra_forbidden":
        text = f"{name} is no field of this request"
    elif kind == "json_invalid":
        text = f"the request must be JSON: {first.get('ctx', {}).get('error', '')}"
        param = None
    elif kind == "model_attributes_type":
        text = "the request must be a JSON object, sent as application/json"
    elif kind == "value_error":
        text = f"{name} {message.removeprefix('Value error, ')}. {received}"
    else:
        text = f"{name} {message.replace('Input should be', 'must be')}. {received}"
    return ApiError(400, text, param=param)


def _is_kind(part: Any) -> bool:
    return isinstance(part, str) and ("[" in part or part in ("str", "int"))
