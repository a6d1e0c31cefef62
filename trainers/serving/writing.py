"""Text from a served language model, on a server or in this process, piece by piece."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

CHUNK = 8  # tokens a request, so that text is there before all of it is
_UNKNOWN, _NOTHING = -1, -2  # what a model must not write: `<unk>`, where it has it, or nothing


class Asked(Protocol):
    """A served model, such as `remote.Model` and `page.served.ServedModel`."""

    def __call__(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature by name, from its inputs by name."""


class Sampling(NamedTuple):
    """How tokens are chosen; the model checks the values.

    Attributes:
        max_length: how many tokens to add.
        temperature: divides the log-probabilities; 0: the most probable token.
        top_k: choose from so many of the most probable tokens; 0: from all.
        top_p: choose from the fewest tokens that have this probability.
        seed: the same prompt with the same seed is continued alike.
    """

    max_length: int
    temperature: float
    top_k: int
    top_p: float
    seed: int


class Unknown(NamedTuple):
    """What of a text the vocabulary does not have.

    Attributes:
        tokens: how many, each of which the model reads as `<unk>`.
        of: how many tokens the text has.
    """

    tokens: int
    of: int


def generate(
    model: Asked,
    prompt: str,
    sampling: Sampling,
    chunk: int = CHUNK,
    *,
    allow_unknown: bool = False,
    tell: Callable[[Unknown], None] | None = None,
) -> Iterator[str]:
    """Yields the continuation of a prompt in pieces, as they come.

    Args:
        model: a language model; what it raises is raised here.
        prompt: what to go on from, after a line break.
        sampling: how.
        chunk: the tokens of a piece, which change nothing in the text.
        allow_unknown: whether `<unk>` may be written.
        tell: is called with what of the prompt is unknown, before the first piece.
    """
    tokens = model("tokenize", text=[f"\n{prompt}"])
    ids, length = tokens["ids"], int(tokens["lengths"][0])
    if tell:
        tell(Unknown(int(tokens["unknown"][0]), length - 1))
    answer = model("prefill", ids=ids, lengths=[length - 1])
    settings: dict[str, Any] = {name: [value] for name, value in sampling._asdict().items()}
    settings |= {"stop_id": [-1], "forbidden_ids": [[_NOTHING if allow_unknown else _UNKNOWN]]}
    for begin in range(0, sampling.max_length, chunk):
        settings["max_length"] = [min(chunk, sampling.max_length - begin)]
        cache = {name: answer[name] for name in answer if name.startswith("cache_")}
        last = ids[:, length - 1 : length]
        answer = model("generate", ids=last, lengths=[1], **settings, **cache)
        yield answer["text"][0]
        ids, length = answer["ids"], int(answer["lengths"][0])
