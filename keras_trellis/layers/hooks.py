"""`SequenceHooks`: what a family of sequence layers defines, and the `Pass` that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_trellis.core import masks
from keras_trellis.core.convolution import axis_size, last_steps
from keras_trellis.types import Number, State, Tensor


class Pass(NamedTuple):
    """What a pass over whole sequences begins from, and what it returns.

    Attributes:
        initial_state: the states to the left, each `[B, units]` as `state_units` has them; None
            for zeros. A layer that overrides `get_initial_state` always gets states.
        mask: bool `[B, T]`, true at the valid steps; None: all steps are valid.
        training: whether dropout is applied.
        levels: after how many levels outputs are collected, the auxiliary ones first; empty: after
            all, and for a layer without levels.
        num_outputs: how many of the last outputs to return, an integer or a scalar; None for all.
            What only other outputs depend on need not be computed.
    """

    initial_state: State | None = None
    mask: Tensor | None = None
    training: bool = False
    levels: Sequence[int] = ()
    num_outputs: Number | None = None


def cached_state(cache: Any) -> tuple[Any, ...]:
    """Returns the state in a cache. That of a recurrent layer has no name: it is the cache."""
    state: State = getattr(cache, "state", cache)
    return state


class SequenceHooks:
    """What a sequence layer of your own defines; `SequenceLayer` calls it.

    The constructor sets `output_units` and `receptive_field`, which models read. A layer that drops
    anything sets `seed_generator` last in its constructor, by `core.dropout.generator_for`. It
    overrides the methods that raise `NotImplementedError` here, and `get_config`; `run`, if it
    runs whole sequences in another way than chunks; and `state_is_exact`, if the state is not.
    `keras_trellis.testing.verify_layer` tests all of it.

    Arguments are checked and cast before they reach a hook: sequences and states have the compute
    dtype, a mask is bool `[B, T]`, and the layer is built. B and T may be unknown or 0.

    Attributes:
        input_units: the number of input channels, p; None before the layer is built.
        output_units: the number of channels of the output.
        receptive_field: the number of time steps that an output depends on; None: all of them.
        seed_generator: where the seeds of dropout masks come from; None if nothing is dropped.
    """

    input_units: Any
    output_units: int
    seed_generator: keras.random.SeedGenerator | None
    get_initial_state: Callable[..., Sequence[Tensor]]

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state, at least one, all above 0.

        It is read once the layer is built, so that it may depend on `input_units`.
        """
        raise NotImplementedError

    @property
    def state_is_exact(self) -> bool:
        """Whether a sequence that is cut in two and continued from the state equals the whole.

        The cache is exact in any case.
        """
        return True

    def add_variables(self, inputs: int) -> None:
        """Creates the variables by `add_weight`, and builds the layers that this one holds.

        It is called once. In mixed precision the variables have another dtype than the sequences.

        Args:
            inputs: the number of input channels, p; `input_units` has it too.
        """
        raise NotImplementedError

    def run(self, sequences: Tensor, request: Pass) -> tuple[Tensor, State, Any]:
        """Runs whole sequences: unless a layer overrides it, as one chunk, by `run_chunk`.

        A masked step is skipped, wherever it stands: what it holds, NaN too, reaches no output, no
        state, no cache and no gradient. `core.masks` has a way to do that for any causal layer:
        `pack` moves the valid steps of a row together, the layer runs over them, and `unpack` moves
        the outputs back.

        Args:
            sequences: `[B, T, p]`, with anything at the masked steps.
            request: the initial state, the mask, and what to compute.

        Returns:
            the outputs `[B, T, output_units]`, or the last `request.num_outputs` steps of them
            (`core.convolution.last_steps`), which are fewer where T is less. The output at a masked
            step is a copy of the output at the valid step before it, and zero where no valid step
            has been, also if there is an `initial_state`, as in an LSTM.

            The states after the last valid step, a tuple of `[B, units]` each; a row without a
            valid step has its initial one.

            And one more result, None in a layer that has none.
        """
        state = request.initial_state
        if state is None:
            state = tuple(self.get_initial_state(axis_size(sequences, 0)))
        cache = self.cache_of_state(state)
        mask = request.mask
        outputs, cache = self.run_chunk(sequences, cache, mask, request.training)
        if mask is not None:
            # A cache may take an output of the state for the one before the first step.
            begun = ops.cumsum(ops.cast(mask, "int32"), axis=1) > 0
            outputs = masks.zero_masked(outputs, begun)
        return last_steps(outputs, request.num_outputs), self._state_in(cache), None

    def run_chunk(
        self, sequences: Tensor, cache: Any, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, Any]:
        """Continues sequences: chunks, however they are cut, equal one pass of `run`.

        `stream` is this without dropout.

        Args:
            sequences: a chunk `[B, n, p]`; n may be 0.
            cache: what the last call or `cache_of_state` returned; it stays as it is. A user may
                give another, which `layers.inputs.check_cache` can refuse.
            mask: bool `[B, n]`, true at the valid steps; None: all steps are valid.
            training: whether dropout is applied; true only in a `stateful` layer, and where `run`
                is not overridden.

        Returns:
            the outputs `[B, n, output_units]`. A masked step that opens the chunk repeats the last
            output of the chunk before: the cache has to hold that output, unless the rest of the
            cache gives it. Before any valid step it is zero, or the output of the `initial_state`
            that the cache was made of.

            And the next cache, of the same structure, shapes and dtypes; the row of it that has no
            valid step in the chunk is as it was.
        """
        raise NotImplementedError

    def cache_of_state(self, state: State) -> Any:
        """Returns the cache before the first time step, with a state as left context.

        `run_chunk` from it computes what `run` computes with that state as `initial_state`.
        `reset_state` writes the cache of the state that `get_initial_state` returns.

        Args:
            state: each `[B, units]`, as `state_units` has them.

        Returns:
            a nest (a tuple, best a named one) of tensors whose first axis is B. Its field `state`
            has the states after the last valid step, a tuple of `[B, units]` each; a cache without
            such a field is itself that tuple.
        """
        raise NotImplementedError

    def _state_in(self, cache: Any) -> tuple[Any, ...]:
        """Returns the states in a cache, which may have the last output behind them."""
        return cached_state(cache)[: len(self.state_units)]
