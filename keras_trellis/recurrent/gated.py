"""The gated recurrent layers: a cell, and a fast loop over it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.arguments import constructor
from keras_trellis.backend import current as backend
from keras_trellis.core import kernels, masks
from keras_trellis.core.convolution import (
    at_least_float32,
    last_steps,
    masked,
    pad_left,
    swapped,
    where,
    zero_rows,
)
from keras_trellis.core.dropout import stream_mask
from keras_trellis.core.recurrence import Recurrent, Step, run_any_steps
from keras_trellis.layers.hooks import Pass
from keras_trellis.layers.networks import recur
from keras_trellis.layers.past import CellLayer
from keras_trellis.layers.sequence import ARGUMENTS
from keras_trellis.recurrent import cells
from keras_trellis.recurrent.cell import RENAMED, GatedCell
from keras_trellis.recurrent.steps import skipping, t_lstm
from keras_trellis.types import Number, State, Tensor

if TYPE_CHECKING or backend.NAME == "tensorflow":
    from keras_trellis.engine.linear_recurrence import solve

_registered = keras.saving.register_keras_serializable("keras_trellis")
# Arguments of the layer alone, and of its cell too; all others are the cell's.
_OUTER = {*ARGUMENTS, "name", "activity_regularizer"} - {"seed"}
_SHARED = ("dtype", "trainable", "seed")


def cell_argument(name: str, is_rate: bool = False) -> Any:
    """Returns an argument of the cell as an attribute of its layer.

    Args:
        name: the argument's.
        is_rate: whether it is a rate of dropout, which may be set at any time.
    """

    def assign(layer: GatedRNN, value: Any) -> None:
        setattr(layer.cell, name, value)

    return property(operator.attrgetter(f"cell.{name}"), assign if is_rate else None)


class GatedRNN(CellLayer):
    """A gated recurrent layer, used as `keras.layers.LSTM` is.

    All arguments but `units` are keyword arguments. Those of a `keras.layers.LSTM` that say what
    the layer does anyway, such as `recurrent_activation="sigmoid"`, are taken and change nothing.

    The state is all that the layer needs of its past. So cache and state are one thing; only where
    the output is no state has the cache the last output too, at its end.

    The rates of dropout may be set at any time, as `layer.dropout = 0.2`. On TensorFlow a gradient
    of a gradient needs `training=False`.

    Args:
        units: n, the number of channels of the output.
        unroll: whether the graph has no loop at inference. The number of steps must be
            known. LiteRT needs it, unless there is one step.
        return_sequences: whether to return the output of every step or of the last one.
        return_state: whether to return the states too, those after the last valid step.
        stateful: whether a batch goes on, exactly, where the one before it stopped. Needs a
            static batch size.
        go_backwards: whether to process the sequence backwards and return it reversed.
        zero_output_for_mask: whether the output at a masked step is zero.
        seed: the seed of the dropout masks.
        name: the name of the layer.
        dtype: its dtype policy.
        trainable: whether its variables are trained.
        activity_regularizer: of the outputs.
        **kwargs: the arguments of the cell; see `GatedCell`.

    Raises:
        ValueError: an argument is not what it must be.
    """

    _instead: ClassVar[dict[str, str]] = arguments.NO_CHOICE_HINTS
    _renamed: ClassVar[dict[str, str]] = RENAMED
    cell_class: ClassVar[type[GatedCell]]
    recompute = False

    dropout = cell_argument("dropout", is_rate=True)
    recurrent_dropout = cell_argument("recurrent_dropout", is_rate=True)
    weight_dropout = cell_argument("weight_dropout", is_rate=True)
    units = cell_argument("units")
    variant = cell_argument("variant")
    recurrent_activation = staticmethod(keras.activations.sigmoid)
    use_bias = cell_argument("use_bias")
    unit_forget_bias = cell_argument("unit_forget_bias")

    @constructor
    def __init__(self, units: int, *, unroll: bool = False, **kwargs: Any) -> None:
        own = {name: kwargs.pop(name) for name in _OUTER & kwargs.keys()}
        shared = {name: kwargs[name] for name in _SHARED if name in kwargs}
        super().__init__(**own, **shared)
        self.unroll = bool(unroll)
        self.cell = self.cell_class(units, name="cell", **kwargs)
        self.output_units = self.cell.units

    @property
    def activation(self) -> Callable[[Tensor], Tensor]:
        """What an LSTM has tanh for: tanh, or the identity."""
        return keras.activations.get(self.cell.activation)

    @property
    def output_cell(self) -> GatedCell:
        """The cell of the layer."""
        return self.cell

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each state."""
        return tuple(self.cell.state_size)

    @property
    def _implied(self) -> dict[str, tuple]:
        return self.cell._implied

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        return self.cell.get_config() | config | {"unroll": self.unroll}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> GatedRNN:
        """Makes a layer of its config, also of one with former names."""
        return super().from_config(arguments.renamed(cls, config))

    def add_variables(self, inputs: int) -> None:
        """Creates the variables of the cell for p = `inputs` channels."""
        self.cell.build((None, inputs))

    def get_initial_state(self, batch_size: Number) -> list[Tensor]:
        """Returns the state of no history, that of the cell: zeros `[B, channels]`."""
        return self.cell.get_initial_state(batch_size)

    def run(self, sequences: Tensor, request: Pass) -> tuple[Tensor, State, None]:
        """Runs whole sequences; see `SequenceHooks.run`."""
        # Never None: this layer has an initial state of its own.
        state: Any = request.initial_state
        mask = request.mask
        if mask is not None:
            # Before the mask of dropout, under which NaN would stay NaN.
            sequences = masks.zero_masked(sequences, mask)
        run = functools.partial(self.run_steps, training=bool(request.training))
        outputs, after = run_any_steps(run, sequences, state, mask)
        return last_steps(outputs, request.num_outputs), after, None

    def run_steps(
        self, sequences: Tensor, state: State, valid: Tensor | None, *, training: bool
    ) -> tuple[Tensor, State]:
        """Runs the cell over time; see `CellLayer.run_steps`."""
        # Neither None nor a size that JAX does not know as it exports is an index.
        if self.unroll and not hasattr(sequences.shape[1], "__index__"):
            raise ValueError(
                "`sequences` must have a known number of steps with `unroll=True`. "
                f"Received: sequences of shape {tuple(sequences.shape)}"
            )
        cell = self.cell
        seed = cell.call_seed(training)
        dtype = sequences.dtype
        shape = [ops.shape(sequences)[0], sequences.shape[-1]]
        input_mask = stream_mask(seed, "inputs", cell.dropout, shape, dtype)
        sequences = masked(sequences, _over_steps(input_mask))
        state_shape = ops.shape(state[0])
        rate = cell.recurrent_dropout
        state_mask = stream_mask(seed, "states", rate, state_shape, dtype)
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
        if _is_solved(step, steps, training=training, unroll=self.unroll):
            return _solve(now, valid, state, training=training)
        if valid is not None:
            step = skipping(step)
            now = (*now, ops.expand_dims(swapped(valid), -1))
            state = (zero_rows(state[0], self.units), *state)
        outputs, after = recur(
            step,
            recurrent,
            now,
            state,
            units=self.units,
            training=training,
            unroll=self.unroll,
            recompute=self.recompute,
        )
        return outputs, after if valid is None else after[1:]


