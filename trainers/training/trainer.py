"""The steps of a run: gradients, summed over the replicas, clipped and applied.

A task gives batches, a loss sum with its weight, a carried state, and an evaluation. Nothing here
or in the loop asks which task it is.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import keras
import tensorflow as tf

from trainers import optimizers
from trainers.training import workers
from trainers.training.batches import Batches, as_dataset
from trainers.training.schedules import Stage, Stages

Nest = Any
Metrics = dict[str, Any]


class Task(Protocol):
    """What a run trains.

    Attributes:
        model: the built model, created in the strategy's scope.
        unit: what a batch's weight counts, in the plural, such as "tokens".
        evaluation_steps: about how many training steps take as long as `evaluate`. This and the
            next are for the estimate of a run's time.
        scoring: about how many calls of `evaluate` take as long as the scores at the end.
    """

    model: keras.Model
    unit: str
    evaluation_steps: float
    scoring: float

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""

    @property
    def stages(self) -> Stages:
        """The parts of a run; `schedules.WHOLE` if all steps are alike."""

    @property
    def allows_rewrites(self) -> bool:
        """Whether TensorFlow may rewrite the graphs; see `strategies.allow_rewrites`."""

    def dataset(self, first_step: int) -> Batches:
        """Returns the global batches from a step of the run on, at least to the run's end.

        They depend on the seed and the step alone. The first dimension of each tensor is the global
        batch, a multiple of the number of replicas. A sequence keeps its place from batch to batch.
        Only the last batch of an epoch may have another shape than the others.
        """

    def initial_state(self) -> Nest:
        """Returns the state at the start of an epoch: `[global batch, ...]` tensors, or ()."""

    def loss(
        self, batch: Nest, state: Nest, /
    ) -> tuple[tf.Tensor, tf.Tensor, Nest, dict[str, tf.Tensor]]:
        """Computes the training loss of a replica's share of a batch.

        Each of the `stages` gives it further arguments, by name.

        Returns:
            the sum of the losses; their number (the weight); the state for the next batch; further
            metrics, summed like the loss.
        """

    def evaluate(self) -> dict[str, float]:
        """Returns metrics on the validation data; the epoch with the least "loss" is the best.

        {} without validation data: the last epoch is the best.
        """

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns what people read of a training step's mean metrics or of `evaluate`'s.

        A step has the metrics of `loss`, its sum as "loss", and "gradient_norm". The result has the
        same names for both. The curves show the first.
        """


