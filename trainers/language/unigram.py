"""A unigram model: what a language model is worth that reads nothing of the past."""

from collections.abc import Iterator

import numpy as np

TITLE = "a unigram model, which knows only how often each token occurs"
_BLOCK = 1 << 20  # tokens; a corpus may not fit in memory


def nats(train: np.ndarray, targets: np.ndarray, types: int) -> float:
    """Returns the mean negative log-likelihood of targets under the frequencies of a text.

    The probability of a token is (n + 1) / (N + V), where n of the N tokens of the training text
    are this one, of V types: so a token that never occurs there has a probability too.

    Args:
        train: the ids of the training text, `[N]`.
        targets: the ids to score, `[M]`.
        types: V.
    """
    counts = _counts(train, types)
    log_probs = np.log(counts + 1) - np.log(len(train) + types)
    return float(-(log_probs @ _counts(targets, types)) / len(targets))


def _counts(ids: np.ndarray, types: int) -> np.ndarray:
    return sum(
        (np.bincount(block, minlength=types) for block in _blocks(ids)),
        start=np.zeros(types, "int64"),
    )


def _blocks(ids: np.ndarray) -> Iterator[np.ndarray]:
    return (ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK))
