"""A trellis network in NumPy float64, from the equations of Bai, Kolter and Koltun (2019), sec. 3.

Slow and without cleverness: loops over levels and time, dense kernels only. The layer is held
against it, and the output heads against what stands at the end.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Masks(NamedTuple):
    """What dropout multiplies in one call; None: nothing.

    inputs broadcasts to [B, T, p], hidden to [B, T, units]; kernel and recurrent_kernel have the
    shape of the dense kernels.
    """

    inputs: np.ndarray | None = None
    hidden: np.ndarray | None = None
    kernel: np.ndarray | None = None
    recurrent_kernel: np.ndarray | None = None


NO_MASKS = Masks()


class Result(NamedTuple):
    """Outputs [B, T, output_units], states [B, units], auxiliary [B, M, T, output_units]."""

    outputs: np.ndarray
    states: tuple[np.ndarray, ...]
    auxiliary: np.ndarray | None


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm_gate(blocks: np.ndarray, shifted: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Maps blocks i, f, c, o [4, B, units] and (h, c) of d steps before to h, c."""
    i, f, g, o = blocks
    c = sigmoid(f) * shifted[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_gate(blocks: np.ndarray, shifted: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Maps blocks u, r, a, b [4, B, units] and (h,) of d steps before to h."""
    u, r, a, b = blocks
    u, r = sigmoid(u), sigmoid(r)
    return (u * shifted[0] + (1 - u) * np.tanh(a + r * b),)


def tanh_gate(blocks: np.ndarray, shifted: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Maps one block [1, B, units] to h."""
    del shifted
    return (np.tanh(blocks[0]),)


# name -> step, number of blocks, number of states
GATES = {"lstm": (lstm_gate, 4, 2), "gru": (gru_gate, 4, 1), "tanh": (tanh_gate, 1, 1)}


def dense_kernel(kernel: np.ndarray, taps: int, units: int, blocks: int, groups: int) -> np.ndarray:
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
                dense[-1, own, block, following] = kernel[(taps - 1) * groups + group, :, columns]
    return dense.reshape(taps, units, blocks * units)


def normalize(v: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Scales v to w = g v / ||v|| with a norm for each output channel, over taps and inputs."""
    norm = np.sqrt((v**2).sum(axis=(0, 1)))
    return scale * v / np.where(norm == 0, 1, norm)


def trellis(
    sequences: np.ndarray,
    kernel: np.ndarray,
    recurrent_kernel: np.ndarray,
    bias: np.ndarray | None,
    *,
    units: int,
    depth: int,
    gate="lstm",
    taps: int | None = None,
    dilations: Sequence[int] = (1,),
    groups: int = 1,
    staggered: bool = False,
    inject_every: int = 1,
    output_units: int | None = None,
    initial_state: Sequence[np.ndarray] | None = None,
    auxiliary_every: int | None = None,
    discard: int = 0,
    kernel_scale: np.ndarray | None = None,
    recurrent_scale: np.ndarray | None = None,
    masks: Masks = NO_MASKS,
) -> Result:
    """Runs the network.

    Args:
        sequences: [B, T, p].
        kernel: [taps, p, blocks * units], or with groups [1, p, blocks * units // groups].
        recurrent_kernel: [taps, units, blocks * units], or with groups
            [(taps - 1) * groups + groups - 1, units // groups, blocks * units // groups].
        bias: [blocks * units] or None.
        gate: a name of GATES, or a triple (step, number of blocks, number of states).
        taps: the kernel size; None: kernel's (without groups).
        kernel_scale: g of the weight-normalised dense kernel [blocks * units]; None: no
            normalisation.
        recurrent_scale: the same for the recurrent kernel.
    """
    step, blocks, n_states = GATES[gate] if isinstance(gate, str) else gate
    taps = len(kernel) if taps is None else taps
    wx = dense_kernel(kernel, taps, units, blocks, groups)
    wz = dense_recurrent_kernel(recurrent_kernel, taps, units, blocks, groups)
    if masks.kernel is not None:
        wx = wx * masks.kernel
    if masks.recurrent_kernel is not None:
        wz = wz * masks.recurrent_kernel
    if kernel_scale is not None:
        wx, wz = normalize(wx, kernel_scale), normalize(wz, recurrent_scale)

    batch, steps = sequences.shape[:2]
    x = sequences if masks.inputs is None else sequences * masks.inputs
    hidden_mask = np.ones((1, 1, 1)) if masks.hidden is None else masks.hidden
    hidden_mask = np.broadcast_to(hidden_mask, (batch, 1, units))[:, 0]  # one for all steps
    history = [np.zeros((batch, units))] * n_states
    if initial_state is not None:
        history = list(initial_state)

    level = [np.zeros((batch, steps, units)) for _ in range(n_states)]  # level 0
    auxiliary = []
    for i in range(depth):
        d = dilations[i % len(dilations)]
        following = [np.zeros((batch, steps, units)) for _ in range(n_states)]
        for t in range(steps):
            z = np.zeros((batch, blocks * units)) + (0 if bias is None else bias)
            for j in range(taps):
                past = t - (taps - 1 - j) * d
                if i % inject_every == 0 and past >= 0:  # left of the sequence stands x = 0
                    z = z + x[:, past] @ wx[j]
                h = level[0][:, past] if past >= 0 else history[0]
                z = z + (h * hidden_mask) @ wz[j]
            shifted = [
                s[:, t - d] if t >= d else left for s, left in zip(level, history, strict=True)
            ]
            state = step(z.reshape(batch, blocks, units).transpose(1, 0, 2), shifted)
            for s, value in zip(following, state, strict=True):
                s[:, t] = value
                if staggered:
                    s[:, t, (i + 1) * units // groups :] = 0
        level = following
        if auxiliary_every and i % auxiliary_every == auxiliary_every - 1:
            auxiliary.append(level[0])

    channels = slice(units - (output_units or units), None)
    states = tuple(s[:, -1] if steps else left for s, left in zip(level, history, strict=True))
    stacked = None
    if auxiliary_every:
        stacked = np.zeros((batch, 0, steps, units))
        if auxiliary:
            stacked = np.stack(auxiliary, axis=1)
        stacked = stacked[:, :, discard:, channels]
    return Result(level[0][:, discard:, channels], states, stacked)


def masked_trellis(
    sequences: np.ndarray, mask: np.ndarray, *args, initial_state=None, **kwargs
) -> Result:
    """Runs each row alone with its masked steps taken out.

    A masked step repeats the output before it; before the first valid step stand zeros.

    Args: as `trellis` without `discard` and auxiliary outputs; mask [B, T] of booleans, True where
    a step is valid.
    """
    rows = []
    for row, valid in enumerate(mask):
        left = None if initial_state is None else [s[row : row + 1] for s in initial_state]
        packed = trellis(sequences[row : row + 1, valid], *args, initial_state=left, **kwargs)
        outputs = np.zeros((1, len(valid), packed.outputs.shape[-1]))
        for t in range(len(valid)):
            seen = valid[: t + 1].sum()
            if seen:
                outputs[:, t] = packed.outputs[:, seen - 1]
        rows.append((outputs, packed.states))
    outputs = np.concatenate([o for o, _ in rows])
    states = tuple(np.concatenate(s) for s in zip(*[s for _, s in rows], strict=True))
    return Result(outputs, states, None)


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
        probabilities = probabilities + priors[..., k, None] * softmax(expert @ table.T + bias)
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
    for j, (start, stop) in enumerate(zip(cutoffs, [*cutoffs[1:], len(table)], strict=True)):
        parts.append(first[..., cutoffs[0] + j, None] * softmax(logits[..., start:stop]))
    return np.concatenate(parts, axis=-1)