class Trainer:
    """The steps of a run: sums gradients over the replicas, clips them, and applies them.

    Args:
        task: what to train.
        optimizer: created in the strategy's scope, with `scales=True` for `usual_steps`; built
            here.
        clip_norm: the largest global norm of the mean loss's gradient, or None.
        strategy: spreads batches over devices. Default: the current strategy.
        usual_steps: if given, batches `[B, T, ...]` differ in their number of time steps T. The
            learning rate is that of a batch with as many as this, and proportional to T (Merity et
            al. 2018). Default: the learning rate is the same for all batches.
        team: the workers over which the strategy spreads batches. Default: this process alone.
        jit_compile: whether XLA compiles the loss and its gradient, once for each shape of a batch.

    Attributes:
        allow_replicas_change: whether a run goes on that had another number of replicas, and so
            other masks; False unless it is set.
    """

    def __init__(
        self,
        task: Task,
        optimizer: optimizers.Optimizer,
        *,
        clip_norm: float | None = None,
        strategy: tf.distribute.Strategy | None = None,
        usual_steps: int | None = None,
        team: workers.Alone = workers.ALONE,
        jit_compile: bool = False,
    ):
        self.task = task
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self.usual_steps = usual_steps
        self.team = team
        self.allow_replicas_change = False
        self.strategy = strategy or tf.distribute.get_strategy()
        self.replicas = self.strategy.num_replicas_in_sync
        self.stages = task.stages
        self._compiled_steps = [
            self._compiled(stage, jit_compile) for stage in self.stages.arguments
        ]
        with self.strategy.scope():
            optimizer.build(task.model.trainable_variables)

    def batches(self, first_step: int) -> Iterator[Nest]:
        """Returns the batches from a step on, spread over the replicas in order.

        Each worker has the shares of its own replicas alone.

        Raises:
            ValueError: the batch size is not divisible by the number of replicas.
        """
        options = tf.data.Options()
        # The thread that tunes sleeps for up to a minute, and may keep an iterator from ending.
        options.autotune.enabled = False
        dataset = as_dataset(self.task.dataset(first_step)).with_options(options)
        if self.replicas == 1:
            return iter(dataset)
        for spec in tf.nest.flatten(dataset.element_spec):
            self._check_batch_size(spec.shape[0])
        # The replicas take one element each, in turn.
        shares = dataset.map(self._split).unbatch().prefetch(self.replicas)
        if self.team.count > 1:
            # Of an endless dataset the workers need not ask one another for the end.
            shares = shares.repeat()
        return iter(self.strategy.distribute_datasets_from_function(lambda _: shares))

    def spread(self, state: Nest) -> Nest:
        """Cuts `[global batch, ...]` tensors into the replicas' shares."""
        if self.replicas == 1:
            return state

        def shares(tensor):
            self._check_batch_size(tensor.shape[0])
            parts = tf.split(tensor, self.replicas)
            spread = self.strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )
            local = self.strategy.experimental_local_results(spread)
            # A single share stands alone, as `strategy.run` returns it.
            if len(local) > 1:
                return spread
            return local[0]

        return tf.nest.map_structure(shares, state)

    def gather(self, state: Nest) -> Nest:
        """Joins the replicas' shares."""
        local = self.strategy.experimental_local_results
        if self.team.count > 1:
            joined = self._compiled_gather(state)
            return tf.nest.map_structure(lambda value: local(value)[0], joined)
        return tf.nest.map_structure(lambda value: tf.concat(local(value), 0), state)

    @tf.function(autograph=False)
    def _compiled_gather(self, state):
        def gathered(share):
            context = tf.distribute.get_replica_context()
            # An argument of the graph has no device, which TensorFlow asks for.
            return context.all_gather(tf.identity(share), axis=0)

        return self.strategy.run(
            lambda shares: tf.nest.map_structure(gathered, shares), args=(state,)
        )

    def step(self, batch: Nest, state: Nest) -> tuple[Metrics, Nest]:
        """Trains on one batch, like `steps`, but returns scalar metrics."""
        one = tf.constant(1)
        metrics, state = self._compiled_steps[-1](batch, None, one, state)
        return {name: value[0] for name, value in metrics.items()}, state

    def steps(
        self, batches: Iterator[Nest], state: Nest, count: int, stage: int = -1
    ) -> tuple[Metrics, Nest]:
        """Trains on the next batches, without Python in between.

        `count` does not change a bit of the results.

        Args:
            batches: from `batches`; without `usual_steps` the next `count` have one shape.
            state: from `spread` or the step before.
            count: the number of steps.
            stage: the index of the run's part in `stages`. Default: the last one.

        Returns:
            metrics of each step, float64 `[count]`, and the state for the next step. The task's
            metrics and "loss" are means over the global batch, "gradient_norm" is that before
            clipping, and "weight" is the batch's.
        """
        # Draw the first batch here. The steps are compiled for its static shape, which a dataset
        # with a shorter last batch does not tell.
        first = None if self.usual_steps else next(batches)
        steps = self._compiled_steps[stage]
        return steps(first, batches, tf.constant(count), state)

    def _compiled(self, stage: Stage, jit_compile: bool) -> Any:
        """Returns the steps of a stage, to be compiled."""
        gradients: Any = functools.partial(self._differentiated, stage)
        if jit_compile:
            gradients = tf.function(gradients, autograph=False, jit_compile=True)
        steps = functools.partial(self._steps, gradients)
        return tf.function(steps, autograph=False)

    def _steps(self, differentiated, first, rest, count, state):
        replica_step = functools.partial(self._replica_step, differentiated)
        names: list[str] = []

        def step(index, state, rows):
            batch = _draw(first, rest, index)
            # The loop is around the replicas, since replicas cannot synchronise inside a loop.
            metrics, state = self.strategy.run(replica_step, args=(batch, state))
            names[:] = (
                metrics  # while it is traced: the loop itself carries tensors alone
            )
            values = [
                self.strategy.experimental_local_results(v)[0] for v in metrics.values()
            ]
            row = tf.stack([tf.cast(value, "float64") for value in values])
            return index + 1, state, rows.write(index, row)

        rows = tf.TensorArray("float64", size=count, element_shape=[None])
        _, state, rows = tf.while_loop(
            lambda index, *_: index < count,
            step,
            (0, state, rows),
            parallel_iterations=1,
        )
        columns = tf.unstack(rows.stack(), num=len(names), axis=1)
        metrics = dict(zip(names, columns, strict=True))
        return metrics, state

    def _differentiated(self, stage, batch, state):
        """Returns the gradient of a replica's loss sum, and what the loss came with."""
        trained = self.task.model.trainable_variables
        with tf.GradientTape() as tape:
            loss, weight, state, metrics = self.task.loss(batch, state, **stage)
        gradients = tape.gradient(
            loss,
            [v.value for v in trained],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # Make gradients dense, as torch's are: the norm then counts the summed rows of an
        # embedding, and weight decay and Adam's moments move every row.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return gradients, loss, tf.cast(weight, loss.dtype), state, metrics

    def _replica_step(self, differentiated, batch, state):
        gradients, loss, weight, state, metrics = differentiated(batch, state)
        # Sums and not means: replicas may have shares of different weights.
        sums, weight, gradients = _summed(
            [{**metrics, "loss": loss}, weight, gradients]
        )
        gradients = [
            gradient / tf.cast(weight, gradient.dtype) for gradient in gradients
        ]
        # After the mean over all replicas, so that each clips alike, and as one device would.
        gradients, norm = optimizers.clip_by_global_norm(gradients, self.clip_norm)
        if self.replicas > 1:  # `apply` sums over the replicas again
            gradients = [gradient / self.replicas for gradient in gradients]
        if self.usual_steps is not None:
            sequences, *_ = tf.nest.flatten(batch)
            steps = tf.cast(tf.shape(sequences)[1], "float64")
            self.optimizer.scale_rate(steps / self.usual_steps)
        self.optimizer.apply(gradients)
        means = {
            name: value / tf.cast(weight, value.dtype) for name, value in sums.items()
        }
        # Backpropagation through time ends at the window: the next one takes the state as a
        # constant.
        state = tf.nest.map_structure(tf.stop_gradient, state)
        return {**means, "gradient_norm": norm, "weight": weight}, state

    def _split(self, *batch):
        local = self.replicas // self.team.count
        # The workers' replicas are numbered one worker after another.
        mine = slice(self.team.index * local, (self.team.index + 1) * local)
        shares = tf.nest.map_structure(
            lambda x: tf.stack(tf.split(x, self.replicas)[mine]), batch
        )
        if len(shares) > 1:
            return shares
        return shares[0]

    def _check_batch_size(self, batch_size: int | None) -> None:
        if batch_size is not None and batch_size % self.replicas:
            raise ValueError(
                f"`batch_size` must be divisible by the number of replicas, {self.replicas} "
                f"(or train on one device). Received: batch_size={batch_size}"
            )


def _draw(first: Nest, rest: Iterator[Nest] | None, index: tf.Tensor) -> Nest:
    """Returns the batch of a step of a call: `first`, or the next one, in the shape of `first`."""
    if rest is None:
        return first
    if first is None:
        return next(rest)

    def draw() -> Nest:
        return tf.nest.map_structure(
            lambda new, like: tf.ensure_shape(new, like.shape),
            next(rest),
            first,
            expand_composites=True,
        )

    return tf.cond(index > 0, draw, lambda: first)


def _summed(values: Nest) -> Nest:
    """Returns the sums over the replicas; TensorFlow joins those of one dtype in buffers."""
    flat = tf.nest.flatten(values)
    # A dictionary keeps the order, in which all replicas must sum.
    for dtype in {value.dtype: None for value in flat}:
        chosen = [i for i, value in enumerate(flat) if value.dtype == dtype]
        sums = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [flat[i] for i in chosen]
        )
        for i, total in zip(chosen, sums, strict=True):
            flat[i] = total
    return tf.nest.pack_sequence_as(values, flat)
