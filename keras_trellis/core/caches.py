"""The parts of a cache: what each level keeps of its past, and names of all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_trellis.core import masks
from keras_trellis.core.convolution import pad_left, repeated, time_steps, where, zeros
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network
from keras_trellis.types import Cache, Number, State, Tensor


def order(network: Network) -> list[int]:
    """Returns the levels in the order of `Cache.levels`, by their place in the dilation cycle."""
    # Levels of one dilation stand together: the engine takes them as one `[B, levels, W, units]`.
    cycle = len(network.cycle)
    levels = range(network.depth)
    return sorted(levels, key=lambda level: level % cycle)


def ends(network: Network, state: int) -> list[int]:
    """Returns for each level, from the lowest up, where its steps end in `Cache.levels[state]`."""
    levels = order(network)
    sums = itertools.accumulate(network.width(level, state) for level in levels)
    end_by_level = dict(zip(levels, sums, strict=True))
    return [end_by_level[level] for level in range(network.depth)]


def begin(network: Network, inputs: int, state: State) -> Cache:
    """Returns the cache of sequences that have not begun.

    Args:
        network: the network's shape.
        inputs: the number of input channels, p.
        state: what stands to the left of every level, each `[B, units]`.
    """
    return Cache(
        inputs=zeros(state[0], network.input_width, inputs),
        # As `Network.left`: before the first step every level has the initial state.
        levels=tuple(map(repeated, state, network.cached_steps)),
        state=state,
        steps=ops.zeros_like(state[0][:, 0], "int32"),
    )


def spec(network: Network, inputs: int, rows: int | None) -> Cache:
    """Returns the shapes of a cache of so many rows; None where their number is unknown."""
    units = network.units
    state = keras.KerasTensor([rows, units])
    return Cache(
        inputs=keras.KerasTensor([rows, network.input_width, inputs]),
        levels=tuple(
            keras.KerasTensor([rows, steps, units]) for steps in network.cached_steps
        ),
        state=(state,) * network.gate.states,
        steps=keras.KerasTensor([rows], "int32"),
    )


def level_past(network: Network, cache: Cache, level: int) -> State:
    """Returns what a level keeps of its past, each `[B, W, units]` with a width of its own."""
    past = []
    for number, tensor in enumerate(cache.levels):
        end = ends(network, number)[level]
        begin = end - network.width(level, number)
        past.append(tensor[:, begin:end])
    return tuple(past)


def joined_pasts(network: Network, pasts: Sequence[State]) -> State:
    """Returns the entries of `Cache.levels` of what each level keeps, from the lowest up."""
    ordered = [pasts[level] for level in order(network)]
    by_state = zip(*ordered, strict=True)
    return tuple(ops.concatenate(steps, axis=1) for steps in by_state)


def finish_chunk(
    network: Network,
    inputs: Tensor,
    cache: Cache,
    plan: Packing | None,
    hidden: Tensor,
    state: State,
    levels: State,
) -> tuple[Tensor, Cache]:
    """Returns h of the top level, its steps moved back, and the cache after a chunk.

    Args:
        network: the network's shape.
        inputs: the chunk, packed, `[B, n, p]`.
        cache: the cache before it.
        plan: its packing.
        hidden: h of the top level, `[B, n, units]`.
        state: the top level's state at the last valid step, each `[B, units]`.
        levels: those of the next cache.
    """
    # A masked step repeats the output before it. Before the first valid one that is zero, as
    # Keras's recurrent layers have it, and not the initial h.
    seen = ops.expand_dims(cache.steps > 0, -1)
    before = where(seen, cache.state[0], 0)
    hidden = masks.unpack(hidden, plan, before)
    padded = pad_left(cache.inputs, inputs)
    new_steps = time_steps(inputs) if plan is None else plan.count
    return hidden, Cache(
        inputs=masks.last_valid_steps(padded, network.input_width, plan),
        levels=levels,
        state=state,
        steps=cache.steps + new_steps,
    )


def named(name: str, nest: Any) -> dict[str, Tensor]:
    """Returns the tensors of a nest by their places in it, in the order of `keras.tree.flatten`.

    Args:
        name: what all names begin with.
        nest: a nest; the fields of a named tuple and the keys of a mapping are parts of names.
    """
    if not keras.tree.is_nested(nest):
        return {name: nest}
    parts: Iterable[tuple[Any, Any]] = enumerate(nest)
    if hasattr(nest, "_asdict"):  # a NamedTuple
        parts = nest._asdict().items()
    elif isinstance(nest, Mapping):
        parts = sorted(nest.items())
    tensors: dict[str, Tensor] = {}
    for key, part in parts:
        tensors |= named(f"{name}_{key}", part)
    return tensors


class Layout(NamedTuple):
    """Which tensors of a cache have which names.

    Attributes:
        nest: the cache of one row, of tensors or of their shapes.
        names: the name of each, in the order of `keras.tree.flatten`; None: it is left out.
    """

    nest: Any
    names: Sequence[str | None]

    def flatten(self, cache: Any) -> dict[str, Tensor]:
        """Returns the tensors of such a cache by name."""
        pairs = zip(self.names, keras.tree.flatten(cache), strict=True)
        return {name: tensor for name, tensor in pairs if name is not None}

    def pack(self, tensors: Mapping[str, Tensor], rows: Number) -> Any:
        """Returns the cache of the tensors with its names; those left out are zeros."""
        leaves = []
        for name, spec in zip(self.names, keras.tree.flatten(self.nest), strict=True):
            if name is None:
                leaves.append(ops.zeros([rows, *spec.shape[1:]], spec.dtype))
            else:
                leaves.append(tensors[name])
        return keras.tree.pack_sequence_as(self.nest, leaves)
