"""`EquilibriumTrellisLayer`: a trellis network of infinite depth.

All levels are one map with one set of weights. Where applying it again and again settles, the
state it settles in, z = f(z), is what a network without end would put out. It is found by
iteration, its gradient by the implicit function theorem, so that memory does not depend on how
many iterations that took.

Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
https://arxiv.org/abs/1909.01377.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.core import masks
from keras_trellis.core.convolution import pad_left
from keras_trellis.core.masks import Packing
from keras_trellis.engine import streaming
from keras_trellis.engine.level import HiddenKernel
from keras_trellis.engine.network import Addends, Network, Parameters, zeros
from keras_trellis.layer import TrellisLayer
from keras_trellis.types import Cache, State

# Every so many iterations the iterate is extrapolated from the last few; between, the map is
# applied plainly. The period must exceed the memory: the first iterate has none before it.
_PERIOD = 5
_MEMORY = 3
_RIDGE = 1e-6

_MEANINGLESS = ("depth", "recompute", "staggered")  # arguments of TrellisLayer

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Convergence(NamedTuple):
    """How far the iteration came.

    Attributes:
        residual: |f(z) - z| / |f(z)| over this step and all before it, [B, T], at the state z that
            was returned; in at least float32.
        iterations: how many times the map was applied until the step was solved, or at most,
            int32 [B, T].
        converged: whether it was solved within the bound, bool [B, T].
    """

    residual: tf.Tensor
    iterations: tf.Tensor
    converged: tf.Tensor


Map = Callable[[tf.Tensor], tf.Tensor]


# The solver


class _Loop(NamedTuple):
    """What goes from iteration to iteration.

    Attributes:
        iterate: z, [B, T, C].
        after: the last f(z).
        error: the last f(z) - z.
        after_changes: how f(z) changed from one iteration to the next, the newest first.
        error_changes: how f(z) - z changed.
        convergence: `converged` is true of the steps that are solved and stay as they are.
    """

    iterate: tf.Tensor
    after: tf.Tensor
    error: tf.Tensor
    after_changes: tuple[tf.Tensor, ...]
    error_changes: tuple[tf.Tensor, ...]
    convergence: Convergence


def solve(
    function: Map,
    guess: tf.Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    solved: tf.Tensor | None = None,
    reverse: bool = False,
) -> tuple[tf.Tensor, Convergence]:
    """Returns z with z = f(z), for a causal map f of sequences.

    Plain iteration, every fifth step an Anderson extrapolation instead (Anderson 1965;
    alternating the two: Banerjee, Suryanarayana, Pask 2016, "Periodic Pulay method"). The
    extrapolation's least squares and the residual are taken for each step over all steps up to it,
    and a step is left as it is once it and all before it are solved. So no step depends on a later
    one, no row on another, and a sequence's first steps are what they are alone.

    Args:
        function: f, [B, T, C] -> [B, T, C]; each step may depend on itself and those before it.
        guess: the first iterate.
        tolerance: the residual at which a step is solved; see `Convergence`.
        max_iterations: how many times f is applied at most.
        solved: bool [B, T], the steps that nothing is asked of; None for none.
        reverse: whether each step depends on itself and those *after* it.

    Returns:
        z [B, T, C], and how far it came.
    """

    def advance(count: tf.Tensor, loop: _Loop) -> tuple[tf.Tensor, _Loop]:
        after = tf.ensure_shape(function(loop.iterate), guess.shape)
        loop = _observe(loop, after, tolerance, reverse)
        following = tf.cond(
            tf.equal(count % _PERIOD, _PERIOD - 1),
            lambda: _extrapolate(loop, reverse),
            lambda: loop.after,
        )
        # The last iterate stays, so that what is returned is what the residual was taken of.
        stays = loop.convergence.converged | tf.equal(count, max_iterations - 1)
        iterate = tf.where(tf.expand_dims(stays, -1), loop.iterate, following)
        return count + 1, loop._replace(iterate=tf.ensure_shape(iterate, guess.shape))

    empty = tf.zeros_like(guess)
    shape = tf.shape(guess)[:2]
    begin = Convergence(
        residual=tf.zeros_like(_squares(guess)),
        iterations=tf.zeros(shape, tf.int32),
        converged=tf.zeros(shape, tf.bool) if solved is None else solved,
    )
    begin = Convergence(*(tf.ensure_shape(each, guess.shape[:2]) for each in begin))
    _, loop = tf.while_loop(
        lambda _, loop: tf.reduce_any(tf.logical_not(loop.convergence.converged)),
        advance,
        (tf.constant(0), _Loop(guess, empty, empty, (empty,) * _MEMORY, (empty,) * _MEMORY, begin)),
        maximum_iterations=max_iterations,
    )
    return loop.iterate, loop.convergence


def _observe(loop: _Loop, after: tf.Tensor, tolerance: float, reverse: bool) -> _Loop:
    """Takes down what one application of the map gave."""
    error = after - loop.iterate
    before = loop.convergence
    residual = _residual(error, after, reverse)
    unsolved = tf.logical_not(before.converged | (residual <= tolerance))
    solved = tf.equal(_running_sum(tf.cast(unsolved, tf.int32), reverse), 0)
    return _Loop(
        iterate=loop.iterate,
        after=after,
        error=error,
        after_changes=(after - loop.after, *loop.after_changes[:-1]),
        error_changes=(error - loop.error, *loop.error_changes[:-1]),
        convergence=Convergence(
            residual=tf.where(before.converged, before.residual, residual),
            iterations=before.iterations + tf.cast(tf.logical_not(before.converged), tf.int32),
            converged=before.converged | solved,
        ),
    )


def _extrapolate(loop: _Loop, reverse: bool) -> tf.Tensor:
    """Returns f(z) - sum_i w_i df_i with the weights w that minimise |e - sum_i w_i de_i|.

    Anderson's method without constraints (Walker and Ni 2011, section 2); e = f(z) - z, and d is
    the change from one iteration to the next.
    """

    def product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        products = _precise(left) * _precise(right)
        return _running_sum(tf.reduce_sum(products, axis=-1), reverse)

    columns = (*loop.error_changes, loop.error)
    gram = [[product(left, right) for right in columns] for left in loop.error_changes]
    weights = _solve_positive(tf.stack([tf.stack(row, axis=-1) for row in gram], axis=-2))
    result = loop.after
    for weight, change in zip(tf.unstack(weights, axis=-1), loop.after_changes, strict=True):
        result -= tf.expand_dims(tf.cast(weight, result.dtype), -1) * change
    return result


def _solve_positive(system: tf.Tensor) -> tf.Tensor:
    """Solves small systems [A, b] with A positive semidefinite, slightly regularised.

    By elimination: TensorFlow's solvers raise where a single one of the systems is not finite.

    Args:
        system: [..., n, n + 1].

    Returns:
        [..., n].
    """
    size = system.shape[-2]
    unit = tf.eye(size, size + 1, dtype=system.dtype)
    # Nothing where a column is zero: its weight comes out as zero.
    system += unit * (_RIDGE * system + 1e-30)
    for place in range(size):
        pivot = system[..., place : place + 1, :]
        pivot /= pivot[..., place : place + 1]
        column = slice(place, place + 1)
        system -= (system[..., column] - unit[:, column]) * pivot
    return system[..., -1]


def _residual(error: tf.Tensor, after: tf.Tensor, reverse: bool) -> tf.Tensor:
    error = tf.sqrt(_running_sum(_squares(error), reverse))
    after = tf.sqrt(_running_sum(_squares(after), reverse))
    return tf.where(tf.equal(error, 0), error, error / after)


def _squares(sequences: tf.Tensor) -> tf.Tensor:
    """Returns the squared norm of each step, [B, T]."""
    return tf.reduce_sum(tf.square(_precise(sequences)), axis=-1)


def _running_sum(values: tf.Tensor, reverse: bool) -> tf.Tensor:
    return tf.cumsum(values, axis=1, reverse=reverse)


def _precise(tensor: tf.Tensor) -> tf.Tensor:
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)


def fixed_point(
    function: Callable[[tf.Tensor, Any], tf.Tensor],
    guess: tf.Tensor,
    parameters: Any,
    *,
    tolerance: float,
    max_iterations: int,
    solved: tf.Tensor | None = None,
) -> tuple[tf.Tensor, Convergence]:
    """Returns z with z = f(z, a), differentiable with respect to a.

    The gradient is that of the implicit function theorem: for dL/dz = v it is u df/da, where u
    solves u = v + u df/dz. That system is solved as z was, with the same tolerance and bound, on
    products of u with the Jacobian of one application of f. What stays in memory for it is z and a.

    Args:
        function: f, causal as for `solve`. What else it depends on counts as constant.
        guess: the first iterate; there is no gradient with respect to it.
        parameters: a, a nest of tensors.
        tolerance: as for `solve`.
        max_iterations: as for `solve`.
        solved: as for `solve`; the gradient of these steps must be zero.

    Returns:
        z, and how far it came.
    """
    bounds: dict[str, Any] = {"tolerance": tolerance, "max_iterations": max_iterations}

    @tf.custom_gradient
    def apply(*flat: tf.Tensor) -> Any:
        nest = tf.nest.pack_sequence_as(parameters, flat)
        state, convergence = solve(lambda z: function(z, nest), guess, solved=solved, **bounds)

        def gradient(upstream: tf.Tensor, *_: tf.Tensor) -> Any:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch((state, flat))
                after = function(state, tf.nest.pack_sequence_as(parameters, flat))

            def pull_back(u: tf.Tensor) -> tf.Tensor:
                return upstream + tape.gradient(after, state, output_gradients=u)

            u, _ = solve(pull_back, upstream, reverse=True, **bounds)
            # A derivative of it would miss that z, a constant here, depends on a.
            u = tf.raw_ops.PreventGradient(input=u, message="The equilibrium has first gradients.")
            return tape.gradient(
                after, list(flat), u, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )

        return (state, *convergence), gradient

    state, *convergence = apply(*tf.nest.flatten(parameters))
    return state, Convergence(*convergence)


# The network


@dataclasses.dataclass(frozen=True)
class EquilibriumNetwork(Network):
    """A network whose levels, one turn of all that differs between them, are repeated without end.

    Attributes:
        tolerance: the residual at which a step counts as solved.
        max_iterations: how many turns are made at most.
    """

    tolerance: float
    max_iterations: int

    def settle(
        self,
        sequences: tf.Tensor,
        initial: State | None,
        parameters: Parameters,
        plan: Packing | None,
    ) -> tuple[State, Convergence]:
        """Runs whole sequences; the arguments are those of `run` and `stream`."""
        past = zeros(sequences, self.input_width, sequences.shape[-1])
        addends = self.inject(sequences, past, parameters)
        pasts = [
            self._context(sequences, initial, self.dilation(phase)) for phase in range(self.depth)
        ]
        return self._solve(sequences, pasts, addends, parameters.hidden, plan)

    def stream(
        self,
        sequences: tf.Tensor,
        cache: Cache,
        parameters: Parameters,
        plan: Packing | None,
    ) -> tuple[State, State]:
        """Goes on from a cache, as `Network.stream`.

        The state that a step settles in depends on the past through what the levels of one turn
        have settled in at the steps before: this is all that the cache holds of a past without end.
        """
        addends = self.inject(sequences, cache.inputs, parameters)
        order = sorted(range(self.depth), key=lambda phase: phase % len(self.cycle))
        widths = [self.width(self.dilation(phase)) for phase in order]
        parts = [tf.split(levels, widths, axis=1) for levels in cache.levels]
        by_phase = dict(zip(order, zip(*parts, strict=True), strict=True))
        pasts = [by_phase[phase] for phase in range(self.depth)]
        top, _ = self._solve(sequences, pasts, addends, parameters.hidden, plan)
        below, kept = top, []
        for phase, past in enumerate(pasts):
            if phase:
                below = self.apply_level(
                    pasts[phase - 1], below, addends, parameters.hidden, phase - 1
                )
            kept.append(
                [
                    streaming.keep(pad_left(left, each), left.shape[1], plan)
                    for left, each in zip(past, below, strict=True)
                ]
            )
        levels = zip(*(kept[phase] for phase in order), strict=True)
        return top, tuple(tf.concat(each, axis=1) for each in levels)

    def _solve(
        self,
        sequences: tf.Tensor,
        pasts: Sequence[State],
        addends: Addends,
        hidden: HiddenKernel,
        plan: Packing | None,
    ) -> tuple[State, Convergence]:
        """Finds the state that one turn of the levels, each with its past, leaves as it is."""

        def turn(joined: tf.Tensor, variable: Any) -> tf.Tensor:
            pasts, addends, kernel = variable
            state = tuple(tf.split(joined, self.gate.states, axis=-1))
            for phase, past in enumerate(pasts):
                own = hidden._replace(kernel=kernel)
                state = self.apply_level(past, state, addends, own, phase)
            return tf.concat(state, axis=-1)

        joined, convergence = fixed_point(
            turn,
            zeros(sequences, None, self.gate.states * self.units),
            (pasts, addends, hidden.kernel),
            tolerance=max(self.tolerance, 4 * _EPSILON[sequences.dtype.name]),
            max_iterations=self.max_iterations,
            solved=None if plan is None else _beyond(plan),
        )
        return tuple(tf.split(joined, self.gate.states, axis=-1)), convergence


def _beyond(plan: Packing) -> tf.Tensor:
    """Returns which steps only fill up packed sequences, bool [B, T]."""
    return tf.logical_not(tf.sequence_mask(plan.count, tf.shape(plan.mask)[1]))


# The layer


@keras.saving.register_keras_serializable("keras_trellis")
class EquilibriumTrellisLayer(TrellisLayer):
    """Deep equilibrium trellis network: `TrellisLayer` with infinitely many levels.

    Its output is the state that the levels settle in, s with

        s_t = gate(sum_j Wz_j h_{t - (k-1-j) d} + b + x~_t, s_{t - d})

    in the notation of `TrellisLayer`, found by iteration from the state zero; with a cycle of
    dilations, or with `inject_every`, s is what one turn of the levels leaves as it is. The
    gradient comes from the implicit function theorem, so that memory is that of one turn,
    however many iterations were made.

    The variables are those of `TrellisLayer`, by name and by shape: `from_layer` goes on from
    trained ones. All else means what it means there, streaming included: chunks equal one long
    pass up to the tolerance.

    Nothing makes sure that the levels settle. If they do not within `max_iterations`, the layer
    returns what it has then, and gradients are as wrong as that is; `propagate` tells. The system
    for the gradient has the same bound; it has the same Jacobian, and of it nothing is told.

    Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
    https://arxiv.org/abs/1909.01377.

    Args:
        units: the number of hidden channels, q.
        tolerance: a sequence's first steps are solved when |f(s) - s| <= tolerance |f(s)| over
            them, f being one turn of the levels. Rounding sets a limit: where `tolerance` is
            below 4 units of rounding of the compute dtype (0.03 for bfloat16, 0.004 for float16,
            5e-7 for float32), these count. The system for the gradient is solved as precisely.
        max_iterations: how many turns of the levels are made at most, forwards, and once more
            for the gradient.
        **kwargs: all other arguments of `TrellisLayer`, but for `depth`, `recompute` and
            `staggered`.

    Attributes:
        depth: the number of levels of one turn.

    Raises:
        ValueError: if an argument is out of its range.
    """

    def __init__(
        self,
        units: int,
        *,
        tolerance: float = 1e-4,
        max_iterations: int = 100,
        **kwargs: Any,
    ) -> None:
        for name in _MEANINGLESS:
            if name in kwargs:
                raise ValueError(
                    f"`{name}` has no meaning for a layer of infinite depth; `max_iterations` "
                    f"bounds its work. Received: {name}={kwargs[name]!r}"
                )
        cycle = arguments.dilation_cycle(kwargs.get("dilation_rate", 1))
        every = arguments.positive("inject_every", kwargs.get("inject_every", 1))
        super().__init__(units, math.lcm(len(cycle), every), **kwargs)  # one turn
        self.tolerance = _tolerance(tolerance)
        self.max_iterations = arguments.positive("max_iterations", max_iterations)

    @classmethod
    def from_layer(cls, layer: TrellisLayer, **changes: Any) -> EquilibriumTrellisLayer:
        """Makes the layer that a trained layer of finite depth is the beginning of.

        Args:
            layer: a layer; its arguments and, where it is built, its variables' values are taken.
            **changes: arguments that shall differ.

        Raises:
            ValueError: if a variable does not fit the changed arguments.
        """
        config = {
            key: value for key, value in layer.get_config().items() if key not in _MEANINGLESS
        }
        equilibrium = cls.from_config(config | changes)
        if layer.built:
            equilibrium.build_from_config(layer.get_build_config())
            equilibrium.set_weights(layer.get_weights())
        return equilibrium

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        for name in _MEANINGLESS:
            del config[name]
        return config | {"tolerance": self.tolerance, "max_iterations": self.max_iterations}

    @property
    def receptive_field(self) -> None:  # type: ignore[override]
        """None: an output depends on all steps before it."""
        return None

    @property
    def _network(self) -> EquilibriumNetwork:
        return EquilibriumNetwork(
            **vars(super()._network), tolerance=self.tolerance, max_iterations=self.max_iterations
        )

    def propagate(
        self,
        sequences: tf.Tensor,
        *,
        initial_state: Sequence[tf.Tensor] | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
    ) -> tuple[tf.Tensor, State, Convergence]:
        """Runs the network over whole sequences; what `call` is a shell of.

        Args:
            sequences: [B, T, p].
            initial_state: the states, each [B, units], that stand to the left; None for zeros.
            mask: bool [B, T], true at the valid steps.
            training: whether dropout is applied.
            auxiliary_every: None; there are no levels to collect outputs after.
            discard: how many of the first outputs to leave out, 0 to T.

        Returns:
            outputs [B, T - discard, output_units]; the states of the last valid step, each
            [B, units]; how far the iteration came, [B, T - discard]. At a masked step it is that
            of the valid step before it.

        Raises:
            ValueError: if `initial_state` does not fit, or an argument is out of its range.
        """
        if auxiliary_every is not None:
            raise ValueError(
                "`auxiliary_every` must be None: a layer of infinite depth has no levels to "
                f"collect outputs after. Received: auxiliary_every={auxiliary_every!r}"
            )
        sequences, initial, plan = self._receive(sequences, initial_state, mask)
        arguments.discard(discard, sequences.shape[1])
        network = dataclasses.replace(self._network, training=bool(training))
        state, convergence = network.settle(
            sequences, initial, self._draw_parameters(tf.shape(sequences)[0], training), plan
        )
        if plan is not None:
            convergence = _unpack(convergence, plan)
        return (
            self._outputs(state[0], plan)[:, discard:],
            self._last_states(state, plan, initial),
            Convergence(*(each[:, discard:] for each in convergence)),
        )

    def _run(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool,
        **ignored: Any,
    ) -> tuple[Any, ...]:
        """Runs the network for `call`; all its steps settle together, whatever is kept of them."""
        del ignored
        return self.propagate(sequences, initial_state=initial_state, mask=mask, training=training)[
            :2
        ]


def _unpack(convergence: Convergence, plan: Packing) -> Convergence:
    """Moves back what was found of packed steps; before the first valid one all is well."""
    residual, iterations, converged = (tf.expand_dims(each, -1) for each in convergence)

    def move(values: tf.Tensor, before: Any) -> tf.Tensor:
        first = tf.fill([tf.shape(values)[0], 1], tf.cast(before, values.dtype))
        return tf.squeeze(masks.unpack(values, plan, first), -1)

    return Convergence(move(residual, 0), move(iterations, 0), move(converged, True))


def _tolerance(value: Any) -> float:
    try:
        number = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 < number < 1.0:
        raise ValueError(
            f"`tolerance` must be a number between 0 and 1. Received: tolerance={value!r}"
        )
    return number
