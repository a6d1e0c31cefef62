"""A language model on a server, whose answers are checked before they are used."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trainers.data import terminal
from trainers.kinds.measures import perplexity

MOST_BYTES = 64 * 2**20  # of an answer; a cache may exceed gRPC's own limit, 4 MiB
# What NumPy calls the numbers that JSON or a tensor may have for ints and for floats; and what they
# are below.
_KINDS: dict[type, str] = {int: "iu", float: "iuf"}
_LARGEST: dict[type, float] = {int: 2**31, float: math.inf}


class RemoteError(ValueError):
    """There is no answer, or none that can be used; the message, a line, says why.

    Args:
        reason: why; it may contain the server's own words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(terminal.line(" ".join(reason.split())))


class Sampling(NamedTuple):
    """How tokens are chosen; the model checks the values.

    Attributes:
        max_length: the number of tokens to add.
        temperature: divides the log-probabilities; 0: the most probable token.
        top_k: choose from so many of the most probable tokens; 0: from all.
        top_p: choose from the fewest tokens that have this probability together.
        seed: the same prompt and seed give the same text.
    """

    max_length: int
    temperature: float
    top_k: int
    top_p: float
    seed: int


class Scores(NamedTuple):
    """How surprising a text is; each token is scored given a line break and the tokens before it.

    Attributes:
        words: the tokens, as the text has them. A character that several pieces share belongs to
            the last of them.
        known: whether the vocabulary has each; the model reads others as `<unk>`.
        nll: of each token as the model reads it, in nats.
    """

    words: list[str]
    known: list[bool]
    nll: list[float]

    @property
    def perplexity(self) -> float:
        """The perplexity of all tokens; 1 if there are none."""
        return perplexity(sum(self.nll) / max(len(self.nll), 1))


class Remote:
    """A model on a server.

    Those who derive from it have four methods: `generate` yields the continuation of a prompt in
    pieces, `next` returns the most probable tokens after a text with their probabilities and the
    number of the text's unknown words, `score` scores a text, and `unknown` counts a text's unknown
    tokens and all of them. They raise RemoteError where there is no answer, or none that can be
    used.

    Args:
        address: HOST:PORT.
        model: the model's name.
        deadline: seconds that each request may take.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        self.address, self.model, self.deadline = address, model, deadline

    def unreachable(self, reason: Any) -> RemoteError:
        """Returns the error for a server that gives no answer."""
        return RemoteError(f"no answer from {self.address}: {reason}")

    def too_late(self) -> RemoteError:
        """Returns the error for an answer that did not come before the deadline."""
        return RemoteError(
            f"no answer from {self.address} within {self.deadline:g} seconds"
        )

    def refused(self, code: str, reason: Any) -> RemoteError:
        """Returns the error for a server that refuses a request."""
        return RemoteError(f"{self.address} answered {code} for {self.model}: {reason}")

    def malformed(self, reason: Any) -> RemoteError:
        """Returns the error for an answer that cannot be used."""
        return RemoteError(
            f"malformed answer of {self.model} on {self.address}: {reason}"
        )

    def part(self, kind: type, answer: Any, *path: str | int) -> Any:
        """Returns what stands in an answer, which must be of a kind, at the end of a path."""
        for key in path:
            try:
                answer = answer[key]
            except (KeyError, IndexError, TypeError):
                answer = None
        if not isinstance(answer, kind) or isinstance(answer, bool):
            name = ".".join(map(str, path))
            raise self.malformed(f"it has no `{name}`, a {kind.__name__}")
        return answer

    def row(self, kind: type, answer: Any, *path: str | int) -> list[Any]:
        """Returns a list of texts or numbers, lists or tensors in the answer; see `part`."""
        values, name = self.part(object, answer, *path), ".".join(map(str, path))
        try:
            array = np.array(values, object if kind is str else None)
        except (
            ValueError,
            OverflowError,
        ):  # lists of several lengths, or nested too deep
            array = np.array(None)
        if array.ndim != 1:
            raise self.malformed(f"its `{name}` is no list")
        if kind is str:
            return [self._text(name, value) for value in array]
        if array.size and array.dtype.kind not in _KINDS[kind]:
            raise self.malformed(f"its `{name}` has values of {array.dtype}")
        if not (np.abs(array) < _LARGEST[kind]).all():
            raise self.malformed(f"its `{name}` must be finite numbers of 32 bits")
        return [kind(value) for value in array.tolist()]

    def one(self, kind: type, answer: Any, name: str) -> Any:
        """Returns what a list of an answer has for the one text that was sent."""
        values = self.row(kind, answer, name)
        if len(values) != 1:
            raise self.malformed(f"its `{name}` is not for one text")
        return values[0]

    def scores(
        self,
        words: Sequence[str],
        read: Sequence[str],
        nll: Sequence[float],
        unknown: int,
    ) -> Scores:
        """Returns the scores of words, each of which the model reads as a token."""
        if not len(words) == len(read) == len(nll):
            raise self.malformed("`words`, `tokens` and `nll` must have one length")
        # A piece that is a part of a character is another text, and known.
        pairs = zip(words, read, strict=True)
        known = [not unknown or word == token for word, token in pairs]
        return Scores([*words], known, [*nll])

    def likeliest(
        self, tokens: Sequence[str], probabilities: Sequence[float]
    ) -> list[tuple[str, float]]:
        """Returns tokens with their probabilities."""
        if len(tokens) != len(probabilities) or max(probabilities, default=0) > 1:
            raise self.malformed("each token must have one probability")
        return [*zip(tokens, probabilities, strict=True)]

    def _text(self, name: str, value: Any) -> str:
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise self.malformed(f"its `{name}` is no text: {error}") from None
        if not isinstance(text, str):
            raise self.malformed(f"its `{name}` is no text")
        return text
