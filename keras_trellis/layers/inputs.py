"""What a sequence layer receives: checks of its arguments, and their tensors."""

from __future__ import annotations

import functools
import inspect
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.backend import current as backend
from keras_trellis.core import checks, masks
from keras_trellis.core.convolution import time_steps
from keras_trellis.core.network import receptive_field
from keras_trellis.types import Number, State, Tensor


def check_shape(layer: Any, shape: Sequence[int | None]) -> None:
    """Refuses sequences that a layer cannot be built for."""
    if len(shape) != 3 or shape[-1] is None:
        raise ValueError(
            "`sequences` must be of shape [B, T, p] with p known. "
            f"Received: sequences of shape {tuple(shape)}"
        )
    if layer.stateful and shape[0] is None:
        raise ValueError(
            "With `stateful=True` the batch size must be static, as for keras.layers.LSTM. "
            f"Received: sequences of shape {tuple(shape)}"
        )


def check_not_stateful(layer: Any) -> None:
    """Refuses a layer that is `stateful` where it cannot be."""
    if layer.stateful:
        raise ValueError(
            "`stateful` must be False: `stream` continues sequences. Received: stateful=True"
        )


def check_symbols(layer: Any, sequences: Any, initial_state: Any) -> None:
    """Refuses the symbolic tensors of a functional model that a call would refuse."""
    checks.check_real("sequences", sequences.dtype, layer.compute_dtype)
    flat = keras.tree.flatten(initial_state)
    states = [tensor for tensor in flat if tensor is not None]
    for tensor in states:
        checks.check_real("initial_state", tensor.dtype, layer.compute_dtype)
    if not layer.built:
        return
    shape = tuple(sequences.shape)
    check_sequences(layer, shape)
    check_rows(layer, shape)
    if states:
        shapes = [tensor.shape for tensor in states]
        check_state(shapes, layer.state_units, shape[0])


def check_sequences(layer: Any, shape: Sequence[int | None] | None) -> None:
    """Refuses sequences of another shape than a layer was built for."""
    if shape is None or not checks.compatible(shape, (None, None, layer.input_units)):
        raise ValueError(
            f"`sequences` must be of shape [B, T, {layer.input_units}]. "
            f"Received: sequences of shape {shape}"
        )


def check_rows(layer: Any, shape: Sequence[int | None]) -> None:
    """Refuses a batch of another size than the one that a stateful layer continues."""
    if not layer.stateful:
        return
    rows = layer.states[0].shape[0]
    if shape[0] not in (None, rows):
        raise ValueError(
            f"`sequences` must be of shape [{rows}, T, p], since with `stateful=True` each batch "
            f"continues the one before it. Received: sequences of shape {tuple(shape)}"
        )


def check_state(
    shapes: Sequence[Sequence[int | None] | None],
    state_units: Sequence[int],
    batch_size: int | None,
) -> None:
    """Refuses states of other shapes than `[B, units]`, or `[1, units]` for all rows.

    Args:
        shapes: the shapes of the states; None: the rank is unknown.
        state_units: the number of channels that each must have.
        batch_size: B, if it is known.
    """
    expected = [[batch_size, units] for units in state_units]
    received = [None if shape is None else [*shape] for shape in shapes]
    if len(received) != len(expected) or not all(map(_fits, received, expected)):
        raise ValueError(
            f"`initial_state` must be {len(expected)} tensor(s) of the shapes {expected}. "
            f"Received: initial_state of shapes {received}"
        )


def _fits(shape: list[int | None] | None, expected: list[int | None]) -> bool:
    if shape is None:
        return False
    one_for_all = [1, expected[1]]  # as for an LSTM
    return checks.compatible(shape, expected) or shape == one_for_all


def check_options(
    layer: Any, depth: int | None, auxiliary_every: int | None, discard: int
) -> None:
    """Refuses what a call cannot return."""
    if not layer.return_sequences and (auxiliary_every is not None or discard):
        raise ValueError(
            "`auxiliary_every` and `discard` need `return_sequences=True`. Received: "
            f"auxiliary_every={auxiliary_every!r}, discard={discard!r}"
        )
    if layer.stateful and auxiliary_every is not None:
        raise arguments.refusal(
            "auxiliary_every", auxiliary_every, "None with `stateful=True`"
        )
    if layer.stateful and depth is not None:
        raise arguments.refusal(
            "depth", depth, "None with `stateful=True`, whose cache has all levels"
        )