for _name in kernels.ARGUMENTS:
    setattr(GatedRNN, _name, cell_argument(_name))


def _over_steps(mask: Tensor | None) -> Tensor | None:
    """Returns a mask `[B, C]` for sequences `[B, T, C]`."""
    if mask is None:
        return None
    return ops.expand_dims(mask, 1)


def _last_inputs(sequences: Tensor, valid: Tensor | None, first: Tensor) -> Tensor:
    """Returns the last valid input up to and including each step, `[B, T, p]`."""
    plan = masks.packing(valid)
    return masks.unpack(masks.pack(sequences, plan), plan, first)


def _is_solved(step: Step, steps: int | None, *, training: bool, unroll: bool) -> bool:
    """Returns whether `_solve` computes a cell; otherwise a loop over its steps does.

    The state of `steps.t_lstm` is a first-order linear recurrence, c = f * c' + x with h = o * c.
    No gate reads it: so f, o and x are there for all steps before. Where a state enters its own
    gates, if only element by element as in the `SRU`, the recurrence is not linear.


    On JAX the loop is faster, and on torch for wide states and short sequences.

    Args:
        step: one step of the cell.
        steps: T, if it is known.
        training: whether it is a training step.
        unroll: whether there is no loop at inference.
    """
    if backend.NAME != "tensorflow" or step is not t_lstm:
        return False
    return training or not (unroll or steps == 1)


def _solve(
    now: State, valid: Tensor | None, state: State, *, training: bool
) -> tuple[Tensor, State]:
    """Runs a cell of `steps.t_lstm` over time.

    Args:
        now: f, o and x, each `[T, B, n]`.
        valid: bool `[B, T]`; at another step the state stays, and the output before it is
            repeated, at first zeros. None: all steps are valid.
        state: c before the first step, `[B, n]`.
        training: whether it is a training step.

    Returns:
        the outputs `[T, B, n]`, and c after the last step.
    """
    keep, read, written = now
    (cell,) = state
    if valid is not None:
        is_valid = ops.expand_dims(swapped(valid), -1)
        keep = where(is_valid, keep, 1)
        written = where(is_valid, written, 0)
    exact = map(at_least_float32, (keep, written, cell))
    cells = ops.cast(solve(*exact, training=training), cell.dtype)
    outputs = read * cells
    if valid is not None:
        plan = masks.packing(valid)
        outputs = swapped(masks.unpack(masks.pack(swapped(outputs), plan), plan))
    return outputs, (cells[-1],)


@_registered
class IRCGRU(GatedRNN):
    """The GRU with an input residual connection, a third smaller than a GRU.

        v = x + alpha * (U_V h'),  z, r = sig(W v),  a = W_A x
        h = z * h' + (1 - z) * (r * a)

    Equations (14) to (17) of Kuo et al. 2020, with z = 1 - i. It has no biases. The
    released form adds one to z, initially 1.

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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
    """`keras.layers.LSTM` with DropConnect, `weight_dropout`; its states are h and c.

        f, i, o = sig(W x + U h' + b),  a = tanh(W_A x + U_A h' + b_A)
        c = f * c' + i * a,  h = o * tanh(c)

    Equations (18) to (21) of Kuo et al. 2020; the DropConnect is that of Merity et al. 2018,
    "Regularizing and optimizing LSTM language models". Kernels and biases have Keras's order, so
    that `set_weights` takes those of a `keras.layers.LSTM`. The bias of f begins at 1, in the
    released form at 0.

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output.
        projected: whether Gamma reads U_V h' instead of h'. The paper prints the second, and counts
            the parameters of its DRAW model for the first.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output, and of the input.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output, and of the input.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output, and of the input.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output.
        scaled: False means beta = 1 and kappa = 0, as the released code has above its first layer.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedRNN` and of `GatedCell`.

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
