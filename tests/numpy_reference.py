"""A trellis network in NumPy float64, from the equations of Bai, Kolter and Koltun (2019), sec. 3.

Slow and plain: loops over levels and time. `keras_trellis.core` is held against it, and the output
heads against the functions at the end.
"""

from collections.abc import Sequence

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm_gate(
    blocks: np.ndarray, shifted: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Maps blocks i, f, c, o [4, B, units] and (h, c) of d steps before to h, c."""
    i, f, g, o = blocks
    c = sigmoid(f) * shifted[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_gate(
    blocks: np.ndarray, shifted: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Maps blocks u, r, a, b [4, B, units] and (h,) of d steps before to h."""
    u, r, a, b = blocks
    u, r = sigmoid(u), sigmoid(r)
    return (u * shifted[0] + (1 - u) * np.tanh(a + r * b),)


def tanh_gate(
    blocks: np.ndarray, shifted: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Maps one block [1, B, units] to h."""
    del shifted
    return (np.tanh(blocks[0]),)


def irc_gru_gate(z, shifted):
    keep, reset, candidate = z
    h = shifted[0]
    return (sigmoid(keep) * h + (1 - sigmoid(keep)) * sigmoid(reset) * candidate,)


def irc_lstm_gate(z, shifted):
    i, f, a, o = z
    c = sigmoid(f) * shifted[1] + sigmoid(i) * a
    return sigmoid(o) * np.tanh(c), c


def fastgrnn_gate(z, shifted):
    keep, candidate = sigmoid(z[0]), np.tanh(z[1])
    return (keep * shifted[0] + (1 - keep) * candidate,)


# name -> step, number of blocks, number of states
GATES = {
    "lstm": (lstm_gate, 4, 2),
    "gru": (gru_gate, 4, 1),
    "tanh": (tanh_gate, 1, 1),
    "irc_gru": (irc_gru_gate, 3, 1),
    "irc_lstm": (irc_lstm_gate, 4, 2),
    "fastgrnn": (fastgrnn_gate, 2, 1),
}


def dense_kernel(
    kernel: np.ndarray, taps: int, units: int, blocks: int, groups: int
) -> np.ndarray:
    """From [1, p, blocks * units // groups] to [taps, p, blocks * units].

    The input enters the first group, on the present tap.
    """
    if groups == 1:
        return kernel
    n = units // groups
    dense = np.zeros((taps, kernel.shape[1], blocks, units))
    for block in range(blocks):
        dense[-1, :, block, :n] = kernel[0, :, block * n : (block + 1) * n]
    return dense.reshape(taps, -1, blocks * units)


def dense_recurrent_kernel(
    kernel: np.ndarray, taps: int, units: int, blocks: int, groups: int
) -> np.ndarray:
    """From [(taps - 1) * G + G - 1, n, blocks * n] to [taps, units, blocks * units].

    Theorem 1's pattern: past taps connect a group to itself, the present one to the next group.
    """
    if groups == 1:
        return kernel
    n = units // groups
    dense = np.zeros((taps, units, blocks, units))
    for block in range(blocks):
        columns = slice(block * n, (block + 1) * n)
        for group in range(groups):
            own = slice(group * n, (group + 1) * n)
            for tap in range(taps - 1):
                dense[tap, own, block, own] = kernel[tap * groups + group, :, columns]
            if group + 1 < groups:
                following = slice((group + 1) * n, (group + 2) * n)
                dense[-1, own, block, following] = kernel[
                    (taps - 1) * groups + group, :, columns
                ]
    return dense.reshape(taps, units, blocks * units)


def normalize(v: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Scales v to w = g v / ||v|| with a norm for each output channel, over taps and inputs."""
    norm = np.sqrt((v**2).sum(axis=(0, 1)))
    return scale * v / np.where(norm == 0, 1, norm)


def levels(
    sequences: np.ndarray,
    kernel: np.ndarray,
    recurrent_kernel: np.ndarray,
    bias: np.ndarray | None,
    *,
    depth: int,
    gate: str = "lstm",
    dilations: Sequence[int] = (1,),
    inject_every: int = 1,
    staggered: int = 1,
    initial_state: Sequence[np.ndarray] | None = None,
    input_mask: np.ndarray | None = None,
    state_mask: np.ndarray | None = None,
) -> list[list[np.ndarray]]:
    """Returns the state of each level, each [B, T, units].

    Args:
        sequences: [B, T, p].
        kernel: [taps of the input, p, blocks * units].
        recurrent_kernel: [taps, units, blocks * units].
        bias: [blocks * units] or None.
        staggered: the number of groups, of which group g is zero below level g.
        initial_state: each [B, units].
        input_mask: [B, 1, p], or None.
        state_mask: [B, 1, units], or None.
    """
    step, blocks, n_states = GATES[gate]
    units = recurrent_kernel.shape[1]
    batch, steps = sequences.shape[:2]
    x = sequences if input_mask is None else sequences * input_mask
    dropped = np.ones((batch, units)) if state_mask is None else state_mask[:, 0]
    history = initial_state or [np.zeros((batch, units))] * n_states

    level = [np.zeros((batch, steps, units)) for _ in range(n_states)]  # level 0
    found = []
    for i in range(depth):
        d = dilations[i % len(dilations)]
        following = [np.zeros((batch, steps, units)) for _ in range(n_states)]
        for t in range(steps):
            z = np.zeros((batch, blocks * units)) + (0 if bias is None else bias)
            for j, weights in enumerate(reversed(recurrent_kernel)):
                h = level[0][:, t - j * d] if t >= j * d else history[0]
                z = z + (h * dropped) @ weights
            for j, weights in enumerate(reversed(kernel)):
                if (
                    i % inject_every == 0 and t >= j * d
                ):  # left of the sequence stands x = 0
                    z = z + x[:, t - j * d] @ weights
            shifted = [
                s[:, t - d] if t >= d else left
                for s, left in zip(level, history, strict=True)
            ]
            state = step(z.reshape(batch, blocks, units).transpose(1, 0, 2), shifted)
            for s, value in zip(following, state, strict=True):
                s[:, t] = value
                if staggered > 1:
                    s[:, t, (i + 1) * units // staggered :] = 0
        level = following
        found.append(level)
    return found


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return np.log(softmax(logits))


def nll_of(log_probs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Picks the targets [...] out of [..., V], negated."""
    return -np.take_along_axis(log_probs, targets[..., None], -1)[..., 0]


def mixture_of_softmaxes(
    features: np.ndarray,
    table: np.ndarray,
    bias: np.ndarray,
    prior_kernel: np.ndarray,
    prior_bias: np.ndarray,
    latent_kernel: np.ndarray,
    latent_bias: np.ndarray,
    latent_mask: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Maps features [..., E] and a table [V, E'] to probabilities [..., V].

    The mask broadcasts to the latent vectors before the tanh, [..., K E'].
    """
    priors = softmax(features @ prior_kernel + prior_bias)
    latents = np.tanh(latent_mask * (features @ latent_kernel + latent_bias))
    probabilities = 0.0
    for k in range(priors.shape[-1]):
        expert = latents[..., k * table.shape[1] : (k + 1) * table.shape[1]]
        probabilities = probabilities + priors[..., k, None] * softmax(
            expert @ table.T + bias
        )
    return probabilities


def adaptive_softmax(
    features: np.ndarray,
    table: np.ndarray,
    bias: np.ndarray,
    tail_vectors: np.ndarray,
    tail_bias: np.ndarray,
    cutoffs: Sequence[int],
) -> np.ndarray:
    """Maps features [..., E] and a table [V, E] to probabilities [..., V]."""
    logits = features @ table.T + bias
    tokens = features @ tail_vectors.T + tail_bias
    first = softmax(np.concatenate([logits[..., : cutoffs[0]], tokens], axis=-1))
    parts = [first[..., : cutoffs[0]]]
    for j, (start, stop) in enumerate(
        zip(cutoffs, [*cutoffs[1:], len(table)], strict=True)
    ):
        parts.append(
            first[..., cutoffs[0] + j, None] * softmax(logits[..., start:stop])
        )
    return np.concatenate(parts, axis=-1)
