"""One training step as one compiled program: loss, gradient, clipping, optimizer, average."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from trainers.optimizers import OPTIMIZERS
from trainers.training import schedules, variables

State = dict[str, Any]
"""All arrays that a step changes, by their names in a checkpoint."""

Loss = Callable[..., tuple[Any, Any, Any, Any]]
"""Takes a batch, what is carried, and a depth. Returns the sum of the losses, their number, the sum
that is shown as the training loss, and what the next batch begins with."""


class Numbers(NamedTuple):
    """What a step reads beside its state and its batch: scalars, computed before it.

    JAX makes them float32, unless it is told to have float64.

    Attributes:
        rate: the learning rate; for Adam with both corrections of the bias.
        epsilon: Adam's, with the same.
        share: the share of the new weights in their average; 0: nothing is averaged yet.
    """

    rate: np.float64
    epsilon: np.float64
    share: np.float64


class Devices:
    """The devices that share a batch: the most of this machine's that can have as many rows each.

    Args:
        batch_size: the rows of a batch.

    Attributes:
        count: how many they are.
        whole: the placement of what each device has.
        rows: the placement of what is cut along its first axis.
    """

    def __init__(self, batch_size: int) -> None:
        devices = jax.devices()
        fitting = (n for n in range(len(devices), 0, -1) if batch_size % n == 0)
        self.count = next(fitting)
        mesh = Mesh(np.array(devices[: self.count]), ("rows",))
        self.whole = NamedSharding(mesh, PartitionSpec())
        self.rows = NamedSharding(mesh, PartitionSpec("rows"))

    def put(self, batch: Sequence[np.ndarray]) -> list[jax.Array]:
        """Returns the arrays of a batch on the devices: cut along the rows where that is even."""
        even = (each.ndim and len(each) % self.count == 0 for each in batch)
        placements = [self.rows if cut else self.whole for cut in even]
        return jax.device_put(list(batch), placements)

    def of(self, name: str) -> NamedSharding:
        """Returns the placement of an array of the state."""
        return self.rows if name.startswith("state/") else self.whole


class Rule:
    """The optimizer of a config: what is computed on the host, and how a weight changes.

    The formulas are those of `trainers.optimizers`, which has their sources. A schedule sets
    `learning_rate` and calls `start_averaging`.

    Args:
        config: the run's config.

    Attributes:
        learning_rate: the rate that is set; a float64.
        iterations: the number of steps done.
        averaged_from: the number of steps before the first averaged one; -1 while not averaging.
        last_factor: what the rate was multiplied by in the last step.
        slot_names: the names of the arrays that the optimizer has for each trainable variable.
    """

    def __init__(self, config: ConfigDict) -> None:
        settings = config.optimizer
        self._kind: Any = OPTIMIZERS[settings.name]
        self._is_adam = settings.name == "adam"  # else it is "sgd"
        self._decay = settings.weight_decay
        self._cosine = schedules.cosine_steps(config)
        self._usual = config.data.window if schedules.draws_lengths(config) else None
        self.slot_names = self._kind.run_slot_names(config)
        self.learning_rate = np.float64(settings.learning_rate)
        self.iterations, self.averaged_from, self.last_factor = 0, -1, 1.0

    @property
    def averaging(self) -> bool:
        """Whether evaluation uses averaged weights."""
        return self.averaged_from >= 0

    @property
    def has_average(self) -> bool:
        """Whether a step has been averaged."""
        return self.averaging and self.iterations > self.averaged_from

    def start_averaging(self) -> None:
        """Starts averaging at the next step."""
        self.averaged_from = self.iterations

    def next(self, steps: int) -> Numbers:
        """Counts a step on windows of so many time steps; returns its numbers."""
        rate, epsilon, share = float(self.learning_rate), 0.0, 0.0
        if self._usual is not None:
            factor = steps / self._usual
            # As torch's ASGD, which computes its rate at the end of a step.
            rate *= self.last_factor if self.has_average else factor
            self.last_factor = factor
        if self._cosine:
            done = min(self.iterations / self._cosine, 1.0)
            rate *= (1.0 + math.cos(math.pi * done)) / 2.0
        if self._is_adam:
            number = self.iterations + 1
            root = math.sqrt(1.0 - self._kind.beta_2**number)
            rate *= root / (1.0 - self._kind.beta_1**number)
            epsilon = self._kind.epsilon * root
        if self.averaging:
            share = 1.0 / max(1, self.iterations - self.averaged_from)
        self.iterations += 1
        return Numbers(*map(np.float64, (rate, epsilon, share)))

    def changed(
        self, name: str, gradient: Any, state: State, numbers: Numbers
    ) -> State:
        """Returns the new values of a weight and of its slots."""
        weight = state[name]
        slots = {slot: slot_name(name, slot) for slot in self.slot_names}
        # Coupled weight decay: it joins the gradient, which is clipped already.
        if self._decay:
            gradient = gradient + self._decay * weight
        new = {}
        if self._is_adam:
            mean, square = state[slots["mean"]], state[slots["square"]]
            mean += (1 - self._kind.beta_1) * (gradient - mean)
            square += (1 - self._kind.beta_2) * (gradient * gradient - square)
            new = {slots["mean"]: mean, slots["square"]: square}
            gradient = mean / (jnp.sqrt(square) + numbers.epsilon)
        new[name] = weight - numbers.rate * gradient
        if average := slots.get("average"):
            kept = (1 - numbers.share) * state[average]
            new[average] = kept + numbers.share * new[name]
        return new


def slot_name(name: str, slot: str) -> str:
    """Returns the name of a variable's slot in a checkpoint."""
    return f"optimizer/{name.removeprefix('model/')}/{slot}"


