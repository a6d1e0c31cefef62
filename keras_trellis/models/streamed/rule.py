"""How a layer streams: the rule of one call, and the tensors that a rule is made for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from keras_trellis.core.lines import Line
from keras_trellis.types import Number, Tensor


@dataclasses.dataclass(frozen=True)
class Signal:
    """A tensor of a model.

    Attributes:
        slot: its number.
        shape: `[B, T, ...]`, or `[B, ...]` of an answer.
        stride: how many steps of the model's input one step of it stands for; None for an answer,
            which all steps so far have and which has no time axis.
        lead: how many steps of zeros a pass over the whole has before the first one.
        mask: the mask that a call gives it; None for the one that Keras put on it.
    """

    slot: int
    shape: tuple[int | None, ...]
    stride: int | None
    lead: int = 0
    mask: Signal | None = None


def signals(arguments: Any) -> list[Signal]:
    """Returns the tensors of a model among arguments."""
    leaves = keras.tree.flatten(arguments)
    return [leaf for leaf in leaves if isinstance(leaf, Signal)]


class NotStreamableError(Exception):
    """Says of a layer why it cannot be streamed, as the end of a sentence."""


class Rule:
    """How one call of a layer streams; this one keeps nothing of the past.

    Attributes:
        layer: the layer, or an operation of Keras.
        stride: how many steps it reads for one that it returns.
        lead: see `Signal`; that of its outputs.
        past: what it keeps, in words.
    """

    stride = 1
    lead = 0
    past = "nothing"

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def output_strides(self, stride: int, count: int) -> list[int | None]:
        """Returns the stride of each of its outputs.

        Args:
            stride: that of its inputs.
            count: how many outputs it has.
        """
        return [stride * self.stride] * count

    def get_initial_cache(self, batch_size: Number) -> Any:
        """Returns what it keeps before the first step: a nest of tensors `[B, ...]`."""
        return ()

    def stream(
        self, cache: Any, mask: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Continues where the chunk before ended.

        Args:
            cache: what it kept.
            mask: bool `[B, n]`, None, or a nest of these as the first argument is one.
            *args: the arguments of the call, over the steps of the chunk.
            **kwargs: its named arguments, but for `mask`.

        Returns:
            what the layer returns, and the next cache.
        """
        raise NotImplementedError

    def stream_stepwise(
        self, cache: Any, mask: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Does what `stream` does, without a loop in its graph; the chunk's length is known."""
        return self.stream(cache, mask, *args, **kwargs)

    def lines(self) -> dict[str, Line] | None:
        """Returns its delay lines, by name.

        None: what it keeps goes on as a whole. Each tensor of its cache is a line of length one.
        """
        return None

    def advance(
        self, past: Mapping[str, Tensor], *args: Any, **kwargs: Any
    ) -> tuple[Any, dict[str, Tensor]]:
        """Continues from what a chunk reads of its lines.

        Args:
            past: the entries of each line, `[B, K, ...]`.
            *args: as for `stream`.
            **kwargs: as for `stream`.

        Returns:
            what the layer returns, and the new entries of each line, `[B, n, ...]`.
        """
        raise NotImplementedError
