"""Layers that stream by themselves, Keras's recurrent layers, and models over either."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import layers, ops

from keras_trellis import heads
from keras_trellis.core import masks
from keras_trellis.core.lines import Line, take
from keras_trellis.layers.hooks import cached_state
from keras_trellis.layers.recurrent import RecurrentLayer
from keras_trellis.models.classifier import TrellisClassifier
from keras_trellis.models.language_model import TrellisLM
from keras_trellis.models.streamed.rule import NotStreamableError, Rule, Signal
from keras_trellis.types import Number, Tensor


class Cached(Rule):
    """A layer with `get_initial_cache` and `stream`, and with an LSTM's arguments if it has any.

    Args:
        layer: the layer.
        *args: what it is called on: one sequence, or a nest of them.
        **kwargs: must be empty.
    """

    past = "its cache"

    def __init__(self, layer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(layer)
        if len(args) > 1 or kwargs:
            raise NotStreamableError(
                "is called with more than sequences and a mask: "
                f"{', '.join(kwargs) or 'a second argument'}"
            )
        if getattr(layer, "go_backwards", False):
            raise NotStreamableError(
                "reads sequences from their end (go_backwards=True)"
            )
        self._returns_all = getattr(layer, "return_sequences", True)
        self._states = 0
        if getattr(layer, "return_state", False):
            self._states = len(keras.tree.flatten(layer.get_initial_state(1)))

    def streaming_layer(self, steps: int | None) -> Any:
        """Returns what streams chunks of so many steps; None where the number is unknown."""
        return self.layer

    def output_strides(self, stride: int, count: int) -> list[int | None]:
        """Returns the stride of the outputs, and that states are answers."""
        first = stride if self._returns_all else None
        answers = [None] * (count - 1)
        return [first, *answers]

    def get_initial_cache(self, batch_size: Number) -> Any:
        """Returns the layer's."""
        return self.streaming_layer(None).get_initial_cache(batch_size)

    def stream(self, cache: Any, mask: Any, inputs: Any) -> tuple[Any, Any]:
        """Continues the sequences; without `return_sequences` the answer is the last output."""
        layer = self.streaming_layer(_num_steps(inputs))
        outputs, cache = layer.stream(inputs, cache, mask)
        # At a masked step `stream` repeats the output before it; this layer returns zeros.
        zeros_masked = getattr(self.layer, "zero_output_for_mask", False)
        if zeros_masked and mask is not None:
            outputs = masks.zero_masked(outputs, masks.flat(mask))
        outputs = self._answer(outputs)
        if self._states:
            states = cached_state(cache)[: self._states]
            return (outputs, *states), cache
        return outputs, cache

    def _answer(self, outputs: Tensor) -> Tensor:
        return outputs if self._returns_all else outputs[:, -1]

    def lines(self) -> dict[str, Line] | None:
        """Returns the layer's, if it has any; the states that it may return are no lines."""
        declared = getattr(self.streaming_layer(None), "delay_lines", None)
        return declared() if declared and not self._states else None

    def advance(
        self, past: Mapping[str, Tensor], inputs: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Continues the sequences."""
        outputs, pushed = self.streaming_layer(None).advance(inputs, past)
        return self._answer(outputs), pushed

    def stream_stepwise(self, cache: Any, mask: Any, inputs: Any) -> tuple[Any, Any]:
        """Takes one step after the other."""
        outputs = []
        states: list[Any] = []
        # Unrolled: LiteRT and ONNX get a graph without a loop over time.
        for time in range(_num_steps(inputs)):
            now = _at(inputs, time)
            valid = _at(mask, time)
            output, cache = self.stream(cache, valid, now)
            if self._states:
                output, *states = output
            outputs.append(output)
        if self._returns_all:
            output = ops.concatenate(outputs, axis=1)
        if self._states:
            return (output, *states), cache
        return output, cache


class Lined(Cached):
    """A layer that declares delay lines and has no stream of its own: its cache is these lines."""

    past = "its delay lines"

    def get_initial_cache(self, batch_size: Number) -> dict[str, Tensor]:
        """Returns zeros."""
        return {
            name: ops.zeros([batch_size, line.length, *line.shape], line.dtype)
            for name, line in self.layer.delay_lines().items()
        }

    def stream(
        self, cache: Mapping[str, Tensor], mask: Any, inputs: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Continues the sequences; the number of steps is known, and no mask skips any."""
        if mask is not None:
            raise ValueError(
                f"No mask may reach the layer {self.layer.name!r}, which has no `stream`. "
                "Received: a mask of time steps"
            )
        read, after = {}, {}
        for name, line in self.layer.delay_lines().items():
            places = line.places(_num_steps(inputs))
            # The oldest entry stands first: so places are counted back from the end.
            read[name] = take(cache[name], [line.length - place for place in places])
        outputs, pushed = self.advance(read, inputs)
        for name, entries in cache.items():
            kept = entries.shape[1]
            after[name] = ops.concatenate([entries, pushed[name]], axis=1)[:, -kept:]
        return outputs, after


def _num_steps(nest: Any) -> int:
    """Returns the length of the sequences of a nest."""
    steps: int = keras.tree.flatten(nest)[0].shape[1]
    return steps


def _at(nest: Any, time: int) -> Any:
    """Returns one step of the sequences of a nest; None stays None."""

    def step(sequences: Tensor | None) -> Tensor | None:
        if sequences is None:
            return None
        return sequences[:, time : time + 1]

    return keras.tree.map_structure(step, nest)


class Recurrent(Cached):
    """A recurrent layer of Keras, whose cells run in a `RecurrentLayer`."""

    past = "its state"

    def __init__(self, layer: Any, inputs: Signal, *args: Any, **kwargs: Any) -> None:
        super().__init__(layer, inputs, *args, **kwargs)
        if len(inputs.shape) != 3:
            raise NotStreamableError("must read `[B, T, channels]`")
        channels = inputs.shape[2]
        # Two layers over the same cell, so that both have the model's weights.
        self._loop = _wrapped(layer, channels, unroll=False)
        self._step = _wrapped(layer, channels, unroll=True)

    def streaming_layer(self, steps: int | None) -> Any:
        """Returns the layer with a loop over time, and for a single step one without."""
        if steps == 1:
            return self._step
        return self._loop


def _wrapped(layer: Any, channels: int | None, unroll: bool) -> RecurrentLayer:
    """Returns the cells of a recurrent layer, which stays as it is, with the protocol."""
    rnn = layers.RNN(
        layer.cell,
        unroll=unroll,
        name=layer.name,
        dtype=layer.dtype_policy,
    )
    wrapped = RecurrentLayer(rnn, name=layer.name)
    wrapped.build((None, None, channels))
    return wrapped


class Composed(Cached):
    """A model over a layer that streams."""

    def streaming_layer(self, steps: int | None) -> Any:
        """Returns the layer that the model is made of."""
        return self.layer.trellis

    def read(self, inputs: Tensor) -> Tensor:
        """Returns what the layer gets."""
        return inputs

    def results(self, outputs: Tensor) -> Tensor:
        """Returns what the model makes of the layer's outputs."""
        raise NotImplementedError

    def stream(self, cache: Any, mask: Any, inputs: Any) -> tuple[Tensor, Any]:
        """Continues the sequences."""
        outputs, cache = super().stream(cache, mask, self.read(inputs))
        return self.results(outputs), cache

    def advance(
        self, past: Mapping[str, Tensor], inputs: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Continues the sequences."""
        outputs, pushed = super().advance(past, self.read(inputs))
        return self.results(outputs), pushed


class Classified(Composed):
    """A `TrellisClassifier`: the logits of the last output so far."""

    def __init__(self, layer: TrellisClassifier, *args: Any, **kwargs: Any) -> None:
        super().__init__(layer, *args, **kwargs)
        if layer.permutation is not None:
            raise NotStreamableError(
                "reads the steps in another order than they come in"
            )
        # Its logits are of the last step so far: an answer, whatever the layer in it returns.
        self._returns_all = False

    def results(self, outputs: Tensor) -> Tensor:
        """Returns logits."""
        return heads.at_least_float32(self.layer.dense(outputs))


class Language(Composed):
    """A `TrellisLM`: the logits of the token after each step; NaN of an id that is no token's."""

    def read(self, inputs: Tensor) -> Tensor:
        """Returns word vectors."""
        words: Tensor = self.layer.embed(ops.cast(inputs, "int32"))
        return words

    def results(self, outputs: Tensor) -> Tensor:
        """Returns logits."""
        logits: Tensor = self.layer.logits(outputs)
        return logits


LAYERS: dict[type, Callable[..., Rule]] = {
    layers.GRU: Recurrent,
    layers.LSTM: Recurrent,
    layers.RNN: Recurrent,
    layers.SimpleRNN: Recurrent,
    TrellisClassifier: Classified,
    TrellisLM: Language,
}
"""The recurrent layers of Keras, and models over a layer that streams."""
