"""The gated cells in NumPy, straight from the equations of Kuo et al. 2020.

Weights go by the names of a layer's variables; kernels are [inputs, outputs]. A released
form differs as `docs/notes/recurrent.md` says.
"""

import numpy as np


def sig(x):
    return 1 / (1 + np.exp(-x))


def blocks(values, count):
    return np.split(values, count, axis=-1)


def padded(w, channels):
    bias = w.get("bias", np.zeros(0))
    return np.concatenate([bias, np.zeros(channels - len(bias))])


def residual(w, x, read, gates):
    """The gates of v = x + alpha * read, and a = W_A x."""
    units = w["kernel"].shape[1] // (gates + 1)
    alpha = sig(w["alpha_logit"])
    of_gates, of_candidate = np.split(w["kernel"], [gates * units], axis=1)
    total = (x + alpha * read) @ of_gates + padded(w, gates * units)
    return [*map(sig, blocks(total, gates)), x @ of_candidate]


def lstm(w, x, h, c):
    total = x @ w["kernel"] + h @ w["recurrent_kernel"] + w["bias"]
    i, f, a, o = blocks(total, 4)
    c = sig(f) * c + sig(i) * np.tanh(a)
    h = sig(o) * np.tanh(c)
    return h, [h, c]


def irc_gru(w, x, h):
    z, r, a = residual(w, x, h @ w["recurrent_kernel"], 2)
    h = z * h + (1 - z) * (r * a)
    return h, [h]


def irc_lstm(w, x, h, c):
    f, i, o, a = residual(w, x, h @ w["recurrent_kernel"], 3)
    c = f * c + i * a
    h = o * np.tanh(c)
    return h, [h, c]


def ihc_lstm(w, x, h, c):
    memory = h @ w["recurrent_kernel"]
    is_projected = len(w["highway_recurrent_kernel"]) != h.shape[1]
    opening = (memory if is_projected else h) @ w["highway_recurrent_kernel"]
    if "highway_kernel" in w:
        opening = opening + x @ w["highway_kernel"] + w["highway_bias"]
    g = sig(opening)
    v = (1 - g) * x + g * memory
    units = h.shape[1]
    total = v @ w["kernel"][:, : 3 * units] + padded(w, 3 * units)
    f, i, o = map(sig, blocks(total, 3))
    c = f * c + i * (x @ w["kernel"][:, 3 * units :])
    h = o * np.tanh(c)
    return h, [h, c]


def sru(w, x, c):
    f, q, a = blocks(x @ w["kernel"] + padded(w, 3 * c.shape[1]), 3)
    omega_f, omega_q = blocks(w["recurrent_kernel"], 2)
    f, q = sig(f + omega_f * c), sig(q + omega_q * c)
    c = f * c + (1 - f) * a
    return q * c + (1 - q) * x, [c]


def irc_sru(w, x, h, c):
    f, q, a = residual(w, x, np.tanh(w["recurrent_kernel"]) * h, 2)
    c = f * c + (1 - f) * a
    h = q * c + (1 - q) * x
    return h, [h, c]


def t_lstm(w, x, before, c):
    total = x @ w["kernel"] + before @ w["recurrent_kernel"] + w["bias"]
    f, o, a = blocks(total, 3)
    c = sig(f) * c + (1 - sig(f)) * a
    return sig(o) * c, [x, c]


def irc_t_lstm(w, x, h, c):
    f, o, a = residual(w, x, np.tanh(w["recurrent_kernel"]) * h, 2)
    c = f * c + (1 - f) * a
    h = o * c
    return h, [h, c]


def released_irc_t_lstm(w, x, before, c):
    h, (_, c) = irc_t_lstm(w, x, before, c)
    return h, [x, c]


def fast_grnn(w, x, h):
    f, a = blocks(x @ w["kernel"] + h @ w["recurrent_kernel"] + w["bias"], 2)
    f, a = sig(f), np.tanh(a)
    beta = sig(w["beta_logit"]) if "beta_logit" in w else 1
    kappa = sig(w["kappa_logit"]) if "kappa_logit" in w else 0
    h = f * h + (beta * (1 - f) + kappa) * a
    return h, [h]


def irc_fast_grnn(w, x, h):
    f, a = residual(w, x, h @ w["recurrent_kernel"], 1)
    h = f * h + sig(w["beta_logit"]) * (1 - f) * a
    return h, [h]


def run(step, w, x, state):
    """Runs a cell over [B, T, p]; returns outputs [B, T, n] and the last state."""
    outputs = []
    for now in np.moveaxis(x, 1, 0):
        output, state = step(w, now, *state)
        outputs.append(output)
    return np.stack(outputs, 1), state