def check_cache(cache: Any, expected: Any) -> None:
    """Refuses a cache that is no nest of tensors of the expected shapes."""
    wanted = [tuple(tensor.shape) for tensor in keras.tree.flatten(expected)]
    shapes = [getattr(tensor, "shape", None) for tensor in keras.tree.flatten(cache)]
    fits = isinstance(cache, type(expected)) and len(shapes) == len(wanted)
    if fits:
        fits = None not in shapes and all(map(checks.compatible, shapes, wanted))
    if not fits:
        raise ValueError(
            f"`cache` must be what `get_initial_cache` or `stream` returns, of shapes {wanted}. "
            f"Received: {type(cache).__name__} of shapes {shapes}"
        )


def count_outputs(sequences: Tensor, discard: int) -> Number | None:
    """Returns how many of the last outputs a call returns; None for all."""
    left_out = arguments.discard(discard, sequences.shape[1])
    if left_out:
        return time_steps(sequences) - left_out
    return None


def warn_inexact_state(layer: Any, sequences: Tensor) -> None:
    """Warns once for each layer whose inexact state is handed on step by step, as an LSTM's."""
    if not layer.warns_of_state or layer.state_is_exact or sequences.shape[1] != 1:
        return
    layer.warns_of_state = False
    kind = type(layer).__name__
    warnings.warn(
        f"{layer.name!r} was called on one time step with an `initial_state`. The state of this "
        f"{kind} is not all of its past: outputs computed step by step from returned states are "
        "not those of one pass over the sequence, and may be useless. Continue from a cache, "
        "which is exact:\n"
        "    cache = layer.get_initial_cache(batch_size, initial_state=states)\n"
        "    outputs, cache = layer.stream(step, cache)  # for each step, [batch_size, 1, p]",
        UserWarning,
        stacklevel=_caller_level(inspect.currentframe()),
    )


def warn_unseen_steps(
    layer: Any, sequences: Tensor, num_outputs: Number | None, training: bool
) -> None:
    """Warns once for each layer of levels whose one answer does not see all time steps.

    A layer that was trained on series that it sees may read longer ones in silence.
    """
    steps = sequences.shape[1]
    if not isinstance(steps, int):  # it is None, or the symbol of an export
        return
    if num_outputs != 1 or layer.return_sequences or not layer.warns_unseen_steps:
        return
    sees_all = steps <= layer.receptive_field
    if sees_all and training:
        layer.trained_on_seen_steps = True
    if sees_all or (layer.trained_on_seen_steps and not training):
        return
    layer.warns_unseen_steps = False
    dilations = _far_dilations(layer, steps)
    taps = f"kernel_size={layer.kernel_size}, " if layer.kernel_size != 2 else ""
    warnings.warn(
        f"The output of {layer.name!r} sees {layer.receptive_field} of {steps} time steps: what "
        f"the others hold does not change it. It sees all of them with `depth=keras_trellis."
        f"depth_for({steps}, {taps}dilation_rate={dilations}), dilation_rate={dilations}`. "
        f"Received: depth={layer.depth}, dilation_rate={[*layer.dilation_rate]}",
        UserWarning,
        stacklevel=_caller_level(inspect.currentframe()),
    )


