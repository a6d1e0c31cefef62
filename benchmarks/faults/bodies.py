"""Requests that no client should send, and what must come back, for every request the same.

What comes back is an error in the API's form, which is no fault of the server's own; or it is an
answer, and then the runtime's. A request is a function of a seed and of its number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_trellis.serving.runtime import LanguageModel

STATUSES = {400, 404, 405, 413}
HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "a",
    "\x00",
    "\ud800",
    "\u202e<script>",
    "a " * 600,
    "\U0001f600" * 50,
    [],
    [[]],
    ["a", 3],
    [None],
    [1, 2.5],
    [10**30],
    ["a"] * 40,
    {},
    {"a": [{}]},
]
PATHS = ("/v1/completions", "/v1/completions", "/score", "/next", "/tokenize")


class Cases:
    """Requests to the server.

    Args:
        name: of the model.
        seed: what they are drawn from.
        words: what texts have, beside a word that the model does not know.
    """

    def __init__(
        self, name: str, seed: int, words: Sequence[str] = "abcdefghij"
    ) -> None:
        self._name, self._seed = name, seed
        self._words = [*words, "zz", "\n"]

    def case(self, number: int) -> tuple[str, bytes]:
        """Returns the path of a request, and its body."""
        random = np.random.default_rng([self._seed, number])
        path = PATHS[random.integers(len(PATHS))]
        fields = self._good(random, path)
        for name in [*fields, "other"]:
            if random.random() < 0.1:
                fields[name] = HOSTILE[random.integers(len(HOSTILE))]
        body = json.dumps(fields).encode()
        if random.random() < 0.1:
            body = body[: random.integers(len(body))] + random.bytes(5)
        if random.random() < 0.02:
            body = b"[" * random.integers(30_000)
        return path, body

    def _good(self, random: np.random.Generator, path: str) -> dict[str, Any]:
        text = " ".join(random.choice(self._words, random.integers(40)))
        if path != "/v1/completions":
            extra = {"/score": "alternatives", "/next": "count"}.get(path)
            rest = {} if extra is None else {extra: int(random.integers(1, 4))}
            return {"texts": [text, "a b"], **rest}
        return {
            "model": self._name,
            "prompt": text,
            "max_tokens": int(random.integers(20)),
            "seed": int(random.integers(2**62)),
            "temperature": float(random.choice([0.0, 0.7, 1.0])),
            "top_k": int(random.integers(5)),
            "n": int(random.integers(1, 3)),
            "stop": [str(random.choice(["a b", "\n", "c"]))],
            "stream": bool(random.random() < 0.3),
        }


def check(model: LanguageModel, path: str, body: bytes, status: int, text: str) -> None:
    """Raises AssertionError where what a server has sent is wrong.

    Args:
        model: the one that it serves.
        path: what it was asked for.
        body: of the request.
        status: of the answer.
        text: its body.
    """
    if status != 200:
        assert status in STATUSES, (status, text)
        error = json.loads(text)["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert 0 < len(error["message"]) < 1000 and "\n" not in error["message"]
        return
    fields = json.loads(body)
    if path == "/v1/completions":
        # As in OpenAI's protocol, null stands for the default.
        given = {name: value for name, value in fields.items() if value is not None}
        _check_texts(model, given, _texts(text))
    elif path == "/score":
        scores = json.loads(text)["scores"]
        totals = [score["total"] for score in scores]
        expected = model.score(fields["texts"]).total
        np.testing.assert_allclose(totals, expected, rtol=1e-4, atol=1e-4)
    else:
        answer = json.loads(text)["next" if path == "/next" else "ids"]
        assert len(answer) == len(fields["texts"])


def _check_texts(
    model: LanguageModel, fields: dict[str, Any], texts: list[str]
) -> None:
    prompt, count = fields.get("prompt", ""), fields.get("n", 1)
    length = fields.get("max_tokens", 16)
    if not isinstance(prompt, str) or "seed" not in fields:
        return
    assert len(texts) == count
    expected = [""] * count
    if length:
        expected = model.complete(
            [prompt] * count,
            max_length=length,
            seed=[fields["seed"] + index for index in range(count)],
            temperature=fields.get("temperature", 1.0),
            top_k=min(fields.get("top_k", 0), 100),
            stop=fields.get("stop", []),
            forbidden_ids=[-1],
        ).text
    assert texts == expected


def _texts(text: str) -> list[str]:
    """Returns the texts of an answer, or of its events."""
    if text.startswith("{"):
        return [choice["text"] for choice in json.loads(text)["choices"]]
    *parts, end = [
        event.removeprefix("data: ") for event in text.split("\n\n") if event
    ]
    assert end == "[DONE]"
    texts: dict[int, str] = {}
    for part in parts:
        for choice in json.loads(part)["choices"]:
            index = choice["index"]
            texts[index] = texts.get(index, "") + choice["text"]
    return [texts[index] for index in sorted(texts)]
