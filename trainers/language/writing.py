"""Writes texts with a run's best model."""

import sys
from typing import Any

import numpy as np
from etils import epath

from trainers.data import terminal
from trainers.data.pieces import PieceVocabulary
from trainers.data.vocabulary import EOS, UNKNOWN, Vocabulary
from trainers.language.experiment import load_trained
from trainers.language.tasks.task import LanguageTask
from trainers.tasks import registry


def generate(path: epath.Path, prompt: str, max_length: int, **sampling: Any) -> str:
    """Returns a prompt and its continuation by a run's best model, which never writes `<unk>`.

    The text has the spaces of print, and ends with a whole word.

    Args:
        path: the run's folder.
        prompt: the text to begin with; it is standardized like the task's text. The function prints
            its unknown words. An empty prompt means the end of a line.
        max_length: length of the text in tokens, the prompt's included.
        **sampling: `temperature`, `top_k`, `top_p` and `seed` of `TrellisLM.generate`.

    Raises:
        ValueError, WorkdirError: an argument is out of range, or the folder cannot be used.
    """
    model, vocabulary, config = load_trained(path)
    task = registry.configured(config)
    ids = _read(task, vocabulary, prompt)
    forbidden = None if vocabulary.unknown_id is None else [vocabulary.unknown_id]
    text = model.generate(ids[None], max_length, forbidden_ids=forbidden, **sampling)
    return _printed(task, vocabulary, np.asarray(text)[0], len(ids))


def _read(task: LanguageTask, vocabulary: Vocabulary, prompt: str) -> np.ndarray:
    """Returns the ids of a prompt; an empty one is the end of a line. Prints unknown words."""
    if isinstance(vocabulary, PieceVocabulary):
        return vocabulary.read(prompt or "\n")
    tokens = task.list_tokens(prompt)
    if unknown := {*tokens}.difference(vocabulary.tokens):
        words = terminal.line(", ".join(sorted(unknown)))
        print(f"unknown words, read as {UNKNOWN}: {words}", file=sys.stderr)
    return vocabulary.encode(tokens or [EOS])


def _printed(
    task: LanguageTask, vocabulary: Vocabulary, ids: np.ndarray, given: int
) -> str:
    """Returns tokens as a text in print, of whole words; the first `given` are a prompt."""
    text = vocabulary.decode(ids)
    if task.characters or task.pieces is not None:
        least = len(vocabulary.decode(ids[:given]))
        end = max(text.rfind(blank, least) for blank in " \n")
        text = text[:end] if end >= 0 else text  # its length has cut the last word
    return task.in_print(text.strip())
