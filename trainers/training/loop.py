"""The training loop of all tasks.

A task gives the loop batches, a loss sum with its weight, a carried state, and an evaluation. The
loop never asks which task it runs. Batches and masks are functions of the seed and the step. So a
checkpoint needs only variables and a step, and a resumed run equals one that never stopped.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from trainers.data.files import exists
from trainers.training import (
    checkpoints,
    cluster,
    costs,
    followers,
    optimizers,
    progress,
    schedules,
    stopping,
    variables,
    workers,
)
from trainers.training.stopping import StopSignals
from trainers.training.workdir import (
    RESULT,
    Change,
    Workdir,
    WorkdirError,
    check_epochs,
)

Nest = Any
Metrics = dict[str, Any]
Observe = Callable[[Sequence[float]], None]
"""Takes the validation losses of a run's epochs; an error that it raises ends the run."""

_RATE = "optimizer.learning_rate"  # a change of this field sets a variable
# Gradients travel in buffers of this size: 64 MiB in one took 3.7 times as long on loopback.
_PACK_BYTES = 1 << 24
_CALL_SECONDS = 1.0  # the longest call; Python handles no signal during it


class Task(Protocol):
    """What the loop trains.

    Attributes:
        model: the built model, created in the strategy's scope.
        unit: what a batch's weight counts, in the plural, such as "tokens".
    """

    model: keras.Model
    unit: str

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""

    def dataset(self, first_step: int) -> tf.data.Dataset:
        """Returns the global batches from a step of the run on, at least to the run's end.

        They depend on the seed and the step alone. The first dimension of each tensor is the global
        batch, a multiple of the number of replicas. A sequence keeps its place from batch to batch.
        Only the last batch of an epoch may have another shape than the others.
        """

    def initial_state(self) -> Nest:
        """Returns the state at the start of an epoch: [global batch, ...] tensors, or ()."""

    def loss(
        self, batch: Nest, state: Nest
    ) -> tuple[tf.Tensor, tf.Tensor, Nest, dict[str, tf.Tensor]]:
        """Computes the training loss of a replica's share of a batch.

        Returns:
            The sum of the losses; their number (the weight); the state for the next batch; further
            metrics, summed like the loss.
        """

    def evaluate(self) -> dict[str, float]:
        """Returns metrics on the validation data; the epoch with the least "loss" is the best."""

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns what people read of a training step's mean metrics or of `evaluate`'s.

        A step has the metrics of `loss`, its sum as "loss", and "gradient_norm". The result has the
        same names for both. The curves show the first.
        """


class NonFiniteLossError(ArithmeticError):
    """The loss or the gradient is NaN or infinite, so the run cannot go on.

    Attributes:
        step: the first such step, counted from 1.
    """

    def __init__(self, step: int, what: str):
        super().__init__(f"{what} at step {step}")
        self.step = step


class Result(NamedTuple):
    """How a run ended.

    Attributes:
        finished: whether it reached its end. If not, it was interrupted and can be resumed.
        step: steps done.
        epochs: epochs done.
        best_loss: the best validation loss; infinite before the first evaluation.
        best_epoch: its epoch, counted from 1; 0 before the first evaluation.
        cost: what the run took.
        lost_epoch: a better epoch whose weights are lost; 0 if there is none.
        unsaved: what a finished run could not write; None if it wrote everything.
    """

    finished: bool
    step: int
    epochs: int
    best_loss: float
    best_epoch: int
    cost: costs.Cost
    lost_epoch: int = 0
    unsaved: checkpoints.Unsaved | None = None


def make_deterministic(seed: int) -> None:
    """Seeds all generators and makes TensorFlow choose deterministic kernels.

    Call this before any other function of TensorFlow. Two runs then agree bit for bit if their
    builds and their numbers of threads are the same.
    """
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()


def get_strategy(
    name: str, members: cluster.Cluster | None = None
) -> tf.distribute.Strategy:
    """Returns the strategy of a name.

    Args:
        name: "none" for one device; "mirrored" for the visible GPUs or, without GPUs, the
            logical CPUs.
        members: the workers, of which each has all of its visible GPUs or, without GPUs, one CPU;
            None or one worker: this process alone.

    Raises:
        ValueError: another name.
    """
    if members and len(members.addresses) > 1:
        gpus = len(tf.config.list_physical_devices("GPU"))
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=_PACK_BYTES
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            members.resolver(gpus), options
        )
        workers.handle_signals_again()
        return strategy
    if name == "none":
        return tf.distribute.get_strategy()
    if name != "mirrored":
        raise ValueError(
            f"`name` must be 'none' or 'mirrored'. Received: name={name!r}"
        )
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    devices = [device.name for device in tf.config.list_logical_devices(kind)]
    return tf.distribute.MirroredStrategy(devices)


class Trainer:
    """The steps of a run: sums gradients over the replicas, clips them, and applies them.

    Args:
        task: what to train.
        optimizer: created in the strategy's scope; built here.
        clip_norm: the largest global norm of the mean loss's gradient, or None.
        strategy: spreads batches over devices. Default: the current strategy.
        usual_steps: if given, batches [B, T, ...] differ in their number of time steps T. The
            learning rate is that of a batch with as many as this, and proportional to T (Merity et
            al. 2018). Default: the learning rate is the same for all batches.
        team: the workers over which the strategy spreads batches. Default: this process alone.

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
    ):
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(
                f"`clip_norm` must be None or above 0. Received: clip_norm={clip_norm}"
            )
        self.task = task
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self.usual_steps = usual_steps
        self.team = team
        self.allow_replicas_change = False
        self.strategy = strategy or tf.distribute.get_strategy()
        self.replicas = self.strategy.num_replicas_in_sync
        with self.strategy.scope():
            optimizer.build(task.model.trainable_variables)

    def batches(self, first_step: int) -> Iterator[Nest]:
        """Returns the batches from a step on, spread over the replicas in order.

        Each worker has the shares of its own replicas alone.

        Raises:
            ValueError: the batch size is not divisible by the number of replicas.
        """
        dataset = self.task.dataset(first_step)
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
        """Cuts [global batch, ...] tensors into the replicas' shares."""
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
            return spread if len(local) > 1 else local[0]

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
        metrics, state = self._compiled_steps(batch, None, tf.constant(1), state)
        return {name: value[0] for name, value in metrics.items()}, state

    def steps(
        self, batches: Iterator[Nest], state: Nest, count: int
    ) -> tuple[Metrics, Nest]:
        """Trains on the next batches, without Python in between.

        `count` does not change a bit of the results.

        Args:
            batches: from `batches`; without `usual_steps` the next `count` have one shape.
            state: from `spread` or the step before.
            count: the number of steps.

        Returns:
            Metrics of each step, float64 [count], and the state for the next step. The task's
            metrics and "loss" are means over the global batch, "gradient_norm" is that before
            clipping, and "weight" is the batch's.
        """
        # Draw the first batch here. The steps are compiled for its static shape, which a dataset
        # with a shorter last batch does not tell.
        first = None if self.usual_steps else next(batches)
        return self._compiled_steps(first, batches, tf.constant(count), state)

    @tf.function(autograph=False)
    def _compiled_steps(self, first, rest, count, state):
        names: list[str] = []

        def draw():
            return tf.nest.map_structure(
                lambda new, like: tf.ensure_shape(new, like.shape),
                next(rest),
                first,
                expand_composites=True,
            )

        def draw_batch(index):
            if rest is None:
                return first
            if first is None:
                return next(rest)
            return tf.cond(index > 0, draw, lambda: first)

        def step(index, state, rows):
            batch = draw_batch(index)
            # The loop is around the replicas, since replicas cannot synchronise inside a loop.
            metrics, state = self.strategy.run(self._replica_step, args=(batch, state))
            names[:] = metrics
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
        return dict(zip(names, columns, strict=True)), state

    def _replica_step(self, batch, state):
        trained = self.task.model.trainable_variables
        with tf.GradientTape() as tape:
            loss, weight, state, metrics = self.task.loss(batch, state)
        gradients = tape.gradient(
            loss,
            [v.value for v in trained],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # Make gradients dense, as torch's are: the norm then counts the summed rows of an
        # embedding, and weight decay and Adam's moments move every row.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        weight = tf.cast(weight, loss.dtype)
        sums, weight, gradients = _summed(
            [{**metrics, "loss": loss}, weight, gradients]
        )
        gradients = [
            gradient / tf.cast(weight, gradient.dtype) for gradient in gradients
        ]
        gradients, norm = optimizers.clip_by_global_norm(gradients, self.clip_norm)
        if self.replicas > 1:  # `apply` sums over the replicas again
            gradients = [gradient / self.replicas for gradient in gradients]
        with self.optimizer.scaled_rate(self._rate_factor(batch)):
            self.optimizer.apply(gradients)
        means = {
            name: value / tf.cast(weight, value.dtype) for name, value in sums.items()
        }
        state = tf.nest.map_structure(tf.stop_gradient, state)
        return {**means, "gradient_norm": norm, "weight": weight}, state

    def _rate_factor(self, batch: Nest) -> tf.Tensor:
        if self.usual_steps is None:
            return tf.constant(1.0, "float64")
        sequences, *_ = tf.nest.flatten(batch)
        return tf.cast(tf.shape(sequences)[1], "float64") / self.usual_steps

    def _split(self, *batch):
        local = self.replicas // self.team.count
        mine = slice(self.team.index * local, (self.team.index + 1) * local)
        shares = tf.nest.map_structure(
            lambda x: tf.stack(tf.split(x, self.replicas)[mine]), batch
        )
        return shares if len(shares) > 1 else shares[0]

    def _check_batch_size(self, batch_size: int | None) -> None:
        if batch_size is not None and batch_size % self.replicas:
            raise ValueError(
                f"`batch_size` must be divisible by the number of replicas, {self.replicas} "
                f"(or train on one device). Received: batch_size={batch_size}"
            )


def fit(
    trainer: Trainer,
    schedule: schedules.Schedule,
    workdir: Workdir,
    *,
    epochs: int,
    steps: int = 0,
    log_every_steps: int = 20,
    checkpoint_every_steps: int | None = None,
    signals: StopSignals | None = None,
    observe: Observe | None = None,
) -> Result:
    """Trains until the end or a signal; continues the run in the folder.

    Args:
        trainer: Takes the steps.
        schedule: Changes the optimizer after an epoch.
        workdir: The folder for checkpoints and records.
        epochs: The length of the run.
        steps: Its length in training steps, if `epochs` are not passes over the data but equal
            parts of the run; else 0.
        log_every_steps: How often to print and record metrics.
        checkpoint_every_steps: How often to write a checkpoint within an epoch. One more follows
            each epoch.
        signals: Records signals. Default: the loop's own recorder.
        observe: Takes the losses when a run goes on, and after each epoch, which is saved then.

    Returns:
        How the run ended. `checkpoints.load_best` reads the best weights, unless they are
        `unsaved`.

    Raises:
        NonFiniteLossError: The loss or the gradient is NaN or infinite. Earlier checkpoints stay.
        ValueError: An argument is out of range.
        WorkdirError: The folder's run has another number of replicas, its checkpoints cannot be
            read, or none can be written.
    """
    for argument, value in (
        ("epochs", epochs),
        ("log_every_steps", log_every_steps),
        ("checkpoint_every_steps", checkpoint_every_steps),
    ):
        if value is not None and value < 1:
            raise ValueError(
                f"`{argument}` must be at least 1. Received: {argument}={value}"
            )
    length = steps or epochs * trainer.task.steps_per_epoch
    run = _Run(
        trainer,
        schedule,
        workdir,
        epochs,
        length,
        log_every_steps,
        checkpoint_every_steps,
    )
    with (
        signals or StopSignals(shared=trainer.team.count > 1) as signals,
        contextlib.closing(run.progress),
        contextlib.closing(run.checkpoints),
    ):
        trainer.team.watch(signals)
        return run.to_the_end(signals, observe)


def _summed(values: Nest) -> Nest:
    """Returns the sums over the replicas; TensorFlow joins those of one dtype in buffers."""
    flat = tf.nest.flatten(values)
    for dtype in {value.dtype: None for value in flat}:
        chosen = [i for i, value in enumerate(flat) if value.dtype == dtype]
        sums = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [flat[i] for i in chosen]
        )
        for i, total in zip(chosen, sums, strict=True):
            flat[i] = total
    return tf.nest.pack_sequence_as(values, flat)


