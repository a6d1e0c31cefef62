"""The requests of the API."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from keras_trellis.formats.limits import MOST_ALTERNATIVES, MOST_STOP_BYTES
from keras_trellis.serving.rows import Row
from keras_trellis.serving.runtime import LanguageModel
from keras_trellis.serving.server.errors import ApiError, check_limit
from keras_trellis.serving.server.settings import Limits

_INT64 = 2**63
_MOST_STOPS = 16
Prompts = Sequence[np.ndarray]
Ids = list[Annotated[int, Field(ge=0, lt=2**31)]]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, value: Any) -> Any:
        """Takes null for a field as if the field were not there, which has a default."""
        if not isinstance(value, dict):
            return value
        fields = cls.model_fields
        return {
            name: entry
            for name, entry in value.items()
            if entry is not None or name not in fields or fields[name].is_required()
        }


class TextRequest(_Request):
    """A request with texts."""

    def listed(self) -> tuple[str, list[Any]]:
        """Returns the name of the field that has the texts, and the texts or their ids."""
        return "texts", getattr(self, "texts")  # noqa: B009

    def rows(self, model: LanguageModel, limits: Limits, prompts: Prompts) -> list[Row]:
        """Returns the rows that answer the request, as many for each text.

        Args:
            model: what advances them.
            limits: what the server takes on.
            prompts: the ids of each text, the line break before it first.

        Raises:
            ApiError: it asks for more than the server takes on.
        """
        raise NotImplementedError


class StreamOptions(_Request):
    """Of a stream."""

    include_usage: bool = False


class CompletionRequest(TextRequest):
    """Texts to continue: OpenAI's `/v1/completions`, with `top_k` and `allow_unknown` besides."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "model": "pydoc",
                "prompt": "the with statement",
                "max_tokens": 40,
                "top_k": 10,
                "seed": 1,
            }
        }
    )

    model: str = Field(description="The model's name, as `/v1/models` has it.")
    prompt: str | list[str] | Ids | list[Ids] = Field(
        description="A text, several, or their ids; each begins a line. Null: no text."
    )
    max_tokens: int = Field(16, ge=0, description="Tokens to add.")
    temperature: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="0: the most probable token."
    )
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, description="0: all tokens.")
    n: int = Field(
        1, ge=1, description="Texts for each prompt; number i has the seed `seed` + i."
    )
    seed: int | None = Field(
        None,
        ge=-_INT64,
        lt=_INT64,
        description="The same request with the same seed has the same answer.",
    )
    stop: str | list[str] | None = Field(
        None, description="Texts that end the answer, which has them no more."
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MOST_ALTERNATIVES,
        description="Log-probabilities, with so many of the most probable tokens in each place.",
    )
    echo: bool = Field(False, description="Whether the prompt precedes the text.")
    stream: bool = Field(False, description="Whether to send the text as it comes.")
    stream_options: StreamOptions | None = None
    allow_unknown: bool = Field(False, description="Whether `<unk>` may be written.")
    user: str | None = Field(None, description="Not read.")
    best_of: int | None = Field(None, description="`n` or nothing.")
    suffix: str | None = Field(None, description="Not supported.")
    presence_penalty: float | None = Field(None, description="0: not supported.")
    frequency_penalty: float | None = Field(None, description="0: not supported.")
    logit_bias: dict[str, Any] | None = Field(None, description="Not supported.")

    @field_validator("prompt", mode="before")
    @classmethod
    def _begin_a_line(cls, value: Any) -> Any:
        """Takes null for no text, as OpenAI's API does."""
        return "" if value is None else value

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, value: str | list[str] | None) -> list[str]:
        texts = [value] if isinstance(value, str) else value or []
        if len(texts) > _MOST_STOPS or any(
            not text or len(text.encode()) > MOST_STOP_BYTES for text in texts
        ):
            raise ValueError(
                f"must be at most {_MOST_STOPS} texts of 1 to {MOST_STOP_BYTES} bytes"
            )
        return texts

    @field_validator("suffix", "presence_penalty", "frequency_penalty", "logit_bias")
    @classmethod
    def _check_neutral(cls, value: Any) -> Any:
        if value:
            raise ValueError("is not supported by this server, and must be left out")
        return value

    def listed(self) -> tuple[str, list[Any]]:
        """Returns the prompts one by one: a text, several, ids or several lists of ids."""
        prompt: Any = self.prompt
        is_one = isinstance(prompt, str) or (prompt and isinstance(prompt[0], int))
        return "prompt", [prompt] if is_one else prompt

    def rows(self, model: LanguageModel, limits: Limits, prompts: Prompts) -> list[Row]:
        """Returns `n` rows for each prompt."""
        count = len(prompts) * self.n
        self._check(limits, prompts, count)
        first = secrets.randbits(63) if self.seed is None else self.seed
        seeds = [_int64(first + index) for index in range(self.n)] * len(prompts)
        settings = model.vocabulary.settings(
            count,
            max_length=max(self.max_tokens, 1),
            seed=seeds,
            temperature=self.temperature,
            top_k=min(self.top_k, model.vocabulary_size),
            top_p=self.top_p,
            stop=self.stop or [],
            forbidden_ids=() if self.allow_unknown else [-1],
            alternatives=self.logprobs or 0,
        )
        return [
            Row(
                prompts[index // self.n],
                model.tokenizer,
                one if self.max_tokens else None,
                scored=self.echo and self.logprobs is not None,
                alternatives=one.alternatives,
                streams=self.stream,
            )
            for index, one in enumerate(settings)
        ]

    def _check(self, limits: Limits, prompts: Prompts, count: int) -> None:
        must = "`max_tokens` must be at most {}"
        check_limit(limits, "new_tokens", self.max_tokens, must, param="max_tokens")
        must = "the prompts times `n` must be at most {}"
        check_limit(limits, "rows", count, must, param="n")
        if self.best_of not in (None, self.n):
            message = f"`best_of` must be `n`, or be left out. Received: {self.best_of}"
            raise ApiError(400, message, param="best_of")
        tokens = self.max_tokens * count
        if self.echo:
            tokens += self.n * sum(map(len, prompts))
        _check_listed(limits, tokens * (self.logprobs or 0))


class ScoreRequest(TextRequest):
    """Texts to score."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"texts": ["the with statement is used"], "alternatives": 3}
        }
    )

    texts: list[str]
    alternatives: int = Field(
        0,
        ge=0,
        le=MOST_ALTERNATIVES,
        description="How many of the most probable tokens to list in the place of each.",
    )

    def rows(self, model: LanguageModel, limits: Limits, prompts: Prompts) -> list[Row]:
        """Returns a row for each text, which scores its tokens."""
        _check_listed(limits, self.alternatives * sum(map(len, prompts)))
        count, tokenizer = (
            min(self.alternatives, model.vocabulary_size),
            model.tokenizer,
        )
        return [Row(ids, tokenizer, scored=True, alternatives=count) for ids in prompts]


class NextRequest(TextRequest):
    """Texts whose next tokens are asked for."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"texts": ["the with statement"], "count": 3}}
    )

    texts: list[str]
    count: int = Field(10, ge=1, le=MOST_ALTERNATIVES)

    def rows(self, model: LanguageModel, limits: Limits, prompts: Prompts) -> list[Row]:
        """Returns a row for each text, which has the most probable tokens after it."""
        count = min(self.count, model.vocabulary_size)
        return [Row(ids, model.tokenizer, count=count) for ids in prompts]


