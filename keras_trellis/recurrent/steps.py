"""One time step of each gated cell, in plain code.

The equations are those of Kuo et al. 2020 (IJCNN, "An Input Residual Connection for
Simplifying Gated Recurrent Neural Networks"); their numbers stand in brackets. `x` is
the input `[B, p]`, `h'` and `c'` are the states of the step before, `[B, n]`. `*` is
element-wise, sig is the logistic function.

A step takes what `core.recurrence.Step` says: what the state meets, what was computed for
all steps at once, and the state.
"""

from __future__ import annotations

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import masked
from keras_trellis.core.recurrence import Reads, Step
from keras_trellis.types import State, Tensor

Stepped = tuple[Tensor, State]


def irc_gru(reads: Reads, now: State, state: State) -> Stepped:
    """IRC-GRU, (14) to (17): z, r = sig(W v);  h = z * h' + (1 - z) * (r * a).

    v = x + alpha * (U_V h'), a = W_A x. The paper writes i = 1 - z.
    """
    inputs, candidate = now
    (hidden,) = state
    corrected = _corrected(reads, inputs, hidden)
    blocks = reads.multiply(1, corrected)
    keep, reset = _gates(blocks, reads.vectors, 2)
    hidden = _mixed(keep, hidden, reset * candidate)
    return hidden, (hidden,)


def lstm(reads: Reads, now: State, state: State) -> Stepped:
    """LSTM, (18) to (21): c = f * c' + i * a;  h = o * tanh(c).

    f, i, o = sig(W x + U h' + b), a = tanh(W_A x + U_A h' + b_A).
    """
    (blocks,) = now
    hidden, cell = state
    blocks = blocks + _recurrent(reads, hidden)
    write, forget, candidate, read = ops.split(blocks, 4, axis=-1)
    carried = ops.sigmoid(forget) * cell
    written = ops.sigmoid(write) * backend.tanh(candidate)
    cell = carried + written
    hidden = ops.sigmoid(read) * backend.tanh(cell)
    return hidden, (hidden, cell)


def irc_lstm(reads: Reads, now: State, state: State) -> Stepped:
    """IRC-LSTM, (22) to (26): c = f * c' + i * a;  h = o * tanh(c).

    f, i, o = sig(W v), v = x + alpha * (U_V h'), a = W_A x.
    """
    inputs, candidate = now
    hidden, cell = state
    corrected = _corrected(reads, inputs, hidden)
    blocks = reads.multiply(1, corrected)
    return _lstm(blocks, reads.vectors, candidate, cell)


def ihc_lstm(reads: Reads, now: State, state: State) -> Stepped:
    """IHC-LSTM, (52) and (53): v = (1 - g) * x + g * (U_V h').

    g = sig(W_G x + Gamma h' + b_G). The rest is the IRC-LSTM. The released form has no
    W_G: g = sig(Gamma h').
    """
    inputs, candidate, *highway = now
    hidden, cell = state
    both = _recurrent(reads, hidden)
    memory, opening = ops.split(both, 2, axis=-1)
    mixed = _highway(inputs, memory, opening, highway)
    blocks = reads.multiply(1, mixed)
    return _lstm(blocks, reads.vectors, candidate, cell)


def ihc_lstm_projected(reads: Reads, now: State, state: State) -> Stepped:
    """IHC-LSTM whose Gamma reads U_V h': g = sig(W_G x + Gamma U_V h' + b_G)."""
    inputs, candidate, *highway = now
    hidden, cell = state
    memory = _recurrent(reads, hidden)
    opening = reads.multiply(1, memory)
    mixed = _highway(inputs, memory, opening, highway)
    blocks = reads.multiply(2, mixed)
    return _lstm(blocks, reads.vectors, candidate, cell)


def sru(reads: Reads, now: State, state: State) -> Stepped:
    """SRU, (27) to (30): f, q = sig(W x + omega * c' + b);  c = f * c' + (1 - f) * a.

    h = q * c + (1 - q) * x, a = W_A x.
    """
    inputs, gates, candidate = now
    (cell,) = state
    (omega,) = reads.vectors
    read = masked(cell, reads.mask)
    both = ops.concatenate([read, read], axis=-1)
    gates = gates + omega * both
    keep, highway = _gates(gates, (), 2)
    cell = _mixed(keep, cell, candidate)
    hidden = _mixed(highway, cell, inputs)
    return hidden, (cell,)


def irc_sru(reads: Reads, now: State, state: State) -> Stepped:
    """IRC-SRU, (31) to (35): f, q = sig(W v), v = x + alpha * (omega_V * h').

    c and h are those of the SRU.
    """
    inputs, candidate = now
    hidden, cell = state
    weight, *bias = reads.vectors
    memory = weight * masked(hidden, reads.mask)
    blocks = reads.multiply(0, inputs + memory)
    keep, highway = _gates(blocks, bias, 2)
    cell = _mixed(keep, cell, candidate)
    hidden = _mixed(highway, cell, inputs)
    return hidden, (hidden, cell)


