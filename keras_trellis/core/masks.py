"""Time masks: the network skips a masked time step, wherever it is.

`pack` moves the valid steps of a row to its left, the network runs over them, and `unpack` moves
the outputs back. This is exact, since the network is causal: no valid step reads a step to its
right. So the network itself needs no mask. They move to the right for what needs the last steps
alone: there the steps that come first must be held at the initial state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import (
    last_steps,
    pad_left,
    take_steps,
    time_steps,
    where,
    zero_rows,
)
from keras_trellis.core.schedule import WHOLE, Grid, Segment, cut
from keras_trellis.types import Number, State, Tensor


def dense(sequences: Any, mask: Any = None) -> tuple[Any, Any]:
    """Pads ragged sequences on the right, `[B, T, ...]`; returns them and their mask.

    Other sequences and their mask are returned unchanged.
    """
    mask = steps_mask(sequences, mask)
    if backend.is_ragged(sequences):
        sequences = sequences.to_tensor()
    return sequences, mask


def steps_mask(sequences: Any, mask: Any = None) -> Any:
    """Returns the mask of sequences, `[B, T]`, false at the padding of ragged ones.

    It is None where there is no mask. `mask` may be ragged too: an embedding of ragged ids makes
    such masks.
    """
    if backend.is_ragged(mask):
        mask = mask.to_tensor()
    if not backend.is_ragged(sequences):
        return mask
    lengths = sequences.row_lengths()
    longest = sequences.bounding_shape(axis=1)
    present = steps_until(lengths, longest)
    if mask is None:
        return present
    return present & flat(mask)


def steps_until(lengths: Tensor, steps: Any) -> Tensor:
    """Returns a mask `[B, T]` that is true at the first steps of each row.

    Args:
        lengths: the number of these steps, `[B]`.
        steps: T, an integer or a scalar.
    """
    places = backend.integers(steps, lengths.dtype)
    return places < ops.expand_dims(lengths, 1)


def flat(mask: Any) -> Tensor:
    """Returns a mask `[B, T]`, or `[B, T, 1]` as from some layers, as booleans `[B, T]`."""
    valid = ops.cast(mask, "bool")
    has_channel = len(valid.shape) == 3 and valid.shape[-1] == 1
    if has_channel:
        return ops.squeeze(valid, -1)
    return valid


class Packing(NamedTuple):
    """The plan by which `pack` moves the valid steps of each row.

    Attributes:
        source: for each place one more than the step that moves there, 0 where none does; the valid
            ones stand together, in order, int32 `[B, T]`.
        seen: the number of packed steps up to and including the last one that is valid so far,
            int32 `[B, T]`; 0 before the first one.
        count: the number of valid steps, int32 `[B]`.
    """

    source: Tensor
    seen: Tensor
    count: Tensor  # type: ignore[assignment]  # in place of the method of tuples

    @property
    def valid(self) -> Tensor:
        """The mask of the packed steps, bool `[B, T]`."""
        return self.source > 0


def packing(mask: Tensor | None, *, right: bool = False) -> Packing | None:
    """Plans the packing for a mask.

    Args:
        mask: `[B, T]`, true or non-zero at valid steps; None where all are, which gives None.
        right: whether all rows end together, rather than begin together.
    """
    if mask is None:
        return None
    valid = ops.cast(ops.cast(mask, "bool"), "int32")
    # With 64 bits JAX sums up integers of 32 bits in 64.
    count = ops.cast(ops.sum(valid, axis=1), "int32")
    seen = ops.cumsum(valid, axis=1)
    skipped = ops.cumsum(1 - valid, axis=1)
    if right:
        # The masked steps come first.
        masked = time_steps(valid) - ops.expand_dims(count, 1)
        after = where(valid > 0, masked + seen, skipped)
        seen_packed = where(seen > 0, masked + seen, 0)
    else:
        after = where(valid > 0, seen, ops.expand_dims(count, 1) + skipped)
        seen_packed = seen
    # `after` says where a step goes, counted from 1; a gather needs which step a place takes.
    order = backend.inverse_permutation(after - 1)
    # seen + skipped is the step, counted from 1: a masked one becomes 0, which reads zeros.
    source = backend.gather_steps(valid * (seen + skipped), order)
    return Packing(source, seen_packed, count)


def planned(
    mask: Tensor | None, parts: Iterable[Segment]
) -> tuple[Packing | None, Tensor | None]:
    """Plans the packing for the segments of a network: to the right where some steps are left out.

    Returns:
        the plan, and for steps that are packed to the right numbers above 0 where they are valid,
        int32 `[B, T]`; else None.
    """
    # Grids count from the last step: all rows must end there.
    right = any(part.after != WHOLE for part in parts)
    plan = packing(mask, right=right)
    return plan, plan.source if plan and right else None


def valid_on(valid: Tensor | None, grid: Grid, steps: Number) -> Tensor | None:
    """Returns the mask of a grid's steps, `[B, T', 1]`; None where `planned` has none."""
    if valid is None:
        return None
    # As numbers: LiteRT splits no booleans.
    return take_steps(ops.expand_dims(valid, -1), cut(WHOLE, grid, steps)) > 0


def held(valid: Tensor | None, initial: State | None, state: State) -> State:
    """Returns a state `[B, T, units]` that is the initial one at steps that are not valid.

    Args:
        valid: what `valid_on` returns.
        initial: each `[B, units]`; zeros where there is none.
        state: the state.
    """
    if valid is None:
        return state
    firsts: Any = [tensor[:, None] for tensor in initial or ()] or [0] * len(state)
    return tuple(
        where(valid, tensor, first) for tensor, first in zip(state, firsts, strict=True)
    )


def zero_masked(sequences: Tensor, mask: Tensor) -> Tensor:
    """Sets the masked steps of `[B, T, C]` to zero, NaN included."""
    valid = ops.expand_dims(mask, -1)
    return where(valid, sequences, 0)


def pack(sequences: Tensor, plan: Packing | None) -> Tensor:
    """Moves the valid steps of `[B, T, C]` together, and fills the rest with zeros."""
    if plan is None:
        return sequences
    # Zeros are read, and not chosen by `where`: tf2onnx multiplies, and NaN times 0 is NaN.
    return backend.gather_steps(_prepend(None, sequences), plan.source)


def unpack(
    sequences: Tensor, plan: Packing | None, before: Tensor | None = None
) -> Tensor:
    """Moves packed outputs `[B, T, C]` back; a masked step gets the output before it.

    Args:
        sequences: the network's outputs over packed steps, `[B, T, C]`.
        plan: the packing.
        before: the output at the steps before the first valid one, `[B, C]`; None for zeros.
    """
    if plan is None:
        return sequences
    # Place 0 is `before`, for the steps that have seen no valid one.
    return backend.gather_steps(_prepend(before, sequences), plan.seen)


def unpack_last(
    sequences: Tensor, plan: Packing | None, count: Number | None
) -> Tensor:
    """Returns the last steps of what `unpack` returns, `[B, count, C]`; None: all.

    Args:
        sequences: all packed steps, or, where they are packed to the right, the last `count`.
        plan: the packing.
        count: how many steps, or None.
    """
    if plan is None or count is None:
        return last_steps(unpack(sequences, plan), count)
    seen = last_steps(plan.seen, count)
    # Places count all steps of a row, and only its last ones are here; 0 still means `before`.
    missing = time_steps(plan.seen) - time_steps(sequences)
    places = where(seen > 0, seen - missing, 0)
    return unpack(sequences, plan._replace(seen=places))


def last_valid(state: State, plan: Packing | None, before: State = ()) -> State:
    """Returns a state at the last valid step of each row.

    Args:
        state: at packed steps, each `[B, T, C]`; without packing the last step is enough.
        plan: the packing.
        before: the state of rows without a valid step, each `[B, C]`; (): zeros.

    Returns:
        each `[B, C]`.
    """

    def last(tensor: Tensor, first: Tensor | None) -> Tensor:
        if plan is None:
            steps = tensor.shape[1]
            if not (isinstance(steps, int) and steps):  # there may be none
                tensor = _prepend(first, tensor[:, -1:])
            return tensor[:, -1]
        # Gathered and not sliced: each row ends at a step of its own, or at `before`, place 0.
        padded = _prepend(first, tensor)
        return backend.gather_steps(padded, plan.count[:, None])[:, 0]

    return tuple(map(last, state, before or [None] * len(state)))


def last_valid_steps(padded: Tensor, width: int, plan: Packing | None) -> Tensor:
    """Returns the last `width` valid steps of the past and the chunk together.

    Args:
        padded: `[B, width + T, C]`, the past and the chunk, whose valid steps stand first.
        width: the length of the past.
        plan: the chunk's packing; None where all its steps are valid.

    Returns:
        `[B, width, C]`.
    """
    if plan is None:
        return last_steps(padded, width)
    # Past and valid steps end at width + count in each row, and begin so many before it.
    first = ops.expand_dims(plan.count, 1)
    places = first + ops.arange(width, dtype="int32")
    return backend.gather_steps(padded, places)


def last_valid_pasts(
    padded: Iterable[Tensor], widths: Sequence[int], plan: Packing | None
) -> State:
    """Returns the last valid steps of each tensor of a state, of each as many as it keeps."""
    pairs = zip(padded, widths, strict=True)
    return tuple(last_valid_steps(tensor, width, plan) for tensor, width in pairs)


def _prepend(first: Tensor | None, sequences: Tensor) -> Tensor:
    if first is None:
        first = zero_rows(sequences, sequences.shape[-1])
    return pad_left(ops.expand_dims(first, 1), sequences)
