"""What a language model writes and scores by the signatures of its export."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from trainers.kinds.measures import perplexity

CHUNK = 8  # tokens a request: text appears before all of it is written
# In `forbidden_ids`: `<unk>`, if the model has it, or no token.
_UNKNOWN, _NOTHING = -1, -2


class Asked(Protocol):
    """A model that answers by the signatures of its export: `remote.Model`."""

    def __call__(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature by name, from its inputs by name."""


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


class Unknown(NamedTuple):
    """How much of a text the vocabulary does not have.

    Attributes:
        tokens: the number of unknown tokens; the model reads each as `<unk>`.
        of: the number of tokens of the text.
    """

    tokens: int
    of: int


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


def score(model: Asked, text: str) -> Scores:
    """Scores a text; raises what the model raises."""
    answer = model("score_v2", text=[text], alternatives=[0])
    count = int(answer["count"][0])  # a server may pad to a longer text
    words = answer["words"][0, :count]
    read = answer["tokens"][0, :count]
    nll = answer["nll"][0, :count]
    # A piece that is a part of a character is another text, and known.
    known = (words == read) | (answer["unknown"][0] == 0)
    return Scores(words.tolist(), known.tolist(), nll.tolist())


def unknown(model: Asked, text: str) -> Unknown:
    """Counts a text's tokens that the vocabulary does not have; raises what the model raises."""
    tokens = model("tokenize", text=[text])
    return Unknown(int(tokens["unknown"][0]), int(tokens["lengths"][0]))


def generate(
    model: Asked,
    prompt: str,
    sampling: Sampling,
    chunk: int = CHUNK,
    *,
    allow_unknown: bool = False,
) -> Iterator[str]:
    """Yields the continuation of a prompt in pieces, as they come, with the spaces of print.

    Args:
        model: a language model; this function raises what it raises.
        prompt: the text to continue, which begins a line.
        sampling: how to choose tokens.
        chunk: the tokens of a piece; the text does not depend on it.
        allow_unknown: whether `<unk>` may be written.
    """
    tokens = model("tokenize", text=[f"\n{prompt}"])
    ids, length = tokens["ids"], int(tokens["lengths"][0])
    written = _Written(model, ids[0, :length].tolist())
    answer = model("prefill_v2", ids=ids, lengths=[length - 1])
    settings: dict[str, Any] = {
        name: [value] for name, value in sampling._asdict().items()
    }
    settings |= {
        "stop_ids": [[-1]],
        "stop": [[""]],
        "alternatives": [0],
        "forbidden_ids": [[_NOTHING if allow_unknown else _UNKNOWN]],
    }
    for begin in range(0, sampling.max_length, chunk):
        settings["max_length"] = [min(chunk, sampling.max_length - begin)]
        cache = {name: answer[name] for name in answer if name.startswith("cache_")}
        last = ids[:, length - 1 : length]
        answer = model("generate_v2", ids=last, lengths=[1], **settings, **cache)
        ids, length = answer["ids"], int(answer["lengths"][0])
        is_last = begin + chunk >= sampling.max_length
        yield written.extend(ids[0, :length].tolist(), is_last)


class _Written:
    """A text that is written in parts.

    Args:
        model: the model.
        prompt: the ids of what is given, which begin with a line break.
    """

    def __init__(self, model: Asked, prompt: list[int]) -> None:
        self._model = model
        self._line_break = prompt[0]
        self._ids = prompt  # from a line break on
        self._length: int | None = None  # of their text, as far as it has been returned

    def extend(self, ids: list[int], is_last: bool) -> str:
        """Returns what more ids add; what is not settled yet waits for the next ones."""
        if self._length is None:
            self._length = len(self._text("text"))
        self._ids += ids
        text = self._text("text" if is_last else "settled")
        added = text[self._length :]
        self._length = max(self._length, len(text))
        if self._line_break in self._ids[1:]:
            # Nothing before a line break changes what is after it.
            line = self._ids[::-1].index(self._line_break) + 1
            self._ids = self._ids[-line:]
            self._length -= text.rindex("\n")
        return added

    def _text(self, output: str) -> str:
        lengths = [len(self._ids)]
        return self._model("detokenize", ids=[self._ids], lengths=lengths)[output][0]


def decoded(values: np.ndarray) -> np.ndarray:
    """Returns an array whose texts, if it has any, are strings instead of bytes."""
    if values.dtype != object:
        return values
    return np.vectorize(bytes.decode, otypes=[object])(values)