def t_lstm(reads: Reads, now: State, state: State) -> Stepped:
    """T-LSTM, (36) to (39): c = f * c' + (1 - f) * a;  h = o * c.

    No gate reads a state. So f, o and (1 - f) * a are there for all steps before.
    """
    keep, read, written = now
    (cell,) = state
    cell = keep * cell + written
    hidden = read * cell
    return hidden, (cell,)


def irc_t_lstm(reads: Reads, now: State, state: State) -> Stepped:
    """IRC-T-LSTM, (40) to (44): f, o = sig(W v), v = x + alpha * (omega_V * h').

    c and h are those of the T-LSTM.
    """
    inputs, candidate = now
    hidden, cell = state
    (weight,) = reads.vectors
    memory = weight * masked(hidden, reads.mask)
    blocks = reads.multiply(0, inputs + memory)
    keep, read = _gates(blocks, (), 2)
    cell = _mixed(keep, cell, candidate)
    hidden = read * cell
    return hidden, (hidden, cell)


def fast_grnn(reads: Reads, now: State, state: State) -> Stepped:
    """FastGRNN, (45) to (47): h = f * h' + (beta (1 - f) + kappa) * a.

    f = sig(W_F x + U_F h' + b_F), a = tanh(W_A x + U_A h' + b_A).
    """
    (blocks,) = now
    (hidden,) = state
    beta, kappa = reads.vectors
    blocks = blocks + _recurrent(reads, hidden)
    keep, candidate = ops.split(blocks, 2, axis=-1)
    keep = ops.sigmoid(keep)
    candidate = backend.tanh(candidate)
    write = beta * (1 - keep) + kappa
    hidden = keep * hidden + write * candidate
    return hidden, (hidden,)


def irc_fast_grnn(reads: Reads, now: State, state: State) -> Stepped:
    """IRC-FastGRNN, (48) to (51): h = f * h' + beta (1 - f) * a.

    f = sig(W_F v), v = x + alpha * (U_V h'), a = W_A x.
    """
    inputs, candidate = now
    (hidden,) = state
    beta, *bias = reads.vectors
    corrected = _corrected(reads, inputs, hidden)
    blocks = reads.multiply(1, corrected)
    (keep,) = _gates(blocks, bias, 1)
    write = beta * (1 - keep)
    hidden = keep * hidden + write * candidate
    return hidden, (hidden,)


def skipping(step: Step) -> Step:
    """Returns a step that skips masked rows.

    What was computed before has one tensor more at its end, bool `[B, 1]`, true where the
    step is valid. The state has one more at its beginning: the output that a masked row
    repeats.
    """

    def skip(reads: Reads, now: State, state: State) -> Stepped:
        *inputs, valid = now
        _, *before = state
        output, after = step(reads, tuple(inputs), tuple(before))
        new = (output, *after)
        pairs = zip(new, state, strict=True)
        results = tuple(ops.where(valid, *pair) for pair in pairs)
        return results[0], results

    return skip


def _recurrent(reads: Reads, hidden: Tensor) -> Tensor:
    """Returns the product of the first matrix with the hidden state under its mask."""
    masked_hidden = masked(hidden, reads.mask)
    return reads.multiply(0, masked_hidden)


def _corrected(reads: Reads, inputs: Tensor, hidden: Tensor) -> Tensor:
    """Returns v = x + alpha * (U_V h'); the matrix holds alpha already."""
    return inputs + _recurrent(reads, hidden)


def _highway(
    inputs: Tensor, memory: Tensor, opening: Tensor, highway: list[Tensor]
) -> Tensor:
    for addend in highway:
        opening = opening + addend
    gate = ops.sigmoid(opening)
    return _mixed(gate, memory, inputs)


def _gates(blocks: Tensor, bias: State | list[Tensor], count: int) -> list[Tensor]:
    for addend in bias:
        blocks = blocks + addend
    gates = ops.sigmoid(blocks)
    return ops.split(gates, count, axis=-1)


def _lstm(blocks: Tensor, bias: State, candidate: Tensor, cell: Tensor) -> Stepped:
    forget, write, read = _gates(blocks, bias, 3)
    carried = forget * cell
    written = write * candidate
    cell = carried + written
    hidden = read * backend.tanh(cell)
    return hidden, (hidden, cell)


def _mixed(gate: Tensor, open_value: Tensor, closed_value: Tensor) -> Tensor:
    """Returns gate * open_value + (1 - gate) * closed_value."""
    return gate * open_value + (1 - gate) * closed_value
