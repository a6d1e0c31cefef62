"""The network as a function of tensors: what a layer does once it has its variables."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.core.convolution import (
    ALL,
    Kept,
    causal_convolution,
    keep_steps,
    multiply,
    pad_left,
    rows,
)
from keras_trellis.core.gates import Gate
from keras_trellis.core.masks import Packing
from keras_trellis.engine import streaming
from keras_trellis.engine.level import HiddenKernel, hidden_products, level, run_gate, some_taps
from keras_trellis.engine.levels import WHOLE, Segment, cut, iterate_levels, recomputed, segments
from keras_trellis.engine.tracing import with_gradient
from keras_trellis.types import Cache, State


class Parameters(NamedTuple):
    """What all levels of one call share; drawn and computed once a call.

    Attributes:
        kernel: the input kernel in the compute dtype, [k, p, blocks * units].
        hidden: the hidden kernel.
        bias: [blocks * units], or None.
        input_mask: dropout of the input, [B, 1, p], or None.
    """

    kernel: tf.Tensor
    hidden: HiddenKernel
    bias: tf.Tensor | None
    input_mask: tf.Tensor | None


Addends = dict[int, tf.Tensor]
"""What joins the products of a level: for each dilation the injected input and the bias, [B, T,
blocks * units]; for 0, the levels that the input does not enter, the bias alone, if any."""


Arrays = tuple[tf.TensorArray, ...]

Ascend = Callable[[State, "int | tf.Tensor", int], State]
"""From the state of the level below, a level and its phase to the level's state."""

# So many levels of a single step go without a loop; where there are more, they are one turn of it.
_STEP_LEVELS = 8


