"""What a language model writes and scores by the signatures of its export."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from trainers.tasks.measures import perplexity

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
        words: the tokens, as the text has them.
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
    answer = model("score", text=[text])
    count = int(answer["count"][0])  # a server may pad to a longer text
    words, read, nll = (answer[name][0, :count] for name in ("words", "tokens", "nll"))
    return Scores(words.tolist(), (words == read).tolist(), nll.tolist())


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
    """Yields the continuation of a prompt in pieces, as they come.

    Args:
        model: a language model; this function raises what it raises.
        prompt: the text to continue, which begins a line.
        sampling: how to choose tokens.
        chunk: the tokens of a piece; the text does not depend on it.
        allow_unknown: whether `<unk>` may be written.
    """
    tokens = model("tokenize", text=[f"\n{prompt}"])
    ids, length = tokens["ids"], int(tokens["lengths"][0])
    answer = model("prefill", ids=ids, lengths=[length - 1])
    settings: dict[str, Any] = {
        name: [value] for name, value in sampling._asdict().items()
    }
    settings |= {
        "stop_id": [-1],
        "forbidden_ids": [[_NOTHING if allow_unknown else _UNKNOWN]],
    }
    for begin in range(0, sampling.max_length, chunk):
        settings["max_length"] = [min(chunk, sampling.max_length - begin)]
        cache = {name: answer[name] for name in answer if name.startswith("cache_")}
        last = ids[:, length - 1 : length]
        answer = model("generate", ids=last, lengths=[1], **settings, **cache)
        yield answer["text"][0]
        ids, length = answer["ids"], int(answer["lengths"][0])


def decoded(values: np.ndarray) -> np.ndarray:
    """Returns an array whose texts, if it has any, are strings instead of bytes."""
    if values.dtype != object:
        return values
    return np.vectorize(bytes.decode, otypes=[object])(values)
