"""Models that answer by HTTP: on the server of `keras-trellis serve`, and by JSON in general."""

import contextlib
import http.client
import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib import parse

from trainers.serving import remote
from trainers.serving.remote import Remote, RemoteError, Sampling, Scores

_KEY = "KERAS_TRELLIS_KEY"
_DATA, _DONE = b"data: ", b"[DONE]"
_NEXT = 10  # tokens


class Web(Remote):
    """Asks by HTTP, with one deadline for a request and all of its answer; see `Remote`."""

    headers = {"Content-Type": "application/json"}

    @property
    def path(self) -> str:
        """The path of the model."""
        return f"/v1/models/{parse.quote(self.model, safe='')}"

    def ask(self, method: str, path: str, fields: Any = None) -> dict[str, Any]:
        """Returns an answer, a JSON object.

        Args:
            method: such as "POST".
            path: on the server, quoted.
            fields: what is sent, if anything.
        """
        return self.parsed(b"".join(self.lines(method, path, fields)))

    def lines(self, method: str, path: str, fields: Any = None) -> Iterator[bytes]:
        """Yields the lines of an answer as they come; see `ask`."""
        left = remote.MOST_BYTES
        with self._answer(method, path, fields) as answer:
            if (
                answer.status != http.HTTPStatus.OK
            ):  # a redirect too: it is not followed
                status = f"{answer.status} {answer.reason}"
                raise self.refused(status, error_message(answer.read(left)))
            while line := answer.readline(left + 1):
                left -= len(line)
                if left < 0:
                    most = f"{remote.MOST_BYTES:,} bytes"
                    raise self.unreachable(f"it sends more than {most}")
                yield line

    def parsed(self, body: bytes) -> dict[str, Any]:
        """Returns the JSON object that bytes are."""
        try:
            answer = json.loads(body.decode())
        except (ValueError, RecursionError) as error:
            raise self.malformed(error) from None
        if not isinstance(answer, dict):
            raise self.malformed("it is no JSON object")
        return answer

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, fields: Any
    ) -> Iterator[http.client.HTTPResponse]:
        body = None if fields is None else json.dumps(fields).encode()
        end = time.monotonic() + self.deadline
        try:
            connection = http.client.HTTPConnection(self.address, timeout=self.deadline)
            connection.connect()
            # The connection's own timeout is one of each part that arrives.
            hang_up = threading.Timer(self.deadline, _shut_down, [connection.sock])
            hang_up.daemon = True
            hang_up.start()
            try:
                connection.request(method, path, body, self.headers)
                yield connection.getresponse()
            finally:
                hang_up.cancel()
                connection.close()
        except RemoteError:
            raise
        except (http.client.HTTPException, OSError, ValueError) as error:
            if time.monotonic() < end:
                told = getattr(error, "strerror", None) or str(error)
                raise self.unreachable(told or type(error).__name__) from error
        if time.monotonic() >= end:
            raise self.too_late()


class Server(Web):
    """A model that `keras-trellis serve` serves; see `Remote`.

    The key that the server may want is that of the environment, `KERAS_TRELLIS_KEY`.

    Raises:
        RemoteError: the server does not have the model.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        super().__init__(address, model, deadline)
        if key := os.environ.get(_KEY):
            self.headers = {**self.headers, "Authorization": f"Bearer {key}"}
        if "fingerprint" not in self.ask("GET", self.path):
            raise self.malformed("the server is not that of `keras-trellis serve`")

    def generate(
        self, prompt: str, sampling: Sampling, allow_unknown: bool = False
    ) -> Iterator[str]:
        """Yields the continuation of a prompt in pieces, with the spaces of print."""
        settings = sampling._asdict()
        fields = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": settings.pop("max_length"),
            **settings,
            "allow_unknown": allow_unknown,
            "stream": True,
        }
        for line in self.lines("POST", "/v1/completions", fields):
            if not line.startswith(_DATA):
                continue
            data = line.removeprefix(_DATA).strip()
            if data == _DONE:
                return
            answer = self.parsed(data)
            if "error" in answer:
                raise self.refused("an error", error_message(data))
            for choice in self.part(list, answer, "choices"):
                yield self.part(str, choice, "printed")
        raise self.malformed("the text breaks off")

    def next(self, prompt: str) -> tuple[list[tuple[str, float]], int]:
        """Returns the most probable tokens after a text, and how many of its words are unknown."""
        answer = self.ask("POST", "/next", {"texts": [prompt], "count": _NEXT})
        places = self.part(list, answer, "next", 0)
        columns = {
            name: [self.part(object, place, name) for place in places]
            for name in ("token", "log_prob")
        }
        tokens = self.row(str, columns, "token")
        log_probs = self.row(float, columns, "log_prob")
        # What is above 0 becomes no probability, which is refused.
        probabilities = [math.exp(min(value, 1.0)) for value in log_probs]
        unknown = self.one(int, answer, "unknown")
        return self.likeliest(tokens, probabilities), unknown

    def score(self, text: str) -> Scores:
        """Scores a text."""
        answer = self.ask("POST", "/score", {"texts": [text]})
        scores = self.part(dict, answer, "scores", 0)
        words, tokens = (self.row(str, scores, name) for name in ("words", "tokens"))
        unknown = self.part(int, scores, "unknown")
        return self.scores(words, tokens, self.row(float, scores, "nll"), unknown)

    def unknown(self, text: str) -> tuple[int, int]:
        """Returns how many tokens of a text the vocabulary does not have, and how many it has."""
        answer = self.ask("POST", "/tokenize", {"texts": [text]})
        words = self.part(list, answer, "words", 0)
        return self.one(int, answer, "unknown"), len(words)


def error_message(body: bytes) -> str:
    """Returns the message of an error's body, which the server does not always make JSON of."""
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
