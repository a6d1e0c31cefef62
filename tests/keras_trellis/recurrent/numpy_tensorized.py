"""The tensorized LSTM in NumPy, place by place, from the equations of He et al. 2017."""

import numpy as np

from tests.keras_trellis.recurrent.numpy_cells import sig


def normalized(values, gamma, beta):
    mean = values.mean(-1, keepdims=True)
    deviation = np.sqrt(values.var(-1, keepdims=True) + 1e-5)
    return (values - mean) / deviation * gamma + beta


def step(w, x, hidden, cell, taps):
    """The next states [B, P, ..., M]; `cell` is None for an RNN."""
    shape, channels = hidden.shape[1:-1], hidden.shape[-1]
    first = x @ w["kernel"] + w["input_bias"]
    new_hidden = np.zeros_like(hidden)
    new_cell = None if cell is None else np.zeros_like(cell)
    for place in np.ndindex(*shape):
        at = (slice(None), *place)
        total, around = w["bias"], []
        for tap in np.ndindex(*taps):
            read = [p - k // 2 + t for p, k, t in zip(place, taps, tap, strict=True)]
            if all(each == -1 for each in read):
                total = total + first @ w["recurrent_kernel"][tap]
            elif all(0 <= each < p for each, p in zip(read, shape, strict=True)):
                total = (
                    total + hidden[(slice(None), *read)] @ w["recurrent_kernel"][tap]
                )
            if cell is not None:
                edge = [
                    min(max(each, 0), p - 1)
                    for each, p in zip(read, shape, strict=True)
                ]
                around.append(cell[(slice(None), *edge)])
        if cell is None:
            new_hidden[at] = np.tanh(total)
            continue
        g, i, f, o, q = np.split(total, channels * np.arange(1, 5), axis=-1)
        carried = cell[at]
        if q.shape[-1]:
            kernel = np.exp(q) / np.exp(q).sum(-1, keepdims=True)
            carried = np.einsum("bk,kbm->bm", kernel, np.stack(around))
        now = np.tanh(g) * sig(i) + carried * sig(f)
        new_cell[at] = now
        if "gamma" in w:
            now = normalized(now, w["gamma"][place], w["beta"][place])
        new_hidden[at] = np.tanh(now) * sig(o)
    return new_hidden, new_cell


def run(w, x, states, shape, taps, delay):
    """The outputs beside their inputs, and the states before the further steps."""
    rows, steps, _ = x.shape
    states = [each.reshape(rows, *shape, -1) for each in states]
    hidden, cell = states if len(states) == 2 else (*states, None)
    corners, after = [], None
    rng = np.random.default_rng(7)
    for time in range(steps + delay):
        if time == steps:
            after = hidden, cell
        # What the further steps read is of no account.
        now = x[:, time] if time < steps else rng.normal(size=x[:, 0].shape)
        hidden, cell = step(w, now, hidden, cell, taps)
        corners.append(hidden.reshape(rows, -1, hidden.shape[-1])[:, -1])
    after = after or (hidden, cell)
    flat = [each.reshape(rows, -1) for each in after if each is not None]
    return np.stack(corners[delay:], 1), flat
