"""`StreamedModel`: a whole model with the protocol of a layer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.backend import current as backend
from keras_trellis.models.streamed import costs, received
from keras_trellis.models.streamed.plan import plain_name, plan
from keras_trellis.models.streamed.running import RunningStream
from keras_trellis.types import Number, Tensor


class StreamedModel:
    """A trained model of causal layers, run chunk by chunk, exactly.

        streamed = keras_trellis.StreamedModel(model)
        cache = streamed.get_initial_cache(batch_size)
        for chunk in signal:  # [B, n, p]
            outputs, cache = streamed.stream(chunk, cache)

    The outputs of the chunks, one after the other, are those of `model` over the whole. What has
    no time axis, such as the output of a layer without `return_sequences`, is an answer: the one
    that the model gives to all steps so far.

    The weights are those of the model: if it trains on, the streamed model follows. Nothing is
    dropped.

    A layer is streamed if it is of a kind that docs/reference/streamed_layers.md lists, or has
    `get_initial_cache(batch_size)` and `stream(chunk, cache, mask)` itself, or `delay_lines()` and
    `advance(chunk, past)`. All others are refused, since they may read steps to come.

    Args:
        model: a functional or Sequential model, built. All its inputs are sequences `[B, T, ...]`
            over the same time steps. A layer, a `TrellisClassifier` or a `TrellisLM` goes into
            such a model: `keras.Model(inputs, layer(inputs))`.

    Attributes:
        model: the model.
        stride: a chunk has a multiple of so many time steps; 1 unless the model has strided layers.
        input_names: the names of the inputs in exports, in the order of `model.inputs`.
        output_names: those of the outputs.

    Raises:
        ValueError: the model is of another kind, or one of its layers cannot be streamed. The error
            names the layer and says why.

    Examples:
        >>> import keras
        >>> import numpy as np
        >>> import keras_trellis
        >>> layers = [
        ...     keras.Input([None, 3]),
        ...     keras.layers.Conv1D(8, 3, padding="causal"),
        ...     keras.layers.GRU(4, return_sequences=True),
        ... ]
        >>> model = keras.Sequential(layers)
        >>> streamed = keras_trellis.StreamedModel(model)
        >>> signal = np.ones([1, 6, 3], "float32")
        >>> cache = streamed.get_initial_cache(batch_size=1)
        >>> first, cache = streamed.stream(signal[:, :4], cache)
        >>> second, cache = streamed.stream(signal[:, 4:], cache)
        >>> bool(np.allclose(second, model(signal)[:, 4:], atol=1e-6))
        True
    """

    def __init__(self, model: keras.Model) -> None:
        received.check_model(model)
        self.model = model
        self.input_names = [plain_name(tensor.name) for tensor in model.inputs]
        # ONNX has one name for one tensor.
        self.output_names = [
            f"{name}_output" if name in self.input_names else name
            for name in _output_names(model)
        ]
        # In an export inputs, outputs and the cache stand side by side: no two may have one name.
        reserved = [*self.input_names, *self.output_names]
        self._plan = plan(model, reserved)
        self._specs = self._plan.specs
        self.stride = self._plan.stride

    def get_initial_cache(self, batch_size: Number) -> dict[str, Tensor]:
        """Returns the cache before the first time step.

        Args:
            batch_size: B.

        Returns:
            what each layer keeps of its past: tensors `[B, ...]` by names of the form LAYER_PART,
            in the layer's compute dtype. NumPy saves it by `numpy.savez(file, **cache)`, and
            `stream` takes what `numpy.load` reads.
        """
        return self._plan.get_initial_cache(batch_size)

    def stream(
        self, chunk: Any, cache: Mapping[str, Any], mask: Any = None
    ) -> tuple[Any, dict[str, Tensor]]:
        """Continues sequences whose past is in `cache`.

        Args:
            chunk: the next steps, `[B, n, ...]`, n >= 1 a multiple of `stride`; for several inputs
                a nest as `model.input`, or a dictionary by their names.
            cache: the result of the last call, or `get_initial_cache(B)`. It stays as it is.
            mask: bool `[B, n]`, true at the valid steps, or a nest of such masks and None as the
                chunk is one. It means what it means in `model(sequences, mask=mask)`: recurrent
                layers skip a masked step and leave their cache as it is, convolutions and poolings
                read it.

        Returns:
            the outputs for these steps, `[B, n / stride, ...]` or an answer `[B, ...]`, as a nest
            of the form of the model's outputs; and the next cache.

        Raises:
            ValueError: an argument does not fit the model.
        """
        inputs = received.chunks(self.model, chunk, self.stride)
        masks = received.masks(self.model, mask, inputs[0])
        rows = inputs[0].shape[0]
        parts = received.cached(cache, self._specs, rows)
        if rows is None:
            rows = ops.shape(inputs[0])[0]
        outputs, after = self._plan.run(inputs, masks, parts, rows)
        return self._packed(outputs), after

    def reset(self, cache: Mapping[str, Any], rows: Any) -> dict[str, Tensor]:
        """Returns the cache with some rows as before the first time step.

        Args:
            cache: the cache.
            rows: bool `[B]`, true where a sequence begins anew.
        """
        parts = received.cached(cache, self._specs, None)
        if not parts:
            return parts
        first, *_ = parts.values()
        batch_size = ops.shape(first)[0]
        anew = received.new_rows(rows, batch_size)
        begun = self.get_initial_cache(batch_size)
        after = {}
        for name, tensor in parts.items():
            ones = [1] * (len(tensor.shape) - 1)
            # One for each row, whatever the rank of what is kept.
            chosen = ops.reshape(anew, [-1, *ones])
            after[name] = ops.where(chosen, begun[name], tensor)
        return after

    def start(self, batch_size: int = 1) -> RunningStream:
        """Returns a stream that keeps the past of its rows itself, and updates it in place.

            running = streamed.start(batch_size=2)
            for chunk in signal:  # [B, n, p]
                outputs = running.advance(chunk)

        The outputs are those of `stream`. That has to copy its cache, which takes most of a step
        where a layer sees far; this writes what is new.

        It takes no masks: `stream` does. A layer without delay lines still copies its cache at each
        chunk: an `EquilibriumTrellisLayer`, a `TrellisLayer` with `return_state`, a layer of your
        own that has `stream` alone. On JAX `jax.jit(streamed.stream)` is faster where no layer
        sees far.

        Args:
            batch_size: B.
        """
        batch_size = arguments.positive("batch_size", batch_size)
        return RunningStream(self.model, self._plan, batch_size, self._packed)

    def summary(self) -> str:
        """Returns a table: what each layer keeps, its bytes a row, bytes moved and multiply-adds.

        These are those of a running stream, for each step of the input, in chunks of `stride`. A
        cache has some bytes more, and all of them are moved.

        Multiply-adds are those of the products with weights, on average over the steps of the
        input; a layer after stride s counts every s-th step. What reads an answer counts once for
        each chunk of `stride` steps.
        """
        return costs.table(self._plan)

    def export(
        self,
        path: str | os.PathLike[str],
        format: str = "tf_saved_model",
        *,
        steps: int | None = None,
        batch_size: int | None = None,
        cache: str = "graph",
    ) -> None:
        """Writes what `stream` does, for programs without this package.

        Inputs are the chunk, under the name of the model's input, and the tensors of the cache.
        Outputs are `outputs`, the keys of a dictionary, or `outputs_0` and so on, and the tensors
        of the next cache. Those have the names of the cache; in ONNX `next_` stands before them.
        The signature of a SavedModel and of a LiteRT file is `serving_default`. The first cache is
        `get_initial_cache`: zeros, but for recurrent cells of your own that begin otherwise.

        Args:
            path: a folder for a SavedModel and for C, else a file. It must not be there yet.
            format: "tf_saved_model"; "litert", which has LiteRT's own operations alone; "onnx",
                which needs the package tf2onnx; or "c", C99 source that allocates nothing, keeps
                the past of one row itself, and needs tf2onnx to be written.
            steps: n, the time steps of a chunk; `stride` by default.
            batch_size: B; None for any, or for 1 in LiteRT.
            cache: who keeps the past. "graph": the cache goes in and comes out, whole. "host": what
                a chunk reads of it goes in, and what is new comes out, so that a step costs what it
                computes, however far the model sees. The file `PATH.lines.json` says what is read;
                `keras_trellis.formats.rings.Rings` keeps it.

        Raises:
            ValueError: an argument is not what it must be, or the format cannot hold a layer.
            RuntimeError: Keras runs on another backend than TensorFlow.
        """
        if backend.NAME != "tensorflow":
            raise RuntimeError(
                "`export` needs Keras on TensorFlow. Received: the backend "
                f"{backend.NAME!r}. Save the model as a .keras file, and load and export it in a "
                "process with KERAS_BACKEND=tensorflow."
            )
        # Not above: it imports TensorFlow, which other backends do without.
        from keras_trellis.models.streamed import formats

        if steps is None:
            steps = self.stride
        steps = arguments.positive("steps", steps)
        if steps % self.stride:
            raise ValueError(
                f"`steps` must be a multiple of the model's stride, {self.stride}. "
                f"Received: steps={steps}"
            )
        formats.write(self, self._plan, path, format, steps, batch_size, cache)

    def _packed(self, outputs: list[Tensor]) -> Any:
        """Returns outputs in the form in which the model returns them."""
        if not isinstance(self.model, keras.Function):  # Sequential has one
            return outputs[0]
        nest = keras.tree.pack_sequence_as(self.model.output, outputs)
        if isinstance(nest, (list, tuple)) and len(nest) == 1:
            return nest[0]
        return nest


def _output_names(model: keras.Model) -> list[str]:
    """Returns the names of the outputs in exports."""
    if isinstance(model, keras.Function) and isinstance(model.output, Mapping):
        return [plain_name(str(key)) for key in sorted(model.output)]
    if len(model.outputs) == 1:
        return ["outputs"]
    return [f"outputs_{place}" for place in range(len(model.outputs))]