class _Shared(NamedTuple):
    """What the levels of whole sequences share.

    Attributes:
        addends: what joins the products.
        initial: what stands left of every level, each [B, units]; empty for zeros.
        kernel: the hidden kernel, see `HiddenKernel`.
        matrix: the same.
    """

    addends: Addends
    initial: State
    kernel: tf.Tensor
    matrix: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Network:
    """The shape of a network, and its two ways of running: whole sequences, and chunks.

    Attributes:
        units: the number of hidden channels, q.
        depth: the number of levels, L.
        kernel_size: the number of taps, k.
        dilation_rate: the cycle of dilations.
        gate: the gate.
        inject_every: the input enters every so many levels.
        input_taps: how many taps the input kernel has.
        recompute: keep less for the gradient and compute it again.
        staggered: into how many groups the channels are cut of which group g begins at level g
            and is zero below; 1: all begin at once.
        training: whether gradients are wanted, so that XLA may compile what is run often.
    """

    units: int
    depth: int
    kernel_size: int
    dilation_rate: tuple[int, ...]
    gate: Gate
    inject_every: int
    input_taps: int
    recompute: bool
    staggered: int
    training: bool

    @property
    def cycle(self) -> tuple[int, ...]:
        """The dilations of one turn of the cycle, as far as there are levels."""
        return self.dilation_rate[: self.depth]

    @property
    def period(self) -> int:
        """After how many levels everything that differs between levels repeats."""
        return math.lcm(len(self.cycle), self.inject_every)

    @property
    def input_width(self) -> int:
        """How many steps of the input's past the levels read."""
        return (self.input_taps - 1) * max(self.cycle)

    def dilation(self, level: int) -> int:
        """Returns the dilation of a level, or of a place in the period."""
        return self.cycle[level % len(self.cycle)]

    def width(self, dilation: int) -> int:
        """How many steps of its own past a level of this dilation reads."""
        return max(self.kernel_size - 1, 1) * dilation

    @property
    def cached(self) -> list[tuple[int, int]]:
        """For each place in the cycle: the number of its levels, the cached steps of each."""
        return [
            (len(range(place, self.depth, len(self.cycle))), self.width(dilation))
            for place, dilation in enumerate(self.cycle)
        ]

    def inject(
        self,
        sequences: tf.Tensor,
        past: tf.Tensor,
        parameters: Parameters,
        kept: Mapping[int, Kept] | None = None,
    ) -> Addends:
        """Returns what joins the products.

        Args:
            sequences: [B, T, p].
            past: what stands to its left, [B, input_width, p].
            parameters: those of the call.
            kept: for each dilation the steps to compute; None: all of them.
        """
        padded = pad_left(past, sequences)
        if parameters.input_mask is not None:
            padded = padded * parameters.input_mask
        addends = {
            dilation: causal_convolution(
                padded, parameters.kernel, dilation, self.input_width, steps
            )
            for dilation, steps in (kept or dict.fromkeys(self.cycle, ALL)).items()
        }
        if parameters.bias is None:
            return addends
        addends = {dilation: value + parameters.bias for dilation, value in addends.items()}
        return addends | ({0: parameters.bias} if self.inject_every > 1 else {})

    def apply_level(
        self,
        past: State,
        state: State,
        addends: Addends,
        hidden: HiddenKernel,
        phase: int,
        steps: int | None = None,
        stride: int = 1,
        kept: Kept = ALL,
    ) -> State:
        """Returns the state of a level with level % period = phase; see `level`.

        Args:
            past: what stands left of the state below, as many steps as the level reads.
            state: that of the level below, on steps that are `stride` apart.
            addends: what joins the products.
            hidden: the hidden kernel.
            phase: the level's place in the period.
            steps: how many of the first steps have taps that are not zero; None: all may have.
            stride: the distance of steps.
            kept: the steps to compute.
        """
        dilation = self.dilation(phase)
        after = level(
            past,
            state,
            hidden,
            self._addend(addends, phase),
            gate=self.gate,
            dilation=dilation // stride,
            steps=steps,
            kept=kept,
            training=self.training,
        )
        # A loop's variables must keep their static shape.
        return tuple(map(_with_shape_of, after, state)) if kept is ALL else after

    def _addend(self, addends: Addends, phase: int) -> tf.Tensor:
        """What joins the products of a level with level % period = phase."""
        if phase % self.inject_every == 0:
            return addends[self.dilation(phase)]
        if 0 in addends:
            return addends[0]
        return tf.zeros([self.gate.blocks * self.units], addends[self.dilation(0)].dtype)

    def run(
        self,
        sequences: tf.Tensor,
        initial: State | None,
        parameters: Parameters,
        *,
        stops: Sequence[int] = (),
        kept: int | None = None,
    ) -> tuple[State, list[tf.Tensor]]:
        """Runs all levels over whole sequences.

        Args:
            sequences: [B, T, p].
            initial: what stands left of every level, each [B, units]; None for zeros.
            parameters: those of the call.
            stops: the levels after which the hidden state is collected.
            kept: how many of the last outputs are of use; None: all of them.

        Returns:
            The top state, the last T' steps of it, kept <= T' <= T, but one at least; the hidden
            state after each stop, [B, kept, units].
        """
        steps = tf.shape(sequences)[1] if sequences.shape[1] is None else sequences.shape[1]
        parts = list(
            segments(
                [self.dilation(level) for level in range(self.depth)],
                max(self.kernel_size - 1, 1),
                stops=[*stops, *range(1, self.staggered)],
                steps=sequences.shape[1],
                kept=kept,
                units=self.units,
            )
        )
        grid = parts[0].before
        # Where the input first joins levels of a dilation: the finest of their grids.
        grids = {each: part.after for part in reversed(parts) for each in self._injected(part)}
        finest = {each: cut(WHOLE, grid, steps) for each, grid in grids.items()}
        past = zeros(sequences, self.input_width, sequences.shape[-1])
        shared = _Shared(
            self.inject(sequences, past, parameters, finest),
            initial or (),
            parameters.hidden.kernel,
            parameters.hidden.matrix,
        )
        state = self._empty(sequences, grid.size(steps))
        collected = []
        for part in parts:
            state = _keep(state, cut(grid, part.before, steps))
            cuts = {each: cut(grids[each], part.after, steps) for each in self._injected(part)}
            shared = shared._replace(addends=_keep_addends(shared.addends, cuts))
            grids.update(dict.fromkeys(cuts, part.after))
            grid = part.after
            state, shared = self._run_segment(
                part, (state, shared), parameters.hidden, cut(part.before, part.after, steps)
            )
            state = self._begun(state, part.last - 1)
            if part.last in stops:
                spare = 0 if kept is None else grid.size(steps) - kept
                collected.append(state[0][:, spare:])
        return state, collected

    def _begun(self, state: State, level: int | tf.Tensor) -> State:
        """Returns the state of a level, zero in the groups that begin above it."""
        if self.staggered == 1:
            return state
        group = tf.range(self.units) // (self.units // self.staggered)
        return tuple(tf.where(group <= level, each, tf.zeros_like(each)) for each in state)

    def _injected(self, part: Segment) -> set[int]:
        """Returns the dilations of a segment's levels that the input enters."""
        levels = range(part.first, part.last)
        return {self.dilation(each) for each in levels if each % self.inject_every == 0}

    def _apply_shared(
        self,
        carry: tuple[State, _Shared],
        hidden: HiddenKernel,
        phase: int,
        stride: int,
        *,
        steps: int | None = None,
        kept: Kept = ALL,
    ) -> State:
        state, shared = carry
        past = self._context(state[0], shared.initial, self.dilation(phase), stride)
        hidden = hidden._replace(kernel=shared.kernel, matrix=shared.matrix)
        return self.apply_level(
            past, state, shared.addends, hidden, phase, steps, stride=stride, kept=kept
        )

    def _run_segment(
        self,
        part: Segment,
        carry: tuple[State, _Shared],
        hidden: HiddenKernel,
        kept: Kept,
    ) -> tuple[State, _Shared]:
        """Runs a segment's levels, those that are like no other one by one.

        Args:
            part: the segment.
            carry: the state below, and what the levels share.
            hidden: the hidden kernel.
            kept: the steps of the state below that the segment keeps.
        """
        first, filled, begins_with_zeros = part.first, None, not carry[1].initial
        if first and kept is ALL:
            return self._run_levels(part, first, carry, hidden)
        if first == 0 and (begins_with_zeros or kept is ALL):
            # The hidden state below is zero: what stands left of it alone enters the product.
            width = self.width(self.dilation(0)) // part.before.stride
            filled = 0 if begins_with_zeros else width
        stride = part.before.stride
        state = self._apply_shared(carry, hidden, first, stride, steps=filled, kept=kept)
        return self._run_levels(part, first + 1, (state, carry[1]), hidden)

    def _run_levels(
        self, part: Segment, first: int, carry: tuple[State, _Shared], hidden: HiddenKernel
    ) -> tuple[State, _Shared]:
        """Runs a segment's levels from one on, which are all on one grid.

        What the levels share is carried through the loops, so that its gradient is carried back
        through them, one sum for all levels. Captured by several loops it would have a sum for
        each, all of them in memory from the beginning.
        """

        def levels(carry: tuple[State, _Shared], first: int, last: int) -> tuple[State, _Shared]:
            def advance(
                carry: tuple[State, _Shared], _: int | tf.Tensor, phase: int
            ) -> tuple[State, _Shared]:
                state = self._apply_shared(carry, hidden, phase, part.before.stride)
                return state, tf.nest.map_structure(_handed_on, carry[1])

            return iterate_levels(advance, carry, first=first, last=last, period=self.period)

        last, size = part.last, self._block
        if not self.recompute:
            return levels(carry, first, last)
        blocks = (last - first) // size
        block = recomputed(functools.partial(levels, first=first, last=first + size))
        carry = iterate_levels(
            lambda carry, *_: block(carry), carry, first=0, last=blocks, period=1
        )
        return recomputed(functools.partial(levels, first=first + blocks * size, last=last))(carry)

    @property
    def _block(self) -> int:
        """How many levels `recompute` runs again at once, in whole periods.

        What is kept is the state once a block, and the state and the products at each level of
        one block: least in all at this size.
        """
        states, blocks = self.gate.states, self.gate.blocks
        size = math.sqrt(self.depth * states / (states + blocks))
        return self.period * max(1, round(size / self.period))

    def _empty(self, sequences: tf.Tensor, steps: int | tf.Tensor | None) -> State:
        """The state below the first level; None for T steps."""
        return (zeros(sequences, steps, self.units),) * self.gate.states

    def _context(
        self, sequences: tf.Tensor, initial: State | None, dilation: int, stride: int = 1
    ) -> State:
        """What stands left of a level, on steps `stride` apart: the initial state, repeated."""
        width = self.width(dilation) // stride
        if not initial:
            return (zeros(sequences, width, self.units),) * self.gate.states
        return tuple(_repeated(first, width) for first in initial)

    def stream(
        self,
        sequences: tf.Tensor,
        cache: Cache,
        parameters: Parameters,
        plan: Packing | None,
    ) -> tuple[State, State]:
        """Runs all levels on their cached past.

        Where there is but one step, the products of the past taps of all levels are one product,
        and only those of the present tap go level by level: where the rows are few, the time is
        that of reading the kernel, of which it takes about half as much.

        Args:
            sequences: the next steps, [B, n, p].
            cache: the past.
            parameters: those of the call.
            plan: how the chunk is packed; None where all its steps are valid.

        Returns:
            The top state, each [B, n, units], and `levels` of the next cache.
        """
        if sequences.shape[1] == 1:
            state, below = self._step(sequences, cache, parameters)
            return state, tuple(
                streaming.push(levels, step, self.cached, plan)
                for levels, step in zip(cache.levels, below, strict=True)
            )
        addends = self.inject(sequences, cache.inputs, parameters)
        pasts = [streaming.split_levels(levels, self.cached) for levels in cache.levels]
        futures = [
            [tf.TensorArray(sequences.dtype, count) for count, _ in self.cached] for _ in pasts
        ]

        def advance(
            carry: Any, level: int | tf.Tensor, phase: int, steps: int | None = None
        ) -> Any:
            state, futures = carry
            place, turn = phase % len(self.cycle), level // len(self.cycle)
            width = self.cached[place][1]
            past = tuple(tf.gather(each[place], turn, axis=1) for each in pasts)
            futures = [list(future) for future in futures]
            for future, left, each in zip(futures, past, state, strict=True):
                kept = streaming.keep(pad_left(left, each), width, plan)
                future[place] = future[place].write(turn, kept)
            state = self.apply_level(past, state, addends, parameters.hidden, phase, steps)
            return self._begun(state, level), futures

        # Level 0: as in `run`.
        carry = advance((self._empty(sequences, None), futures), 0, 0, self.cached[0][1])
        state, futures = iterate_levels(
            advance, carry, first=1, last=self.depth, period=self.period
        )
        return state, tuple(
            streaming.join_levels([tf.transpose(each.stack(), [1, 0, 2, 3]) for each in future])
            for future in futures
        )

    def _step(
        self, sequences: tf.Tensor, cache: Cache, parameters: Parameters
    ) -> tuple[State, State]:
        """Runs all levels on a single step. Nothing in it is compiled: servers do without XLA.

        Args:
            sequences: the step, [B, 1, p].
            cache: the past.
            parameters: those of the call.

        Returns:
            The top state, each [B, 1, units], and what each level has read of the one below, each
            [B, L, units], levels in the order of `Cache.levels`.
        """
        hidden = parameters.hidden
        addends = self._inject_step(sequences, cache.inputs, parameters)
        shifted, products = self._delayed(cache.levels), self._past_products(cache.levels, hidden)
        present = some_taps(hidden, self.kernel_size - 1, self.kernel_size)
        past, take = [*shifted, *products], tf.gather
        if self.depth <= _STEP_LEVELS:
            past, take = [tf.unstack(each) for each in past], operator.getitem

        def activate(level: int | tf.Tensor, phase: int, *present_products: tf.Tensor) -> State:
            here = [take(each, self._place(level, phase)) for each in past]
            past_products = here[len(shifted) :]
            total = sum([*present_products, *past_products], self._addend(addends, phase))
            return self._begun(run_gate(self.gate, total, tuple(here[: len(shifted)])), level)

        def ascend(state: State, level: int | tf.Tensor, phase: int) -> State:
            products = hidden_products(_masked(state[0], hidden.mask), present)
            return activate(level, phase, products)

        run = self._ascend_few if self.depth <= _STEP_LEVELS else self._ascend
        return run(activate(0, 0), ascend)  # the state below level 0 is zero

    def _place(self, level: int | tf.Tensor, phase: int) -> int | tf.Tensor:
        """Returns where a level stands in the order of `Cache.levels`."""
        place = phase % len(self.cycle)
        return sum(count for count, _ in self.cached[:place]) + level // len(self.cycle)

    def _ascend_few(self, state: State, ascend: Ascend) -> tuple[State, State]:
        """Goes from level 0's state to the top, as `_step` returns it, without a loop."""
        below = [tuple(map(tf.zeros_like, state))]
        for index in range(1, self.depth):
            below.append(state)
            state = ascend(state, index, index % self.period)
        order = sorted(range(self.depth), key=lambda index: self._place(index, index % self.period))
        columns = zip(*(below[index] for index in order), strict=True)
        return state, tuple(tf.concat(each, axis=1) for each in columns)

    def _ascend(self, state: State, ascend: Ascend) -> tuple[State, State]:
        """Does the same in a loop."""

        def advance(
            carry: tuple[State, Arrays], level: int | tf.Tensor, phase: int
        ) -> tuple[State, Arrays]:
            state, below = carry
            index = self._place(level, phase)
            below = tuple(each.write(index, new) for each, new in zip(below, state, strict=True))
            return ascend(state, level, phase), below

        below = tuple(
            tf.TensorArray(each.dtype, self.depth).write(0, tf.zeros_like(each)) for each in state
        )
        # A level takes so little time that a turn of the loop for each would take much of it.
        period = self.period * max(1, _STEP_LEVELS // self.period)
        state, below = iterate_levels(
            advance, (state, below), first=1, last=self.depth, period=period
        )
        return state, tuple(tf.transpose(each.stack()[:, :, 0], [1, 0, 2]) for each in below)

    def _inject_step(self, step: tf.Tensor, past: tf.Tensor, parameters: Parameters) -> Addends:
        """As `inject`, for a single step, whose present tap all dilations share."""
        dilations = sorted(set(self.cycle))
        if len(dilations) == 1:
            return self.inject(step, past, parameters)
        kernel, taps = parameters.kernel, self.input_taps - 1
        padded = _masked(pad_left(past, step), parameters.input_mask)
        present = multiply(padded[:, self.input_width :], kernel[taps])
        if parameters.bias is not None:
            present += parameters.bias
        addends = dict.fromkeys(dilations, present)
        if taps:
            places = [self.input_width - tap * d for d in dilations for tap in range(taps, 0, -1)]
            read = tf.gather(padded, places, axis=1)
            read = tf.reshape(read, [-1, len(dilations), taps * kernel.shape[1]])
            products = tf.split(multiply(read, rows(kernel[:taps])), len(dilations), axis=1)
            addends = {d: each + present for d, each in zip(dilations, products, strict=True)}
        if self.inject_every > 1:
            bias = parameters.bias
            addends[0] = tf.zeros([kernel.shape[2]], step.dtype) if bias is None else bias
        return addends

    def _delayed(self, pasts: State) -> State:
        """What the gates of all levels read at a single step, each [L, B, 1, units]."""
        places = [[end - d] for end, d in streaming.ends(self.cached, self.cycle)]
        return tuple(tf.transpose(tf.gather(each, places, axis=1), [1, 0, 2, 3]) for each in pasts)

    def _past_products(self, pasts: State, hidden: HiddenKernel) -> list[tf.Tensor]:
        """The products of the past taps at a single step: none, or [L, B, 1, blocks * units]."""
        taps = self.kernel_size - 1
        if not taps:
            return []
        ends = streaming.ends(self.cached, self.cycle)
        places = [end - tap * d for end, d in ends for tap in range(taps, 0, -1)]
        read = _masked(tf.gather(pasts[0], places, axis=1), hidden.mask)
        read = tf.transpose(tf.reshape(read, [-1, self.depth, taps * self.units]), [1, 0, 2])
        return [tf.expand_dims(hidden_products(read, some_taps(hidden, 0, taps)), 2)]


def zeros(sequences: tf.Tensor, steps: int | tf.Tensor | None, channels: int) -> tf.Tensor:
    """Returns zeros [B, steps, channels] for sequences [B, T, p]; None for T steps."""
    batch, time = (
        tf.shape(sequences)[axis] if size is None else size
        for axis, size in enumerate(sequences.shape[:2])
    )
    return tf.zeros([batch, time if steps is None else steps, channels], sequences.dtype)


def _repeated(state: tf.Tensor, count: int) -> tf.Tensor:
    """Returns [B, units] as [B, count, units].

    XLA cannot take TensorFlow's gradient of a repetition in a loop.
    """

    @with_gradient
    def repeat(state: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(upstream, axis=1)

        return tf.repeat(tf.expand_dims(state, 1), count, axis=1), gradient

    return repeat(state)


def _handed_on(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the same as another tensor.

    What a loop returns as it came counts as captured. An identity would do, but for XLA: it fails
    on constants, gradients that are zero among them, that pass unchanged through three loops.
    """
    return tf.reshape(tensor, tf.shape(tensor))


def _masked(tensor: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    return tensor if mask is None else tensor * mask


def _keep(state: State, steps: Kept) -> State:
    return tuple(keep_steps(each, steps) for each in state)


def _keep_addends(addends: Addends, cuts: Mapping[int, Kept]) -> Addends:
    """Keeps of some dilations' addends the steps that are still of use."""
    return addends | {each: keep_steps(addends[each], steps) for each, steps in cuts.items()}


def _with_shape_of(tensor: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    known = tensor.shape.is_subtype_of(other.shape)
    return tensor if known else tf.ensure_shape(tensor, other.shape)  # LiteRT has no such operation