class TokenizeRequest(TextRequest):
    """Texts to cut into tokens."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"texts": ["the with statement"]}}
    )

    texts: list[str]


def _check_listed(limits: Limits, listed: int) -> None:
    must = "the tokens times alternatives of a request must be at most {}"
    check_limit(limits, "alternatives", listed, must)


def _int64(number: int) -> int:
    """Returns a number in 64 bits, the least one after the greatest."""
    return (number + 2**63) % 2**64 - 2**63


class ErrorDetails(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(BaseModel):
    """The answer to what cannot be answered."""

    error: ErrorDetails


ANSWERS: dict[str, Any] = {
    "/v1/completions": {
        "id": "cmpl-0123456789abcdef01234567",
        "object": "text_completion",
        "created": 1_790_000_000,
        "model": "pydoc",
        "system_fingerprint": "1-4366858231201804",
        "choices": [
            {
                "index": 0,
                "text": "\nthe module",
                "printed": "\nthe module",
                "logprobs": {
                    "tokens": ["\n", "the", " module"],
                    "token_logprobs": [-1.8, -2.1, -4.0],
                    "top_logprobs": [{"\n": -1.8}, {"the": -2.1}, {" following": -3.6}],
                    "text_offset": [0, 1, 4],
                    "printed": ["\n", "the", " module"],
                },
                "finish_reason": "length",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6},
    },
    "/score": {
        "model": "pydoc",
        "version": "1",
        "separator": " ",
        "scores": [
            {
                "tokens": ["the", "<unk>"],
                "words": ["the", "zebra"],
                "printed": ["the", " zebra"],
                "nll": [2.03, 2.51],
                "ranks": [2, 3],
                "likeliest": [
                    [{"token": "*", "log_prob": -1.9}],
                    [{"token": "module", "log_prob": -2.2}],
                ],
                "total": 4.54,
                "count": 2,
                "unknown": 1,
            }
        ],
    },
    "/next": {
        "model": "pydoc",
        "version": "1",
        "next": [[{"token": "is", "log_prob": -1.8}, {"token": ".", "log_prob": -2.0}]],
        "unknown": [0],
    },
    "/tokenize": {
        "model": "pydoc",
        "version": "1",
        "ids": [[4, 10]],
        "words": [["the", "zebra"]],
        "unknown": [1],
    },
    "/card": {
        "model": "pydoc",
        "version": "1",
        "facts": {"Trained on": "the documentation of Python"},
    },
}
"""An example of each answer; its numbers are made up."""
