"""The two evaluation protocols of a language model.

`exact` scores every target once, with all of the past that the model can see. The first token has
no past and is no target. `trellisnet` is the protocol of the authors' scripts: streams, windows,
discarded targets, and 1e-8 added to the probabilities of a mixture of softmaxes. Its scores compare
with the paper's.
"""

import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_trellis.heads import MixtureOfSoftmaxes

PROTOCOLS = ("exact", "trellisnet")
# The number that a protocol adds to the probabilities of a mixture of softmaxes.
EPSILON = {"exact": 0.0, "trellisnet": 1e-8}


def cut(
    ids: np.ndarray, batch_size: int, receptive_field: int | None, chunk: int
) -> tuple[int, Iterator[tuple[np.ndarray, ...]]]:
    """Cuts a stream in rows of one length that together score each target once.

    The first row starts where the stream starts. Each other row starts `receptive_field - 1` tokens
    before the input of its first scored target, so that this target sees what it sees in one pass.
    Rows are padded to whole chunks; the padding is not scored.

    Args:
        ids: the stream `[N]`.
        batch_size: the greatest number of rows; a short stream has fewer.
        receptive_field: time steps that an output reaches back, its own included; None: all.
        chunk: time steps a call; rows are a multiple of it long.

    Returns:
        the number of rows, and an iterator over their chunks, so that memory does not grow with the
        stream: the ids, the targets, and whether each is scored, each `[B, n]`.

    Raises:
        ValueError: the stream has fewer than two tokens.
    """
    targets = len(ids) - 1
    if targets < 1:
        raise ValueError(
            f"`ids` must hold at least 2 tokens. Received: {len(ids)} tokens"
        )
    if receptive_field is None:
        batch_size = receptive_field = 1
    warmup = receptive_field - 1
    shared = max(targets - warmup, 1)
    share = math.ceil(shared / max(1, min(batch_size, shared // chunk)))
    rows = math.ceil(shared / share)  # more would have nothing to score
    starts = share * np.arange(rows)[:, None]
    stops = np.minimum(starts + warmup + share, targets)

    def pieces(first: int) -> tuple[np.ndarray, ...]:
        columns = np.arange(first, first + chunk)
        inside = starts + columns < stops
        scored = inside & ((columns >= warmup) | (starts == 0))
        positions = np.where(inside, starts + columns, 0)
        return np.asarray(ids[positions]), np.asarray(ids[positions + 1]), scored

    return rows, map(pieces, range(0, warmup + share, chunk))


def check_training_text(name: str, tokens: int, data: Any) -> None:
    """Raises ValueError if a text is too short for the windows of the group `data`.

    Args:
        name: the name of the text, for errors.
        tokens: its length.
        data: the config's group `data`.
    """
    # The last token is only a target.
    stream, least = tokens // data.batch_size, data.window + 1
    if stream >= least:
        return
    remedies = []
    if tokens >= least:
        remedies.append(f"--config.data.batch_size={tokens // least}")
    if stream - 1 > data.horizon:
        remedies.append(f"--config.data.window={stream - 1}")
    use = f"use {' or '.join(remedies)}, or give" if remedies else "give"
    raise ValueError(
        f"{name} holds {tokens} tokens, {stream} in each of config.data.batch_size="
        f"{data.batch_size} streams; expected at least {least} in each, for "
        f"config.data.window={data.window}: {use} more text"
    )


def check_text(name: str, tokens: int, data: Any, settings: Any) -> None:
    """Raises ValueError if the protocols cannot score a text. Call it before training.

    Args:
        name: the name of the text, for errors.
        tokens: its length.
        data: the config's group `data`.
        settings: the config's group `evaluation`.
    """
    stream = data.horizon + 2  # of these one is scored
    if tokens < settings.batch_size * stream:
        remedy = "give"
        if fitting := tokens // stream:
            remedy = f"use --config.evaluation.batch_size={fitting}, or give"
        raise ValueError(
            f"{name} holds {tokens} tokens; expected at least {settings.batch_size * stream}, "
            f"{stream} (config.data.horizon + 2) in each of config.evaluation.batch_size="
            f"{settings.batch_size} streams: {remedy} more text"
        )


def head_epsilon(protocol: str, model: keras.Model) -> dict[str, float]:
    """Returns the argument `epsilon` of `score` under a protocol; only a mixture has one."""
    if not isinstance(model.head, MixtureOfSoftmaxes):
        return {}
    return {"epsilon": EPSILON[protocol]}
