"""A model that `keras-trellis serve` serves."""

import json
import math
import os
from collections.abc import Iterator
from typing import Any
from urllib import parse

from trainers.serving import exchange
from trainers.serving.remote import MOST_BYTES, Transport, error_message
from trainers.serving.writing import Sampling, Scores, Unknown

_KEY = "KERAS_TRELLIS_KEY"
_DATA, _DONE = b"data: ", b"[DONE]"
_NEXT = 10  # tokens


class Server(Transport):
    """A model on such a server; see `Transport`.

    The key that the server may want is that of the environment, `KERAS_TRELLIS_KEY`.

    Raises:
        RemoteError: the server does not have the model.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        super().__init__(address, model, deadline)
        self._headers = {"Content-Type": "application/json"}
        if key := os.environ.get(_KEY):
            self._headers["Authorization"] = f"Bearer {key}"
        described = self._ask("GET", f"/v1/models/{parse.quote(model, safe='')}")
        if "fingerprint" not in described:
            raise self.malformed("the server is not that of `keras-trellis serve`")

    def generate(
        self, prompt: str, sampling: Sampling, *, allow_unknown: bool = False
    ) -> Iterator[str]:
        """Yields the continuation of a prompt in pieces, as they come, with the spaces of print.

        Args:
            prompt: the text to continue, which begins a line.
            sampling: how to choose tokens.
            allow_unknown: whether `<unk>` may be written.
        """
        settings = sampling._asdict()
        fields = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": settings.pop("max_length"),
            **settings,
            "allow_unknown": allow_unknown,
            "stream": True,
        }
        for part in self._events("/v1/completions", fields):
            choices = self._field(part, "choices", list)
            for choice in choices:
                yield self._field(choice, "printed", str)

    def next(self, prompt: str) -> tuple[list[tuple[str, float]], int]:
        """Returns the most probable tokens after a text, each with its probability.

        The number is that of the text's words that the vocabulary does not have.
        """
        answer = self._ask("POST", "/next", {"texts": [prompt], "count": _NEXT})
        places = self._one(answer, "next", list)
        tokens = [self._field(place, "token", str) for place in places]
        log_probs = self._numbers([place.get("log_prob") for place in places])
        if max(log_probs, default=0.0) > 0:
            raise self.malformed("`log_prob` must be at most 0")
        pairs = zip(tokens, map(math.exp, log_probs), strict=True)
        return list(pairs), self._one(answer, "unknown", int)

    def score(self, text: str) -> Scores:
        """Scores a text."""
        scores = self._one(
            self._ask("POST", "/score", {"texts": [text]}), "scores", dict
        )
        words, tokens = (self._texts(scores, name) for name in ("words", "tokens"))
        nll = self._numbers(self._field(scores, "nll", list))
        if not len(words) == len(tokens) == len(nll):
            raise self.malformed("`words`, `tokens` and `nll` must have one length")
        # A piece that is a part of a character is another text, and known.
        all_known = self._field(scores, "unknown", int) == 0
        pairs = zip(words, tokens, strict=True)
        return Scores(words, [all_known or w == token for w, token in pairs], nll)

    def unknown(self, text: str) -> Unknown:
        """Counts a text's tokens that the vocabulary does not have."""
        answer = self._ask("POST", "/tokenize", {"texts": [text]})
        count = self._one(answer, "unknown", int)
        return Unknown(count, len(self._one(answer, "words", list)))

    def _asked(self, method: str, path: str, fields: Any) -> exchange.Asked:
        body = None if fields is None else json.dumps(fields).encode()
        return exchange.Asked(
            method, self.address, path, body, self.deadline, MOST_BYTES, self._headers
        )

    def _ask(self, method: str, path: str, fields: Any = None) -> dict[str, Any]:
        try:
            status, reason, body = exchange.ask(self._asked(method, path, fields))
        except TimeoutError:
            raise self.too_late() from None
        except exchange.AnswerError as error:
            raise self.unreachable(error) from None
        self._check_status(f"{status} {reason}", body)
        return self._object(body)

    def _events(self, path: str, fields: Any) -> Iterator[dict[str, Any]]:
        """Yields what a stream sends, which must have an end."""
        lines = exchange.lines(self._asked("POST", path, fields))
        try:
            status = next(lines).decode()
            for line in lines:
                self._check_status(status, line)
                if not line.startswith(_DATA):
                    continue
                data = line.removeprefix(_DATA).strip()
                if data == _DONE:
                    return
                answer = self._object(data)
                if "error" in answer:
                    raise self.refused("an error", error_message(data))
                yield answer
        except TimeoutError:
            raise self.too_late() from None
        except exchange.AnswerError as error:
            raise self.unreachable(error) from None
        raise self.malformed("the text breaks off")

    def _check_status(self, status: str, body: bytes) -> None:
        if not status.startswith("200 "):  # a redirect too: it is not followed
            raise self.refused(status, error_message(body))

    def _object(self, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body.decode())
        except (ValueError, RecursionError) as error:
            raise self.malformed(error) from None
        if not isinstance(answer, dict):
            raise self.malformed("it is no JSON object")
        return answer

    def _field(self, fields: Any, name: str, kind: type) -> Any:
        value = fields.get(name) if isinstance(fields, dict) else None
        if type(value) is not kind:
            raise self.malformed(f"it has no `{name}`, a {kind.__name__}")
        return value

    def _one(self, answer: Any, name: str, kind: type) -> Any:
        """Returns what a list of an answer has for the one text that was sent."""
        values = self._field(answer, name, list)
        if len(values) != 1 or type(values[0]) is not kind:
            raise self.malformed(f"its `{name}` is not for one text")
        return values[0]

    def _texts(self, fields: Any, name: str) -> list[str]:
        values = self._field(fields, name, list)
        if not all(isinstance(value, str) for value in values):
            raise self.malformed(f"its `{name}` are no texts")
        return values

    def _numbers(self, values: list[Any]) -> list[float]:
        if not all(type(v) in (int, float) and math.isfinite(v) for v in values):
            raise self.malformed("its numbers must be finite")
        return [float(value) for value in values]
