"""`CausalLayer`: blocks that see finitely far back, as one layer that models are composed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis.core import masks, schedule
from keras_trellis.core.convolution import (
    last_steps,
    pad_left,
    take_steps,
    time_steps,
)
from keras_trellis.core.schedule import Grid
from keras_trellis.layers.hooks import Pass
from keras_trellis.layers.inputs import check_not_stateful, count_outputs
from keras_trellis.layers.sequence import SequenceLayer, deserialized, serialized
from keras_trellis.types import Number, State, Tensor


class Block(keras.layers.Layer):
    """A layer of a `CausalLayer`.

    Attributes:
        reach: how many time steps before its own an output depends on.
        pasts: steps and channels of each tensor that it needs of its past; known once it is built.

    Args:
        units: channels of the outputs.
        dropout: rate at which numbers are dropped in training.
        seed: of the dropout masks.
        kernel_initializer: of all kernels.
        **kwargs: `name`, `dtype` and `trainable` of every Keras layer.
    """

    reach: int
    pasts: Sequence[tuple[int, int]]

    def __init__(
        self,
        units: int,
        *,
        dropout: float = 0.0,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.dropout, self.seed = dropout, seed
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.drop = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def one_more_initializer(self) -> keras.initializers.Initializer:
        """Returns a copy for one more kernel: an initializer draws the same numbers each time."""
        return self.kernel_initializer.clone()

    def call(
        self,
        sequences: Tensor,
        pasts: Sequence[Tensor],
        valid: Tensor,
        training: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Runs the next steps.

        Args:
            sequences: the steps, `[B, n, p]`.
            pasts: what it needs of its past, each `[B, W, C]`; zeros before the first step.
            valid: bool `[B, W']`: which of the last W' steps there have been. W' is at least the
                greatest W.
            training: whether to drop.

        Returns:
            outputs `[B, n, units]`, and each past with its steps appended, `[B, W + n, C]`.
        """
        raise NotImplementedError

    def read(self, outputs: Grid, steps: int | None) -> Grid | None:
        """Returns the steps of its inputs that its outputs at the steps of a grid depend on.

        None: it has no `call_on`.

        Args:
            outputs: the grid.
            steps: T; None where it is unknown.
        """
        return None

    def call_on(
        self,
        sequences: Tensor,
        outputs: Grid,
        steps: Number,
        training: bool = False,
    ) -> Tensor:
        """Computes the outputs at the steps of a grid, with nothing before the first step.

        Args:
            sequences: the inputs at the steps that `read` returned, `[B, n, p]`.
            outputs: the grid, of n' steps.
            steps: T, an integer or a scalar.
            training: whether to drop.

        Returns:
            `[B, n', units]`.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "units": self.units,
            "dropout": self.dropout,
            "seed": self.seed,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable("trainers")
class CausalLayer(SequenceLayer):
    """Blocks, one above the other, whose outputs depend on finitely many time steps.

    The layer keeps for each block what the block needs of its past. So a chunk costs no more than
    its own steps, and chunks equal one long pass. Cache and state are one thing: the last output,
    which steps there have been, and the pasts, each `[B, steps * channels]`. A state that is
    carried from window to window is the memory of Transformer-XL (Dai et al., 2019).

    A call for the last outputs alone, with neither a mask nor a state, computes only the steps that
    they depend on where all blocks have `call_on`. Dropout inside the blocks then draws other masks
    than a call for all outputs, as it draws none for the steps that are left out.

    Args:
        blocks: the blocks, each a `Block`.
        dropout: rate at which channels of the input are dropped, for all time steps alike.
        **kwargs: as for `keras_trellis.RecurrentLayer`, and `seed`.

    Raises:
        ValueError: `stateful` is True.
    """

    def __init__(
        self, blocks: Sequence[Any], *, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        blocks = [deserialized(block) for block in blocks]
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = blocks[0].dtype_policy
        super().__init__(**kwargs)
        check_not_stateful(self)
        self.blocks = blocks
        self.dropout = dropout
        self.drop = keras.layers.SpatialDropout1D(
            dropout, self.seed, dtype=self.dtype_policy
        )
        self.output_units = blocks[-1].units
        self.receptive_field = 1 + sum(block.reach for block in blocks)

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state."""
        flat = (steps * channels for steps, channels in self._pasts)
        return self.output_units, self._width, *flat

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        blocks = [serialized(block) for block in self.blocks]
        return super().get_config() | {"blocks": blocks, "dropout": self.dropout}

    @property
    def _pasts(self) -> list[tuple[int, int]]:
        return [past for block in self.blocks for past in block.pasts]

    @property
    def _width(self) -> int:
        """The steps of the longest past."""
        return max(steps for steps, _ in self._pasts)

    def add_variables(self, inputs: int) -> None:
        """Creates the variables for p = `inputs` channels."""
        for block in self.blocks:
            block.build((None, None, inputs))
            inputs = block.units

    def propagate(self, sequences: Tensor, *, discard: int = 0, **how: Any) -> Any:
        """Runs whole sequences and returns all results; see `SequenceLayer.propagate`.

        It computes all steps, which the state depends on.
        """
        outputs, state, further = super().propagate(sequences, **how)
        return last_steps(outputs, count_outputs(outputs, discard)), state, further

    def run(self, sequences: Tensor, request: Pass) -> tuple[Tensor, State, None]:
        """Runs whole sequences; see `SequenceHooks.run`."""
        state, mask, training, _, num_outputs = request
        if state is None and mask is None and not self.return_state:
            grids = self._grids(num_outputs, sequences.shape[1])
            if grids:
                return self._run_on(grids, sequences, training), (), None
        return super().run(sequences, request)

    def _grids(self, num_outputs: Number | None, steps: int | None) -> list[Grid]:
        """Returns the steps that are needed: those of each block's inputs, then of the outputs.

        None at all where a block computes all steps anyway, or no number of outputs is known.
        """
        if not isinstance(num_outputs, int) or num_outputs < 1 or steps == 0:
            return []
        grids = [schedule.last(num_outputs, steps)]
        for block in reversed(self.blocks):
            needed = block.read(grids[-1], steps)
            if needed is None:
                return []
            grids.append(needed)
        return grids[::-1]

    def _run_on(
        self, grids: Sequence[Grid], sequences: Tensor, training: bool
    ) -> Tensor:
        """Returns the outputs at the steps of the last grid."""
        steps = time_steps(sequences)
        needed = schedule.cut(schedule.WHOLE, grids[0], steps)
        outputs = take_steps(self.drop(sequences, training=training), needed)
        for block, grid in zip(self.blocks, grids[1:], strict=True):
            outputs = block.call_on(outputs, grid, steps, training=training)
        return outputs

    def cache_of_state(self, state: State) -> State:
        """Returns the state: it is the cache."""
        return state

    def run_chunk(
        self, sequences: Tensor, cache: State, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, State]:
        """Continues sequences from a cache; see `SequenceHooks.run_chunk`."""
        plan = masks.packing(mask)
        outputs = self.drop(masks.pack(sequences, plan), training=training)
        last, present, *flat = (
            ops.cast(tensor, self.compute_dtype) for tensor in cache
        )
        # Steps that packing moved to the end count as valid: no valid step reads them.
        new = ops.ones_like(outputs[..., :1])
        presents = pad_left(present[..., None], new)
        after = [masks.last_valid_steps(presents, self._width, plan)]
        # A past may have no step, so that -1 would tell nothing.
        rows, *_ = ops.shape(outputs)
        for block, pasts in self._with_pasts(flat, rows):
            outputs, padded = block(outputs, pasts, present > 0, training=training)
            for past, steps in zip(pasts, padded, strict=True):
                after.append(masks.last_valid_steps(steps, past.shape[1], plan))
        (final,) = masks.last_valid((outputs,), plan, (last,))
        sizes = self.state_units[1:]
        flat = [
            ops.reshape(tensor, [rows, size])
            for tensor, size in zip(after, sizes, strict=True)
        ]
        return masks.unpack(outputs, plan, before=last), (final, *flat)

    def _with_pasts(
        self, flat: Sequence[Tensor], rows: Number
    ) -> Iterator[tuple[Any, list[Tensor]]]:
        """Yields each block with its pasts `[B, W, C]`."""
        ahead = list(flat)
        for block in self.blocks:
            pasts = []
            for shape in block.pasts:
                pasts.append(ops.reshape(ahead.pop(0), [rows, *shape]))
            yield block, pasts