def with_used_dilations(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a layer's config without the dilations that none of its levels uses; warns of them.

    Up to 0.2 a layer took them.
    """
    cycle, depth = config.get("dilation_rate"), config.get("depth")
    if not isinstance(cycle, (list, tuple)) or not isinstance(depth, int):
        return dict(config)
    if not 0 < depth < len(cycle):
        return dict(config)
    used = cycle[:depth]
    warnings.warn(
        f"A saved layer has more entries of `dilation_rate` than levels. It is loaded with those "
        f"that its levels use, {[*used]}, and computes what it did. A new layer refuses the "
        f"others. Received: dilation_rate={[*cycle]}, depth={depth}",
        UserWarning,
        stacklevel=_caller_level(inspect.currentframe()),
    )
    return {**config, "dilation_rate": used}


def _far_dilations(layer: Any, steps: int) -> list[int]:
    """Returns dilations that see all steps in few levels, each step by one path.

    Groups keep theirs: with others they would be no stack of recurrent layers.
    """
    if layer.groups > 1:
        return [*layer.dilation_rate]
    dilations, factor = [1], max(layer.kernel_size, 2)
    reach = functools.partial(receptive_field, kernel_size=layer.kernel_size)
    while reach(len(dilations), dilation_rate=dilations) < steps:
        dilations.append(factor * dilations[-1])
    return dilations


def _caller_level(frame: Any) -> int:
    """Returns the `stacklevel`, seen from a frame, of the first one outside of these packages."""
    for level, (caller, _) in enumerate(traceback.walk_stack(frame), start=1):
        package, *_ = caller.f_globals.get("__name__", "").split(".")
        if package not in ("keras_trellis", "keras", "tensorflow", "jax", "torch"):
            return level
    return 1


def dense_sequences(layer: Any, sequences: Any, mask: Any) -> tuple[Any, Any]:
    """Pads ragged sequences; returns them and their mask."""
    ragged = backend.is_ragged(sequences)
    if ragged and layer.go_backwards and layer.return_sequences:
        raise ValueError(
            "`sequences` must be padded where they are read backwards with "
            "`return_sequences=True`, as in keras.layers.Bidirectional, which drops the "
            "lengths: what follows would read the padding. Write "
            "`layer(sequences.to_tensor(), mask=tf.sequence_mask(sequences.row_lengths()))`, "
            "or pad with zeros and put a keras.layers.Masking in front. "
            "Received: a RaggedTensor"
        )
    return masks.dense(sequences, mask)


def checked_tensors(
    layer: Any, sequences: Any, initial_state: Any, mask: Any
) -> tuple[Tensor, State | None, Tensor | None]:
    """Returns sequences and initial state in the compute dtype, and the mask `[B, T]`.

    It builds a layer that is not built yet.
    """
    if backend.is_ragged(sequences):
        raise ValueError(
            "`sequences` must be padded, `sequences.to_tensor()`, with the mask "
            "`tf.sequence_mask(sequences.row_lengths())`: only a call of a SequenceLayer takes "
            "ragged ones. Received: a RaggedTensor"
        )
    sequences = checks.real("sequences", sequences, layer.compute_dtype)
    shape = backend.static_shape(sequences)
    if not layer.built:
        layer.build(shape or ())
    check_sequences(layer, shape)
    if mask is not None:
        mask = fitting_mask(mask, sequences.shape[:2])
    if initial_state is not None:
        rows = ops.shape(sequences)[0]
        initial_state = _state(layer, initial_state, sequences.shape[0], rows)
    return sequences, initial_state, mask


def first_state(layer: Any, batch_size: Number, initial_state: Any) -> State:
    """Returns the state that a cache begins with, each `[B, units]`; zeros for None."""
    if layer.input_units is None:
        raise ValueError(
            "The layer must be built before its cache is known: call it once, or "
            "`layer.build([None, None, p])`."
        )
    if initial_state is None:
        return tuple(layer.get_initial_state(batch_size))
    known = backend.static_value(batch_size)
    return _state(layer, initial_state, known, batch_size)


def fitting_mask(mask: Any, shape: Sequence[int | None]) -> Tensor:
    """Returns a mask as booleans `[B, T]`; refuses one of another shape than the sequences."""
    valid = masks.flat(mask)
    received = backend.static_shape(valid)
    if received is None or not checks.compatible(received, shape):
        raise ValueError(
            f"`mask` must be of shape {[*shape]}, as the sequences. "
            f"Received: mask of shape {received}"
        )
    return valid


def _state(
    layer: Any, initial_state: Any, batch_size: int | None, rows: Number
) -> State:
    """Returns the initial state in the compute dtype, each `[B, units]`.

    Args:
        layer: the layer.
        initial_state: the states; one row stands for all.
        batch_size: B, if it is known.
        rows: B.
    """
    if not isinstance(initial_state, (list, tuple)):
        initial_state = [initial_state]
    dtype = layer.compute_dtype
    states = [checks.real("initial_state", state, dtype) for state in initial_state]
    shapes = [*map(backend.static_shape, states)]
    check_state(shapes, layer.state_units, batch_size)
    for place, state in enumerate(states):
        if state.shape[0] == 1:
            states[place] = ops.broadcast_to(state, [rows, state.shape[1]])
    return tuple(states)