def _add(sums: dict[str, float], metrics: Mapping[str, float]) -> None:
    """Adds a step's mean metrics to sums, each times the step's weight, and the weight itself."""
    for name, value in metrics.items():
        weight = 1.0 if name == "weight" else metrics["weight"]
        sums[name] = sums.get(name, 0.0) + weight * value


def _means(sums: Mapping[str, float]) -> dict[str, float]:
    """Returns the weighted means of the metrics in sums that `_add` made."""
    return {
        name: value / sums["weight"] for name, value in sums.items() if name != "weight"
    }


class _Run:
    """A run in progress: the contents of a checkpoint, and the steps to the run's end."""

    def __init__(
        self,
        trainer,
        schedule,
        workdir,
        epochs,
        length,
        log_every_steps,
        checkpoint_every_steps,
    ):
        self.trainer: Trainer = trainer
        self.team = trainer.team
        self.task: Task = trainer.task
        self.schedule: schedules.Schedule = schedule
        self.epochs: int = epochs
        self.length: int = length  # in steps
        self.log_every_steps: int = log_every_steps
        self.checkpoint_every_steps: int | None = checkpoint_every_steps
        self.step = 0
        self.losses: list[float] = []  # of the validation data, one an epoch
        self.best = (math.inf, 0)  # loss, epoch
        self.state: Nest = trainer.spread(self.task.initial_state())
        self.epoch_sums: dict[str, float] = {}
        self.interval_sums: dict[str, float] = {}
        self.former_replicas = trainer.replicas
        self.pace = 1  # most steps of a call; the first call traces and has one
        self.check_held = workdir.check_held
        self.progress: progress.Progress | followers.NoProgress = followers.NoProgress()
        self.checkpoints: checkpoints.Checkpoints | followers.NoCheckpoints
        self.checkpoints = followers.NoCheckpoints()
        if self.team.is_chief:
            self.checkpoints = checkpoints.Checkpoints(workdir.path / "checkpoints")
        found = self.team.share(self.checkpoints.restore())
        self.meter = costs.Meter(self._restore(found))
        check_epochs(workdir.path, len(self.losses), epochs)
        if found is None:
            _refuse_remains(workdir)
            self.checkpoints.begin(self._arrays())
        self.news: list[str] = []  # lines to print at the beginning
        changes = self._change(workdir)
        if self.team.is_chief:
            self.progress = progress.Progress(
                workdir.path,
                display=self.task.display,
                unit=self.task.unit,
                epochs=epochs,
                length=self.length,
                step=self.step,
                changes=changes,
            )
        self.checkpoints.announce = self.progress.say

    def to_the_end(
        self, signals: StopSignals, observe: Observe | None = None
    ) -> Result:
        """Trains to the end or the first signal."""
        try:
            self._epochs(signals, observe or (lambda losses: None))
        except NonFiniteLossError:
            self.checkpoints.write_best()  # of an earlier epoch, if the disk had no room for them
            raise
        if signals.received:
            self._interrupt(signals)
        unsaved = None if signals.received else self._end()
        cost = self.meter.read()
        result = Result(
            not signals.received, self.step, len(self.losses), *self.best, cost
        )
        return result._replace(lost_epoch=self._lost_epoch(), unsaved=unsaved)

    def _epochs(self, signals: StopSignals, observe: Observe) -> None:
        if self.step and len(self.losses) < self.epochs:
            self.progress.say(
                f"going on from step {self.step}, epoch {len(self.losses) + 1}"
            )
        for line in self.news:
            self.progress.say(line)
        if self.losses:
            observe(self.losses)
        batches = None
        while len(self.losses) < self.epochs and not signals.received:
            if batches is None:
                batches = self.trainer.batches(self.step)
            self._steps_of_epoch(batches, signals)
            if signals.received:
                break
            with contextlib.suppress(stopping.StoppedError):
                self._end_epoch(signals)
                observe(self.losses)

    def _steps_of_epoch(self, batches: Iterator[Nest], signals: StopSignals) -> None:
        start, end = (self._end_of(len(self.losses) + more) for more in (0, 1))
        if self.step == start:
            self.epoch_sums = {}
        while self.step < end:
            count = self._agree(self._next_count(end), signals)
            if signals.received:
                break
            if self.step % self.task.steps_per_epoch == 0:
                self.state = self.trainer.spread(self.task.initial_state())
            self._call(batches, count)
            if self.step % self.log_every_steps == 0:
                self._log()
            every = self.checkpoint_every_steps
            if every and self.step % every == 0 and self.step < end:
                self._save()

    def _agree(self, value: Any, signals: StopSignals) -> Any:
        """Returns the chief's value; all workers stop here for a signal that any has received."""
        value, heard = self.team.agree([value, signals.heard])
        signals.accept(heard)
        return value

    def _next_count(self, end: int) -> int:
        """Returns how many steps fit before something is due or signals must be checked."""
        due = [
            n - self.step % n
            for n in (self.log_every_steps, self.checkpoint_every_steps)
            if n
        ]
        of_pass = self.task.steps_per_epoch
        # The batch may have a shape of its own.
        last = of_pass - 1 - self.step % of_pass
        return max(1, min(*due, last, end - self.step, self.pace))

    def _end_of(self, epoch: int) -> int:
        """Returns the step after which an epoch ends, counted from 1."""
        return epoch * self.length // self.epochs

    def _call(self, batches: Iterator[Nest], count: int) -> None:
        """Takes steps and waits for their results, so no checkpoint follows a failed step."""
        began = time.monotonic()
        metrics, self.state = self.trainer.steps(batches, self.state, count)
        self._add({name: values.numpy().tolist() for name, values in metrics.items()})
        seconds = time.monotonic() - began
        # At most double: these batches may have been prefetched, and the next ones may not be.
        self.pace = min(2 * count, int(_CALL_SECONDS * count / seconds))
        self.progress.advance(count, seconds)

    def _end_epoch(self, signals: StopSignals) -> None:
        """Evaluates and saves; on a signal, raises StoppedError and changes nothing."""
        self.check_held()
        began = time.monotonic()
        epoch = len(self.losses) + 1
        trained = self.task.model.trainable_variables
        with self.trainer.optimizer.evaluation_weights(trained):
            validation = self._validation(signals)
            loss = validation["loss"]
            if not math.isfinite(loss):
                raise NonFiniteLossError(self.step, f"validation loss {loss}")
            if best := loss < self.best[0]:
                self.best = (loss, epoch)
                self.checkpoints.save_best(self._weights(), epoch)
        self.losses.append(loss)
        seconds = time.monotonic() - began
        self.progress.epoch(
            _means(self.epoch_sums),
            validation,
            best=best,
            kept=self.checkpoints.unwritten_best is None,
            seconds=seconds,
        )
        if change := self.schedule.after_epoch(self.losses, self.trainer.optimizer):
            self.progress.say(change)
        self._save()

    def _validation(self, signals: StopSignals) -> dict[str, float]:
        """Returns the validation metrics, which the chief alone computes."""
        validation = None
        if self.team.is_chief:
            with contextlib.suppress(stopping.StoppedError), signals.at_once():
                validation = self.task.evaluate()
        validation = self._agree(validation, signals)
        if validation is None:
            raise signals.error()
        return validation

    def _add(self, metrics: Mapping[str, list[float]]) -> None:
        """Counts steps and adds their metrics."""
        for row in zip(*metrics.values(), strict=True):
            self.step += 1
            values = dict(zip(metrics, row, strict=True))
            loss, norm = values["loss"], values["gradient_norm"]
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise NonFiniteLossError(
                    self.step, f"loss {loss}, gradient norm {norm}"
                )
            _add(self.epoch_sums, values)
            _add(self.interval_sums, values)
            self.meter.add(values["weight"])

    def _log(self) -> None:
        sums, self.interval_sums = self.interval_sums, {}
        optimizer = self.trainer.optimizer
        rate = float(optimizer.annealed(optimizer.learning_rate).numpy())
        self.progress.interval(_means(sums), sums["weight"], rate)

    def _interrupt(self, signals: StopSignals) -> None:
        self._save_now()
        say = stopping.say if signals.received == "SIGPIPE" else self.progress.say
        say(
            f"{signals.reason} after step {self.step}; "
            f"the same command goes on from step {self.checkpoints.saved or 0}"
        )

    def _end(self) -> checkpoints.Unsaved | None:
        """Writes what a finished run does not have on disk; returns what cannot be written."""
        saved = self._save_now()
        if not self.checkpoints.unwritten_best:
            self._find_best()
        if not self.best[1]:
            saved = self._keep_last() and saved
        if self.team.agree(saved):
            return None
        arrays = self._arrays()  # with the other workers' shares
        if isinstance(self.checkpoints, followers.NoCheckpoints):
            return None
        return checkpoints.Unsaved(self.checkpoints, self.step, arrays)

    def _keep_last(self) -> bool:
        """Keeps the last epoch's weights as the best, which are lost; returns whether it did."""
        epoch = len(self.losses)
        self.progress.say(
            f"the weights of the last epoch, {epoch}, are kept as the best"
        )
        self.best = (self.losses[-1], epoch)
        with self.trainer.optimizer.evaluation_weights(
            self.task.model.trainable_variables
        ):
            return self.checkpoints.save_best(self._weights(), epoch)

    def _save_now(self) -> bool:
        """Writes what is not on disk; returns whether everything is there now."""
        self.check_held()
        self.progress.flush()
        self.checkpoints.wait()
        store = self.checkpoints
        if self.team.agree(store.saved == self.step and not store.unwritten_best):
            return True
        return self.checkpoints.save(self.step, self._arrays())

    def _save(self) -> None:
        """Copies everything for a checkpoint; a thread writes it while training continues."""
        self.check_held()
        self.progress.flush()
        self.checkpoints.wait()  # memory holds one copy at a time
        self.checkpoints.start_saving(self.step, self._arrays())

    def _arrays(self) -> dict[str, np.ndarray]:
        state = tf.nest.flatten(self.trainer.gather(self.state))
        return {
            **self._weights(),
            **variables.arrays(self._optimizer_variables()),
            **{f"state/{i}": tensor.numpy() for i, tensor in enumerate(state)},
            **{f"sums/{name}": np.float64(v) for name, v in self.epoch_sums.items()},
            **{
                f"interval/{name}": np.float64(v)
                for name, v in self.interval_sums.items()
            },
            "losses": np.array(self.losses, "float64"),
            "best": np.array(self.best, "float64"),
            **{
                f"cost/{name}": np.float64(v)
                for name, v in self.meter.read()._asdict().items()
            },
            "replicas": np.int64(self.trainer.replicas),
        }

    def _weights(self) -> dict[str, np.ndarray]:
        return variables.arrays(variables.of_model(self.task.model))

    def _optimizer_variables(self) -> dict[str, keras.Variable]:
        return variables.of_optimizer(self.trainer.optimizer, self.task.model)

    def _change(self, workdir: Workdir) -> tuple[Change, ...]:
        """Applies changed config values from this step on; returns all changes of the run.

        The step and the schedule already read the new values. Only the learning rate is a variable,
        restored from the checkpoint. A checkpoint of the step of a change may precede or follow the
        change, so the rate is set in both cases.
        """
        new = len(workdir.pending)
        epoch = round(self.step * self.epochs / self.length, 4)
        told = self.team.agree([*workdir.record(self.step, epoch)])
        changes = tuple(Change(*each) for each in told)
        self.news = [str(change) for change in changes[len(changes) - new :]]
        if self.former_replicas != self.trainer.replicas:
            self.news.append(
                f"{self.trainer.replicas} replicas instead of {self.former_replicas} "
                f"from step {self.step} on, with other masks"
            )
        rates = [
            each.now
            for each in changes
            if each.step >= self.step and each.field == _RATE
        ]
        if rates:
            rate = float(self.trainer.optimizer.learning_rate.numpy())
            self.trainer.optimizer.learning_rate = rates[-1]
            if rate != rates[-1]:
                self.news.append(f"learning rate {rate:g} -> {rates[-1]:g}")
        return changes

    def _restore(self, found: workers.Step | None) -> costs.Cost:
        """Restores the newest checkpoint, if there is one; returns its cost."""
        if found is None:
            return costs.Cost()
        step, arrays = found
        try:
            cost = self._take(step, arrays)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise WorkdirError(
                f"the checkpoint of step {step} in {self.checkpoints.folder} is not one of "
                f"this model: {error}; choose another --workdir"
            ) from error
        self._find_best()
        return cost

    def _take(self, step: int, arrays: Mapping[str, np.ndarray]) -> costs.Cost:
        """Restores a checkpoint; returns its cost."""
        self.step = step
        self.former_replicas = int(arrays.get("replicas", self.trainer.replicas))
        replicas, here = self.former_replicas, self.trainer.replicas
        if replicas != here and not self.trainer.allow_replicas_change:
            raise WorkdirError(
                f"{self.checkpoints.folder.parent} belongs to a run on {replicas} replicas, and "
                f"here are {here}; give it as many devices (--distribute), or "
                "choose another folder. Each replica draws its own masks; "
                "--allow_replicas_change goes on with others"
            )
        variables.assign(variables.of_model(self.task.model), arrays)
        variables.assign(self._optimizer_variables(), arrays)
        former = self.task.initial_state()
        state = [
            tf.convert_to_tensor(variables.as_dtype(arrays[f"state/{i}"], tensor.dtype))
            for i, tensor in enumerate(tf.nest.flatten(former))
        ]
        self.state = self.trainer.spread(tf.nest.pack_sequence_as(former, state))
        self.epoch_sums = _scalars("sums/", arrays)
        self.interval_sums = _scalars("interval/", arrays)
        self.losses = arrays["losses"].tolist()
        self.best = (float(arrays["best"][0]), int(arrays["best"][1]))
        return costs.Cost(
            *(float(arrays.get(f"cost/{k}", math.nan)) for k in costs.Cost._fields)
        )

    def _find_best(self) -> None:
        """Compares the best weights on disk with the run's record, and reports lost weights.

        Weights may be of an epoch after the checkpoint, if the process was killed before the next
        checkpoint. The run will compute them again.
        """
        loss, epoch = self.best
        found = self.checkpoints.best_epoch(unsaid=epoch)
        if found == epoch:
            return
        done = len(self.losses)
        kept = 0 < found <= done
        self.best = (self.losses[found - 1], found) if kept else (math.inf, 0)
        if epoch and found <= done:
            of = (
                f"those of epoch {found}"
                if kept
                else "the best of the epochs from here on"
            )
            self.checkpoints.announce(
                f"{self.checkpoints.folder / checkpoints.BEST} lacks the weights of the best "
                f"epoch, {epoch} (loss {loss:.4g}): they are lost; kept are {of}"
            )

    def _lost_epoch(self) -> int:
        if not self.losses:
            return 0
        best = self.losses.index(min(self.losses)) + 1
        return best if best != self.best[1] else 0


def _refuse_remains(workdir: Workdir) -> None:
    """Raises WorkdirError if a folder has traces of a run but no checkpoint."""
    names = (RESULT, progress.METRICS, f"checkpoints/{checkpoints.BEST}")
    if remains := [name for name in names if exists(workdir.path / name)]:
        raise WorkdirError(
            f"{workdir.path} holds {' and '.join(remains)} of a run, and its checkpoints are gone; "
            "bring them back from a backup, or choose another --workdir"
        )


def _scalars(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the numbers whose names have a prefix, by the rest of the name."""
    found = {name: value for name, value in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): float(value) for name, value in found.items()}
