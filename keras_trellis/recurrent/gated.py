"""The gated recurrent layers: `keras.layers.RNN` with a fast loop."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.arguments import FullSignature, constructor
from keras_trellis.backend import current as backend
from keras_trellis.core import masks, no_steps
from keras_trellis.core.convolution import masked, pad_left, swapped, zero_rows
from keras_trellis.core.dropout import stream_mask
from keras_trellis.core.recurrence import Recurrent
from keras_trellis.layers import past
from keras_trellis.layers.inputs import (
    check_rows,
    check_state,
    check_symbols,
    checked_tensors,
    first_state,
)
from keras_trellis.recurrent import cells, linear
from keras_trellis.recurrent.cell import GatedCell
from keras_trellis.recurrent.loops import recur
from keras_trellis.recurrent.steps import skipping
from keras_trellis.types import Number, State, Tensor

_registered = keras.saving.register_keras_serializable("keras_trellis")
_LAYER_ARGUMENTS = ("name", "dtype", "trainable")


def cell_argument(name: str, is_rate: bool = False) -> Any:
    """Returns an argument of the cell as an attribute of its layer.

    Args:
        name: the argument's.
        is_rate: whether it is a rate of dropout, which may be set at any time.
    """

    def assign(layer: GatedRNN, value: Any) -> None:
        setattr(layer.cell, name, value)

    return property(operator.attrgetter(f"cell.{name}"), assign if is_rate else None)


class GatedRNN(keras.layers.RNN):
    """A gated recurrent layer, used as `keras.layers.LSTM` is.

    Its arguments are those of its cell and these of `keras.layers.RNN`; unlike there,
    all but `units` are keyword arguments. Arguments of a `keras.layers.LSTM` that say what the
    layer does anyway, such as `recurrent_activation="sigmoid"`, are taken and change nothing.

    `stream` goes on from a cache, as for every sequence layer of this package. The cache is
    the state, with the last output at its end where that is no state.

    The rates of dropout may be set at any time, as `layer.dropout = 0.2`.

    Args:
        units: n, the number of channels of the output.
        return_sequences: whether the outputs of all steps are returned, `[B, T, units]`.
        return_state: whether the states after the last step are returned too.
        go_backwards: whether the sequences are read from their end.
        stateful: whether a batch goes on from the states of the batch before.
        unroll: whether the graph has no loop at inference. The number of steps must be
            known. LiteRT needs it, unless there is one step.
        zero_output_for_mask: whether masked steps have zeros as outputs.
        activity_regularizer: of the outputs.
        name: the name of the layer.
        dtype: its dtype policy.
        trainable: whether its variables are trained.
        **kwargs: the arguments of the cell; see `GatedCell`.

    Raises:
        ValueError: an argument is not what it must be.
    """

    __signature__ = FullSignature()
    _instead: ClassVar[dict[str, str]] = arguments.NO_CHOICE_HINTS
    cell_class: ClassVar[type[GatedCell]]
    recompute = False

    dropout = cell_argument("dropout", is_rate=True)
    recurrent_dropout = cell_argument("recurrent_dropout", is_rate=True)
    recurrent_weight_dropout = cell_argument("recurrent_weight_dropout", is_rate=True)
    seed = cell_argument("seed")
    variant = cell_argument("variant")

    @constructor
    def __init__(
        self,
        units: int,
        *,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        activity_regularizer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            self.cell_class(
                units, dtype=dtype, trainable=trainable, name="cell", **kwargs
            ),
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            zero_output_for_mask=zero_output_for_mask,
            activity_regularizer=activity_regularizer,
            name=name,
            dtype=dtype,
            trainable=trainable,
        )
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.supports_masking = True  # also where Keras's `RNN` does not say so

    @property
    def units(self) -> int:
        """The number of channels of the output."""
        return self.cell.units

    @property
    def output_units(self) -> int:
        """The number of channels of the output."""
        return self.units

    @property
    def input_units(self) -> int | None:
        """The number of input channels, p; None before the layer is built."""
        return self.cell.input_units

    @property
    def use_bias(self) -> bool:
        """Whether the cell has a bias of its gates; a form of a cell has one or none."""
        return "bias" in self.cell.variables_for(self.units)

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each state."""
        return tuple(self.cell.state_size)

    @property
    def _implied(self) -> dict[str, tuple]:
        return self.cell._implied

    @property
    def receptive_field(self) -> None:
        """None: an output depends on all inputs up to its step."""

    @property
    def variables(self) -> list[Any]:
        """All variables; on JAX and torch the states of a `stateful` layer too.

        They are not among the `weights`. A trainer on JAX hands on what it finds here.
        """
        if backend.NAME == "tensorflow" or self.states is None:
            return super().variables
        return [*super().variables, *self.states]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        cell_config = self.cell.get_config()
        for name in _LAYER_ARGUMENTS:
            del cell_config[name]
        del config["cell"]
        activity = keras.regularizers.serialize(self.activity_regularizer)
        return config | cell_config | {"activity_regularizer": activity}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> GatedRNN:
        """Makes a layer of its config."""
        return cls(**config)

    def build(
        self, sequences_shape: Sequence[int | None], initial_state_shape: Any = None
    ) -> None:
        """Creates the variables for sequences of shape `[B, T, p]`."""
        inputs = sequences_shape[-1]
        if initial_state_shape is not None and inputs is not None:
            sizes = self.cell.state_size_for(inputs)
            check_state(_listed(initial_state_shape), sizes, sequences_shape[0])
        super().build(sequences_shape)
        self.state_size = self.cell.state_size

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> Any:
        """Runs the layer, as `keras.layers.LSTM` does.

        Args:
            sequences: `[B, T, p]`, of any real numbers; without a step the states stay.
            initial_state: the states, each `[B, channels]`, or `[1, channels]` for all rows; None
                for zeros, or with `stateful` for those after the last call.
            mask: bool `[B, T]`, true at the valid steps. A masked step is skipped.
            training: whether anything is dropped. On TensorFlow a gradient of a gradient needs
                False.

        Returns:
            the outputs `[B, T, units]`, or `[B, units]` of the last step without
            `return_sequences`; with `return_state` a tuple of them and of the states.

        Raises:
            ValueError: an argument does not fit the layer or the sequences.
        """
        sequences, given, mask = _checked(self, sequences, initial_state, mask)
        state = self._first_state(sequences) if given is None else given

        def run(sequences: Tensor, state: State, mask: Any) -> Any:
            return self._loop(sequences, state, mask, training)

        outputs, after = no_steps.run(run, sequences, state, mask)
        if self.stateful:
            for variable, value in zip(self.states, after, strict=True):
                variable.assign(value)
        if not self.return_sequences:  # zeros where there is no step
            nothing = zero_rows(outputs, self.units)
            (outputs,) = masks.last_valid((outputs,), None, (nothing,))
        return (outputs, *after) if self.return_state else outputs

    def compute_output_spec(
        self,
        sequences: keras.KerasTensor,
        initial_state: Any = None,
        mask: Any = None,
        training: bool = False,
    ) -> Any:
        """Returns the symbolic results of `call` in a functional model."""
        check_symbols(self, sequences, initial_state)
        return super().compute_output_spec(sequences, initial_state, mask, training)

    def reset_state(self) -> None:
        """Lets a stateful layer begin anew, from what `get_initial_state` returns."""
        if self.states is None:
            return
        begun = self.get_initial_state(self.states[0].shape[0])
        for variable, value in zip(self.states, begun, strict=True):
            variable.assign(value)

    def _first_state(self, sequences: Tensor) -> State:
        """Returns the state that a call begins from which is given none, each `[B, channels]`."""
        if self.stateful:
            # A copy: torch assigns in place, under a gradient that needs the value.
            state = [ops.copy(variable) for variable in self.states]
        else:
            state = self.get_initial_state(ops.shape(sequences)[0])
        return tuple(ops.cast(tensor, self.compute_dtype) for tensor in state)

    def inner_loop(
        self,
        sequences: Tensor,
        initial_state: Sequence[Tensor],
        mask: Any,
        training: bool = False,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Returns the last output, all outputs and the last states, of one step or more."""
        outputs, after = self._loop(sequences, initial_state, mask, training)
        return outputs[:, -1], outputs, list(after)

    def _loop(
        self, sequences: Tensor, state: Sequence[Tensor], mask: Any, training: bool
    ) -> tuple[Tensor, State]:
        """Returns all outputs and the last states, of one step or more."""
        seed = self.cell.call_seed(training)
        sequences, valid = _in_order(self, sequences, mask, seed)
        outputs, after = self._steps(
            sequences, tuple(state), valid, seed, bool(training)
        )
        if valid is not None and self.zero_output_for_mask:
            outputs = masks.zero_masked(outputs, valid)
        return outputs, after

    def get_initial_cache(
        self, batch_size: Number, initial_state: Sequence[Tensor] | None = None
    ) -> State:
        """Returns the cache before the first time step.

        Args:
            batch_size: B.
            initial_state: the states to begin from, such as an encoder's: each `[B, channels]`,
                or `[1, channels]` for all rows; None for zeros. From their cache `stream`
                computes what one call with this `initial_state` does.

        Raises:
            ValueError: the layer is not built, or the states do not fit it.
        """
        state = first_state(self, batch_size, initial_state)
        return past.begin(state, self.cell, self.units)

    def stream(
        self, sequences: Tensor, cache: State, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Continues sequences whose past is in `cache`; chunks equal one long pass.

        `stream` with one step is the step. It reads forwards and returns all outputs,
        whatever the arguments of the layer are.

        Args:
            sequences: the next steps, `[B, n, p]`.
            cache: the result of the last call, or `get_initial_cache(B)`.
            mask: bool `[B, n]`; a masked step leaves the cache of its row unchanged and
                repeats the output before it. The first one repeats the output in the cache.

        Returns:
            outputs `[B, n, units]` and the new cache.
        """
        sequences, _, mask = checked_tensors(self, sequences, None, mask)
        return past.stream(self, self.cell, self._steps, sequences, cache, mask)

    def _steps(
        self,
        sequences: Tensor,
        state: State,
        valid: Tensor | None,
        seed: Any = None,
        training: bool = False,
    ) -> tuple[Tensor, State]:
        """Returns all outputs `[B, T, units]` and the last states."""
        cell = self.cell
        shape = ops.shape(state[0])
        rate = cell.recurrent_dropout
        state_mask = stream_mask(seed, "states", rate, shape, sequences.dtype)
        before = None
        last_input: State = ()
        if cell.keeps_input:
            filled = _last_inputs(sequences, valid, state[0])
            first, *others = state
            before = pad_left(first[:, None], filled[:, :-1])
            before = swapped(masked(before, _over_steps(state_mask)))
            last_input = (filled[:, -1],)
            state = tuple(others)
        weights = cell.call_weights(seed)
        recurrent = cell.recurrent(weights)._replace(mask=state_mask)
        now = cell.project(weights, swapped(sequences), before)
        outputs, after = self._run(recurrent, now, valid, state, training)
        return swapped(outputs), (*last_input, *after)

    def _run(
        self,
        recurrent: Recurrent,
        now: State,
        valid: Tensor | None,
        state: State,
        training: bool,
    ) -> tuple[Tensor, State]:
        """Returns the outputs `[T, B, units]` and the last state; skips what is not valid."""
        step = self.cell.step
        steps = now[0].shape[0]
        if linear.is_solved(step, steps, training=training, unroll=self.unroll):
            return linear.run(now, valid, state, training=training)
        if valid is not None:
            step = skipping(step)
            now = (*now, ops.expand_dims(swapped(valid), -1))
            state = (zero_rows(state[0], self.units), *state)
        outputs, after = recur(
            step,
            recurrent,
            now,
            state,
            self.units,
            training=training,
            unroll=self.unroll,
            recompute=self.recompute,
        )
        return outputs, after if valid is None else after[1:]


def _checked(
    layer: GatedRNN, sequences: Any, initial_state: Any, mask: Any
) -> tuple[Tensor, State | None, Tensor | None]:
    """Returns what `checked_tensors` does, once all fits the layer's arguments too."""
    if initial_state is not None:
        initial_state = keras.tree.flatten(initial_state)
    if mask is not None:
        mask = keras.tree.flatten(mask)[0]
    tensors = checked_tensors(layer, sequences, initial_state, mask)
    shape = tensors[0].shape
    check_rows(layer, shape)
    # Neither None nor a size that JAX does not know as it exports is an index.
    if layer.unroll and not hasattr(shape[1], "__index__"):
        raise ValueError(
            "`sequences` must have a known number of steps with `unroll=True`. "
            f"Received: sequences of shape {tuple(shape)}"
        )
    return tensors


def _listed(shapes: Any) -> Sequence[Any]:
    """Returns the shapes of states; that of a single one may stand alone."""
    if shapes and hasattr(shapes[0], "__len__"):
        return shapes
    return [shapes]


def _in_order(
    layer: GatedRNN, sequences: Tensor, mask: Any, seed: Any
) -> tuple[Tensor, Tensor | None]:
    """Returns sequences in the order of reading, dropped out, and their mask."""
    valid = keras.tree.flatten(mask)[0] if mask is not None else None
    shape = [ops.shape(sequences)[0], sequences.shape[-1]]
    dropped = stream_mask(seed, "inputs", layer.cell.dropout, shape, sequences.dtype)
    if valid is not None:
        valid = masks.flat(valid)
        # Before the mask of dropout, under which NaN would stay NaN.
        sequences = masks.zero_masked(sequences, valid)
    sequences = masked(sequences, _over_steps(dropped))
    if not layer.go_backwards:
        return sequences, valid
    if valid is not None:
        valid = ops.flip(valid, axis=1)
    return ops.flip(sequences, axis=1), valid


def _over_steps(mask: Tensor | None) -> Tensor | None:
    """Returns a mask `[B, C]` for sequences `[B, T, C]`."""
    if mask is None:
        return None
    return ops.expand_dims(mask, 1)


def _last_inputs(sequences: Tensor, valid: Tensor | None, first: Tensor) -> Tensor:
    """Returns the last valid input up to and including each step, `[B, T, p]`."""
    plan = masks.packing(valid)
    return masks.unpack(masks.pack(sequences, plan), plan, first)


@_registered
class IRCGRU(GatedRNN):
    """The GRU with an input residual connection, a third smaller than a GRU.

        v = x + alpha * (U_V h'),  z, r = sig(W v),  a = W_A x
        h = z * h' + (1 - z) * (r * a)

    Equations (14) to (17) of Kuo et al. 2020, with z = 1 - i. It has no biases. The
    released form adds one to z, initially 1.

    Input shape:
        `[B, T, p]`. `initial_state` is h, `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import IRCGRU
        >>> layer = IRCGRU(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8,)
    """

    cell_class = cells.IRCGRUCell


@_registered
class WeightDropLSTM(GatedRNN):
    """`keras.layers.LSTM` with DropConnect, `recurrent_weight_dropout`; its states are h and c.

        f, i, o = sig(W x + U h' + b),  a = tanh(W_A x + U_A h' + b_A)
        c = f * c' + i * a,  h = o * tanh(c)

    Equations (18) to (21) of Kuo et al. 2020; the DropConnect is that of Merity et al. 2018,
    "Regularizing and optimizing LSTM language models". Kernels and biases have Keras's order, so
    that `set_weights` takes those of a `keras.layers.LSTM`. The bias of f begins at 1, in the
    released form at 0.

    Input shape:
        `[B, T, p]`. `initial_state` is h and c, each `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h and c.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import WeightDropLSTM
        >>> layer = WeightDropLSTM(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8, 8)
    """

    cell_class = cells.WeightDropLSTMCell


@_registered
class IRCLSTM(GatedRNN):
    """The LSTM with an input residual connection; its states are h and c.

        v = x + alpha * (U_V h'),  f, i, o = sig(W v),  a = W_A x
        c = f * c' + i * a,  h = o * tanh(c)

    Equations (22) to (26) of Kuo et al. 2020. It has no biases. There is no released
    form.

    Input shape:
        `[B, T, p]`. `initial_state` is h and c, each `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h and c.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import IRCLSTM
        >>> layer = IRCLSTM(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8, 8)
    """

    cell_class = cells.IRCLSTMCell


@_registered
class IHCLSTM(GatedRNN):
    """The LSTM with an input highway connection; its states are h and c.

        g = sig(W_G x + Gamma h' + b_G),  v = (1 - g) * x + g * (U_V h')

    The rest is the `IRCLSTM`. Equations (52) and (53) of Kuo et al. 2020. The released
    form has g = sig(Gamma h') and a bias of f, initially 1.

    It has one more argument, `projected`: whether Gamma reads U_V h' instead of h'. The
    paper prints the first, and counts the parameters of its DRAW model for the second.

    Input shape:
        `[B, T, p]`. `initial_state` is h and c, each `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h and c.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import IHCLSTM
        >>> layer = IHCLSTM(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8, 8)
    """

    cell_class = cells.IHCLSTMCell
    projected = cell_argument("projected")


@_registered
class SRU(GatedRNN):
    """The simple recurrent unit; its state is c.

        f, q = sig(W x + omega * c' + b),  a = W_A x
        c = f * c' + (1 - f) * a,  h = q * c + (1 - q) * x

    Equations (27) to (30) of Kuo et al. 2020. No matrix reads the state. In the released
    form a has a bias too, and biases begin at 1 for f and at -1 for q. The input must have
    `units` channels.

    Input shape:
        `[B, T, units]`. `initial_state` is c, `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then c.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import SRU
        >>> layer = SRU(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 8], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8,)
    """

    cell_class = cells.SRUCell


@_registered
class IRCSRU(GatedRNN):
    """The SRU with an input residual connection; its states are h and c.

        v = x + alpha * (tanh(omega_V) * h'),  f, q = sig(W v),  a = W_A x

    The rest is the `SRU`. Equations (31) to (35) of Kuo et al. 2020. The released form has
    biases of f and q, initially 1 and -1. The input must have `units` channels.

    Input shape:
        `[B, T, units]`. `initial_state` is h and c, each `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h and c.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import IRCSRU
        >>> layer = IRCSRU(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 8], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8, 8)
    """

    cell_class = cells.IRCSRUCell


@_registered
class TLSTM(GatedRNN):
    """The strongly typed LSTM; its states are the last input and c.

        f, o = sig(W x + U x_{t-1} + b),  a = W_A x + U_A x_{t-1} + b_A
        c = f * c' + (1 - f) * a,  h = o * c

    Equations (36) to (39) of Kuo et al. 2020. No gate reads a state. There is no released
    form. `recurrent_dropout` drops channels of x_{t-1}.

    The first state is an input, not an output: the states h and c of an LSTM are wrong here. Where
    p = units their shapes fit, and nothing refuses them.

    Input shape:
        `[B, T, p]`. `initial_state` is x and c, `[B, p]` for x and `[B, units]` for c; `mask` is
        bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then x and c.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import TLSTM
        >>> layer = TLSTM(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (3, 8)
    """

    cell_class = cells.TLSTMCell


@_registered
class IRCTLSTM(GatedRNN):
    """The T-LSTM with an input residual connection; its states are h and c.

        v = x + alpha * (tanh(omega_V) * h'),  f, o = sig(W v),  a = W_A x

    The rest is the `TLSTM`. Equations (40) to (44) of Kuo et al. 2020. The released form is
    another network: it reads the last input in the place of h', which is its first state,
    and f has a bias, initially 1. The input must have `units` channels, so that the states h and c
    of an LSTM have the right shapes, and are wrong in the released form.

    Input shape:
        `[B, T, units]`. `initial_state` is h and c, each `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h and c.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import IRCTLSTM
        >>> layer = IRCTLSTM(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 8], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8, 8)
    """

    cell_class = cells.IRCTLSTMCell


@_registered
class FastGRNN(GatedRNN):
    """The FastGRNN, with two trained scalars.

        f = sig(W_F x + U_F h' + b_F),  a = tanh(W_A x + U_A h' + b_A)
        h = f * h' + (beta (1 - f) + kappa) * a

    Equations (45) to (47) of Kuo et al. 2020. Gate and candidate share no weights. In the
    released form the bias of f begins at 1.

    It has one more argument, `scaled`: False means beta = 1 and kappa = 0, as the released
    code has above its first layer.

    Input shape:
        `[B, T, p]`. `initial_state` is h, `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import FastGRNN
        >>> layer = FastGRNN(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8,)
    """

    cell_class = cells.FastGRNNCell
    scaled = cell_argument("scaled")


@_registered
class IRCFastGRNN(GatedRNN):
    """The FastGRNN with an input residual connection.

        v = x + alpha * (U_V h'),  f = sig(W_F v),  a = W_A x
        h = f * h' + beta (1 - f) * a

    Equations (48) to (51) of Kuo et al. 2020. In the released form beta is a vector
    `[units]`, and f has a bias, initially 1.

    Input shape:
        `[B, T, p]`. `initial_state` is h, `[B, units]`; `mask` is bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.recurrent import IRCFastGRNN
        >>> layer = IRCFastGRNN(8, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (8,)
    """

    cell_class = cells.IRCFastGRNNCell
