"""How a language model continues rows: token by token, each row to its own end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_trellis.formats.tokenizer import Tokenizer
from keras_trellis.serving.batch import Batch
from keras_trellis.serving.reading import Prediction
from keras_trellis.serving.requests import Settings
from keras_trellis.serving.rows import Outcome, Row
from keras_trellis.serving.sessions import Arrays


class Continuation(NamedTuple):
    """What rows are continued by, with -1 and zeros after their ends.

    Attributes:
        ids: int32 `[B, N]`.
        lengths: int32 `[B]`.
        log_probs: float32 `[B, N]`, the model's, whatever the settings make of them.
        likeliest_ids: int32 `[B, N, K]`, the most probable tokens in the place of each.
        likeliest_log_probs: float32 `[B, N, K]`.
        stopped: bool `[B]`, whether a stop ended the row.
        text: what the ids add to each text, up to where a stop text begins. Words have single
            spaces between them. A character that pieces begin and do not end reads U+FFFD.
        cache: which has read all of the ids but the last: send that one to go on.
    """

    ids: np.ndarray
    lengths: np.ndarray
    log_probs: np.ndarray
    likeliest_ids: np.ndarray
    likeliest_log_probs: np.ndarray
    stopped: np.ndarray
    text: list[str]
    cache: Arrays


def continued(
    batch: Batch,
    tokenizer: Tokenizer,
    settings: Sequence[Settings],
    last: np.ndarray,
    prediction: Prediction,
) -> Continuation:
    """Draws tokens for each row until it ends, and feeds each one back.

    Rows that have ended are computed no more.

    Args:
        batch: an empty one, which advances the rows.
        tokenizer: the model's tokens.
        settings: how to continue each row.
        last: the token before the first one, `[B]`.
        prediction: of the first token.
    """
    rows = []
    for index, one in enumerate(settings):
        ids = last[index : index + 1]
        row = Row(ids, tokenizer, one, alternatives=one.alternatives)
        row.place = row.end  # the prediction is that of its last id
        row.cache = {
            name: value[index : index + 1] for name, value in prediction.cache.items()
        }
        rows.append(row)
    cache = {name: np.array(value) for name, value in prediction.cache.items()}
    if rows:
        batch.add(rows)
        batch.write([*range(len(rows))], prediction.log_probs)
    while batch.rows:
        for row, read in batch.drop_ended():
            for name, value in read.items():
                cache[name][rows.index(row)] = value
        batch.step()
    return _together(rows, cache)


def _together(rows: Sequence[Row], cache: Arrays) -> Continuation:
    """Returns what rows have written, side by side."""
    shape = [len(rows), max((len(row.written) for row in rows), default=1)]
    most = max((row.alternatives for row in rows), default=0)
    ids = np.full(shape, -1, np.int32)
    log_probs = np.zeros(shape, np.float32)
    likeliest_ids = np.full([*shape, most], -1, np.int32)
    likeliest_log_probs = np.zeros([*shape, most], np.float32)
    for index, row in enumerate(rows):
        tokens, _, own, candidates, best = zip(*row.written, strict=True)
        places = index, slice(len(tokens))
        ids[places], log_probs[places] = tokens, own
        listed = *places, slice(row.alternatives)
        likeliest_ids[listed], likeliest_log_probs[listed] = candidates, best
    return Continuation(
        ids=ids,
        lengths=np.array([len(row.written) for row in rows], np.int32),
        log_probs=log_probs,
        likeliest_ids=likeliest_ids,
        likeliest_log_probs=likeliest_log_probs,
        stopped=np.array([row.outcome is Outcome.STOP for row in rows], bool),
        text=[row.text for row in rows],
        cache=cache,
    )
