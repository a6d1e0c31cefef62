"""The blocks of a causal Transformer whose attention has a finite context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import pad_left, time_steps
from keras_trellis.types import Tensor
from trainers.baselines.causal import Block

EXPANSION = 4  # hidden channels of the two dense layers, in units; Vaswani et al.


@keras.saving.register_keras_serializable("trainers")
class AttentionBlock(Block):
    """Causal attention to the last steps, then two dense layers, each with a shortcut around it.

    A learned number for each head and distance joins the scores of the attention. So a position is
    relative to the step that reads, as exact streaming needs. `keras.layers.MultiHeadAttention`
    takes no such numbers; hence `keras.layers.Dense` and `keras.ops.dot_product_attention`.

    Source: Vaswani et al. (2017), "Attention Is All You Need"; the normalisation in front of each
    part: Xiong et al. (2020); the numbers for distances: Raffel et al. (2020), one a distance.

    Args:
        units: channels of inputs and outputs.
        heads: attention heads; each has `units // heads` channels.
        context: how many time steps a step attends to, its own included.
        **kwargs: as for `Block`; it drops before a shortcut is joined.
    """

    def __init__(self, units: int, heads: int, context: int, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.heads = heads
        self.context = context
        self.head_units = units // heads
        self.reach = context - 1
        inner = heads * self.head_units
        self.pasts = ((self.reach, inner), (self.reach, inner))
        policy = self.dtype_policy
        self.norms = [keras.layers.LayerNormalization(dtype=policy) for _ in range(2)]
        self.projections = [
            self._dense(inner, name) for name in ("query", "key", "value")
        ]
        self.join = self._dense(units, "join")
        self.hidden = self._dense(EXPANSION * units, "hidden", activation="gelu")
        self.output_dense = self._dense(units, "output")

    def _dense(self, units: int, name: str, **arguments: Any) -> keras.layers.Dense:
        initializer = self.one_more_initializer()
        return keras.layers.Dense(
            units,
            kernel_initializer=initializer,
            dtype=self.dtype_policy,
            name=name,
            **arguments,
        )

    def build(self, sequences_shape: Sequence[int | None]) -> None:
        """Creates the variables for sequences `[B, T, units]`."""
        for layer in (*self.norms, *self.projections, self.hidden):
            layer.build((None, None, self.units))
        self.join.build((None, None, self.heads * self.head_units))
        self.output_dense.build((None, None, EXPANSION * self.units))
        self.distances = self.add_weight(
            name="distances", shape=(self.heads, self.context), initializer="zeros"
        )
        self.built = True

    def call(
        self,
        sequences: Tensor,
        pasts: Sequence[Tensor],
        valid: Tensor,
        training: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Runs the next steps; see `Block`."""
        normed = self.norms[0](sequences)
        queries, *new = (projection(normed) for projection in self.projections)
        keys, values = (
            pad_left(past, present) for past, present in zip(pasts, new, strict=True)
        )
        # Another block may reach further back.
        valid = valid[:, valid.shape[1] - self.reach :]
        attended = self.join(self._attend(queries, keys, values, valid))
        hidden = sequences + self.drop(attended, training=training)
        normed = self.norms[1](hidden)
        dense = self.output_dense(self.hidden(normed))
        outputs = hidden + self.drop(dense, training=training)
        return outputs, [keys, values]

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, valid: Tensor
    ) -> Tensor:
        """Returns what n queries find among W + n keys, `[B, n, heads * head_units]`."""
        steps = time_steps(queries)
        places = self.reach + ops.arange(steps)
        distance = places[:, None] - ops.arange(self.reach + steps)
        within = (distance >= 0) & (distance < self.context)
        now = ops.ones([ops.shape(valid)[0], steps], "bool")
        there = ops.concatenate([valid, now], axis=1)
        # The mask leaves out the distances that the table does not have.
        index = ops.clip(distance, 0, self.reach)
        distances = ops.cast(self.distances, queries.dtype)
        bias = backend.take(distances, index, axis=1)
        attended = ops.dot_product_attention(
            *(self._heads(tensor) for tensor in (queries, keys, values)),
            bias=bias[None],
            mask=within & there[:, None, None],
        )
        return ops.reshape(attended, ops.shape(queries))

    def _heads(self, channels: Tensor) -> Tensor:
        rows, steps, _ = ops.shape(channels)
        return ops.reshape(channels, [rows, steps, self.heads, self.head_units])

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "heads": self.heads,
            "context": self.context,
        }


@keras.saving.register_keras_serializable("trainers")
class DenseBlock(Block):
    """A dense layer as a block: it reads a step by itself.

    Args:
        units: channels of the outputs.
        normalize: whether to normalise the inputs first, as after the last `AttentionBlock`.
        **kwargs: as for `Block`; it drops nothing.
    """

    reach = 0
    pasts = ()

    def __init__(self, units: int, *, normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.normalize = normalize
        policy = self.dtype_policy
        initializer = self.kernel_initializer
        self.norm = keras.layers.LayerNormalization(dtype=policy) if normalize else None
        self.dense = keras.layers.Dense(
            units, kernel_initializer=initializer, dtype=policy
        )

    def build(self, sequences_shape: Sequence[int | None]) -> None:
        """Creates the variables for sequences `[B, T, p]`."""
        if self.norm is not None:
            self.norm.build(sequences_shape)
        self.dense.build(sequences_shape)
        self.built = True

    def call(
        self,
        sequences: Tensor,
        pasts: Sequence[Tensor],
        valid: Tensor,
        training: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Runs the next steps; see `Block`."""
        normed = sequences if self.norm is None else self.norm(sequences)
        return self.dense(normed), []

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"normalize": self.normalize}