def bound(model: keras.Model, values: Mapping[str, Any]) -> Any:
    """Returns a context in which a model's variables have these values, by their names."""
    named = variables.model_variables(model)
    pairs = [(variable, values[name]) for name, variable in named.items()]
    return keras.StatelessScope(pairs, collect_losses=True)


def make_step(
    model: keras.Model, loss: Loss, rule: Rule, config: ConfigDict, devices: Devices
) -> Any:
    """Returns the training step.

    Args:
        model: the model, built.
        loss: see `Loss`.
        rule: the optimizer.
        config: the run's config.
        devices: the devices that share a batch.

    Returns:
        a compiled function of a `State`, whose memory it takes over, a batch, `Numbers`, and by
        name a `depth`. It returns the next state, and float32 `[3]`: the sum that is shown as the
        training loss, the number by which to divide it, and the gradient's norm before clipping.
    """
    named, clip_norm = variables.model_variables(model), config.optimizer.clip_norm
    trained = [name for name, variable in named.items() if variable.trainable]

    def mean_loss(weights, state, batch, depth):
        count = sum(name.startswith("state/") for name in state)
        carried = tuple(state[f"state/{place}"] for place in range(count))
        with bound(model, state | weights) as scope:
            total, number, shown, carried = loss(batch, carried, depth)
            mean = total / number + sum(scope.losses)
            new = {name: scope.get_current_value(v) for name, v in named.items()}
        new |= {f"state/{place}": each for place, each in enumerate(carried)}
        return mean, (jax.lax.stop_gradient(new), shown, number)

    @functools.partial(jax.jit, donate_argnums=0, static_argnames="depth")
    def step(state, batch, numbers, depth=None):
        weights = {name: state[name] for name in trained}
        gradient = jax.grad(mean_loss, has_aux=True)
        gradients, (new, shown, number) = gradient(weights, state, batch, depth)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in gradients.values()))
        # The 1e-6 is that of torch's `clip_grad_norm_`.
        scale = jnp.minimum(1.0, clip_norm / (norm + 1e-6))
        for name, each in gradients.items():
            new |= rule.changed(name, each * scale, state, numbers)
        placed = {name: devices.of(name) for name in new}
        new = jax.lax.with_sharding_constraint(new, placed)
        return new, jnp.stack([shown, number, norm])

    return step


def product_flops(program: Any) -> int:
    """Returns the floating-point operations of a program's matrix products and convolutions.

    A product of `[n, k]` and `[k, m]` has 2 n k m. XLA's own count takes the body of a loop once.

    Args:
        program: what `jax.make_jaxpr` returns, or a program within it.
    """
    total = 0
    for equation in getattr(program, "jaxpr", program).eqns:
        name, parameters = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            summed = math.prod(shape[axis] for axis in contracted)
            total += 2 * summed * math.prod(equation.outvars[0].aval.shape)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            outputs = parameters["dimension_numbers"].rhs_spec[0]
            taps = math.prod(kernel) // kernel[outputs]
            total += 2 * taps * math.prod(equation.outvars[0].aval.shape)
        inner = [product_flops(each) for each in _programs(parameters)]
        if name == "cond":
            total += max(inner)
        else:
            total += parameters.get("length", 1) * sum(inner)
    return total


def _programs(parameters: Mapping[str, Any]) -> list[Any]:
    """Returns the programs among the parameters of an operation."""
    flat: list[Any] = []
    for value in parameters.values():
        flat += value if isinstance(value, (tuple, list)) else [value]
    return [each for each in flat if hasattr(getattr(each, "jaxpr", each), "eqns")]
