"""Errors of the API, in the form that OpenAI's clients read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse

from keras_trellis.formats.schema import shown
from keras_trellis.serving.server.settings import Limits, flag

_OTHER_KIND = frozenset({"string_type", "list_type", "int_type"})
# What pydantic calls the kinds of a field that may be several of them, for people.
_KINDS = {
    "str": "a text",
    "list[str]": "a list of texts",
    "list[constrained-int]": "a list of ids",
    "list[list[constrained-int]]": "a list of lists of ids",
}


@dataclasses.dataclass(eq=False)
class ApiError(Exception):
    """A request has this answer instead of another one.

    Attributes:
        status: of HTTP.
        message: one sentence for the person who asked.
        param: the field that it is about, if any.
        code: a word for programs.
        headers: further headers of the answer.
    """

    status: int
    message: str
    _: dataclasses.KW_ONLY
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] | None = None

    def __str__(self) -> str:
        """Returns the sentence."""
        return self.message

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


def check_limit(
    limits: Limits, name: str, value: int, must: str, status: int = 400, **told: Any
) -> None:
    """Refuses a request that asks for more than the server takes on.

    Args:
        limits: what it takes on.
        name: which of them is asked for.
        value: how much.
        must: what the request must do, with {} for the limit.
        status: of the answer.
        **told: see `ApiError`.

    Raises:
        ApiError: it is more than that.
    """
    most = getattr(limits, name)
    if value > most:
        rule = f"{must.format(most)}, see {flag(name)} of the server"
        raise ApiError(status, f"{rule}. Received: {value}", **told)


def late(seconds: float) -> ApiError:
    """Returns what a request is told whose deadline has passed."""
    message = (
        f"the answer takes longer than {seconds:g} seconds; ask for less, or see --deadline of the "
        "server"
    )
    return ApiError(504, message)


def out_of_memory() -> ApiError:
    """Returns what a request is told for which there is no memory now."""
    message = "the server is out of memory; ask again later"
    return ApiError(503, message, headers={"Retry-After": "1"})


def validation_error(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """Returns one of the errors of a request's fields as the API tells it."""
    first = _most_specific(errors)
    place = [part for part in first["loc"] if part != "body"]
    names = [str(part) for part in place if not _is_kind(part)]
    param = ".".join(names) or None
    name = f"`{param}`" if param else "the request"
    kind, message = first["type"], first["msg"]
    kinds = _kinds(errors, first)
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
    elif kind in _OTHER_KIND and len(kinds) > 1:
        text = f"{name} must be {', '.join(kinds[:-1])} or {kinds[-1]}. {received}"
    elif kind == "value_error":
        text = f"{name} {message.removeprefix('Value error, ')}. {received}"
    else:
        text = f"{name} {message.replace('Input should be', 'must be')}. {received}"
    return ApiError(400, text, param=param)


def _most_specific(errors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the first error; of a field that may be of several kinds, that of its value.

    Pydantic tells such a field's errors kind by kind, most of them that it is of another kind.
    """
    first, field = errors[0], errors[0]["loc"][:2]
    if first["type"] not in _OTHER_KIND:
        return first
    same = [error for error in errors if error["loc"][:2] == field]
    return next((each for each in same if each["type"] not in _OTHER_KIND), first)


def _kinds(errors: Sequence[Mapping[str, Any]], of: Mapping[str, Any]) -> list[str]:
    """Returns the kinds that the field of an error may have."""
    places = (error["loc"] for error in errors)
    told = [loc[2] for loc in places if loc[:2] == of["loc"][:2] and len(loc) > 2]
    return [kind for name, kind in _KINDS.items() if name in told]


def _is_kind(part: Any) -> bool:
    return isinstance(part, str) and ("[" in part or part in ("str", "int"))
