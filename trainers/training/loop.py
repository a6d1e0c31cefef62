"""The training loop of all tasks: epochs, evaluations, checkpoints, signals.

Batches and masks are functions of the seed and the step. So a checkpoint needs only variables and a
step, and a resumed run equals one that never stopped.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainers.training import (
    checkpoints,
    followers,
    progress,
    resources,
    run_state,
    schedules,
    stopping,
)
from trainers.training.run_state import RunState, Sums
from trainers.training.stopping import StopSignals
from trainers.training.trainer import Nest, Trainer
from trainers.training.workdir import Workdir, check_epochs

Observe = Callable[[Sequence[float]], None]
"""Takes the validation losses of a run's epochs; an error that it raises ends the run."""

_CALL_SECONDS = 1.0  # the longest call; Python handles no signal during it


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
        solved: whether it ended by its right answers, before its last epoch.
    """

    finished: bool
    step: int
    epochs: int
    best_loss: float
    best_epoch: int
    cost: resources.Cost
    lost_epoch: int
    unsaved: checkpoints.Unsaved | None
    solved: bool


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
        trainer: takes the steps.
        schedule: changes the optimizer after an epoch.
        workdir: the folder for checkpoints and records.
        epochs: the length of the run.
        steps: its length in training steps, if `epochs` are not passes over the data but equal
            parts of the run; else 0.
        log_every_steps: how often to print and record metrics.
        checkpoint_every_steps: how often to write a checkpoint within an epoch. One more follows
            each epoch.
        signals: records signals. Default: the loop's own recorder.
        observe: takes the losses when a run goes on, and after each epoch, which is saved then.

    Returns:
        how the run ended. `checkpoints.load_best` reads the best weights, unless they are
        `unsaved`.

    Raises:
        NonFiniteLossError: the loss or the gradient is NaN or infinite. Earlier checkpoints stay.
        WorkdirError: the folder's run has another number of replicas, its checkpoints cannot be
            read, or none can be written.
    """
    pass_steps = trainer.task.steps_per_epoch
    plan = schedules.Plan(
        epochs,
        steps or epochs * pass_steps,
        pass_steps,
        log_every_steps,
        checkpoint_every_steps,
        trainer.stages.costs,
    )
    run = _Run(trainer, schedule, workdir, plan)
    with (
        signals or StopSignals(shared=trainer.team.count > 1) as signals,
        contextlib.closing(run.progress),
        contextlib.closing(run.checkpoints),
    ):
        trainer.team.watch(signals)
        return run.to_the_end(signals, observe)


class _Run:
    """A run in progress: the steps from what it has come to, to its end."""

    def __init__(
        self,
        trainer: Trainer,
        schedule: schedules.Schedule,
        workdir: Workdir,
        plan: schedules.Plan,
    ):
        self.trainer = trainer
        self.team = trainer.team
        self.task = trainer.task
        self.schedule = schedule
        self.plan = plan
        self.pace = 1  # most steps of a call; the first call traces and has one
        self.check_held = workdir.check_held
        self.progress: progress.Progress | followers.Nothing = followers.Nothing()
        self.checkpoints: run_state.Store = followers.NoCheckpoints()
        if self.team.is_chief:
            self.checkpoints = checkpoints.Checkpoints(
                workdir.path / "checkpoints",
                run_id=workdir.run.run_id,
                check_held=workdir.check_held,
            )
        # The state first: the records and the display go on from its step.
        self.state = self._begin(workdir)
        epoch = round(self.state.step * plan.epochs / plan.length, 4)
        changes, self.news = self.state.apply_changes(workdir, epoch)
        if self.team.is_chief:
            self.progress = progress.Progress(
                workdir.path,
                self.task,
                plan,
                step=self.state.step,
                changes=changes,
                check_held=workdir.check_held,
            )
        # Until here what they announce is printed: there was no display for it to break.
        self.checkpoints.announce = self.progress.say

    def _begin(self, workdir: Workdir) -> RunState:
        """Restores the newest checkpoint, or writes the first; returns what the run has come to."""
        checkpoint = self.team.share(self.checkpoints.restore())
        state = RunState(self.trainer)
        if checkpoint:
            state.go_on_from(*checkpoint, self.checkpoints)
        check_epochs(workdir.path, len(state.losses), self.plan.epochs)
        if not checkpoint:
            run_state.refuse_remains(workdir)
            self.checkpoints.begin(state.arrays())
        return state

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
        state = self.state
        return Result(
            finished=not signals.received,
            step=state.step,
            epochs=len(state.losses),
            best_loss=state.best[0],
            best_epoch=state.best[1],
            cost=state.cost(),
            lost_epoch=state.lost_epoch(),
            unsaved=unsaved,
            solved=state.solved,
        )

    def _epochs(self, signals: StopSignals, observe: Observe) -> None:
        state = self.state
        if state.step and not self._at_end():
            self.progress.say(
                f"going on from step {state.step}, epoch {len(state.losses) + 1}"
            )
        for line in self.news:
            self.progress.say(line)
        if state.losses:
            observe(state.losses)
        # One iterator over all epochs; none for a run that is at its end, which reads no data.
        batches = None
        while not self._at_end() and not signals.received:
            if batches is None:
                batches = self.trainer.batches(state.step)
            self._train_epoch(batches, signals)
            if signals.received:
                break
            # A signal in an evaluation leaves the epoch open: the resumed run evaluates it again.
            with contextlib.suppress(stopping.StoppedError):
                self._end_epoch(signals)
                observe(state.losses)

    def _at_end(self) -> bool:
        losses = self.state.losses
        is_last = len(losses) == self.plan.epochs or self.state.solved
        return is_last or self.schedule.stops(losses)

    def _train_epoch(self, batches: Iterator[Nest], signals: StopSignals) -> None:
        state, plan = self.state, self.plan
        start, end = (plan.epoch_end(len(state.losses) + more) for more in (0, 1))
        if state.step == start:  # else the checkpoint has the sums of the epoch so far
            state.epoch_sums = Sums()
        while state.step < end:
            # All workers make calls of one length: their replicas sum gradients at each step.
            count = self._agree(
                min(plan.until_due(state.step, end), self.pace), signals
            )
            if signals.received:
                break
            # A state is carried through one pass over the data, which may hold several epochs.
            if state.step % plan.pass_steps == 0:
                state.begin_pass()
            self._call(batches, count)
            if state.step % plan.log_every_steps == 0:
                self._log()
            every = plan.checkpoint_every_steps
            # At the end of an epoch a checkpoint follows the validation.
            if every and state.step % every == 0 and state.step < end:
                self._save()

    def _agree(self, value: Any, signals: StopSignals) -> Any:
        """Returns the chief's value; all workers stop here for a signal that any has received."""
        value, heard = self.team.agree([value, signals.heard])
        signals.accept(heard)
        return value

    def _call(self, batches: Iterator[Nest], count: int) -> None:
        """Takes steps and waits for their results, so no checkpoint follows a failed step."""
        began = time.monotonic()
        state = self.state
        stage = self.plan.stage(state.step)
        metrics, state.carried = self.trainer.steps(
            batches, state.carried, count, stage
        )
        columns = [values.numpy().tolist() for values in metrics.values()]
        # Step by step, so that the error names the first one whose loss is not finite.
        for row in zip(*columns, strict=True):
            values = dict(zip(metrics, row, strict=True))
            _check_finite(values, state.step + 1)
            state.add(values)
        seconds = time.monotonic() - began
        # At most double: these batches may have been prefetched, and the next ones may not be.
        self.pace = max(1, min(2 * count, int(_CALL_SECONDS * count / seconds)))
        self.progress.advance(count, seconds)

    def _end_epoch(self, signals: StopSignals) -> None:
        """Evaluates and saves; on a signal, raises StoppedError and changes nothing."""
        self.check_held()
        began = time.monotonic()
        state = self.state
        validation, best = self._evaluate(signals)
        state.solved = self.schedule.is_solved(validation)
        seconds = time.monotonic() - began
        self.progress.epoch(
            state.epoch_sums.means(),
            validation,
            best=best,
            written=self.checkpoints.unwritten_best is None,
            seconds=seconds,
        )
        # Before the checkpoint, which holds what the schedule changes: a resumed run does not
        # change it again.
        self._follow_schedule()
        self._save()

    def _evaluate(self, signals: StopSignals) -> tuple[dict[str, float], bool]:
        """Returns the validation metrics, and whether the epoch is the best; saves its weights."""
        state = self.state
        trained = self.task.model.trainable_variables
        # Weights are validated and saved as they are evaluated: averaged, where the optimizer
        # averages.
        with self.trainer.optimizer.evaluation_weights(trained):
            validation = self._validation(signals)
            epoch = len(state.losses) + 1
            loss = _loss(validation, epoch)
            if not math.isfinite(loss):
                raise NonFiniteLossError(state.step, f"validation loss {loss}")
            # Less, not equal: of equal epochs the first one stays. NaN has raised above.
            if best := loss < state.best[0]:
                state.best = (loss, epoch)
                self.checkpoints.save_best(state.weights(), epoch)
        state.losses.append(loss)
        return validation, best

    def _follow_schedule(self) -> None:
        """Lowers the rate or starts averages as the losses ask for; says so."""
        losses = self.state.losses
        if change := self.schedule.after_epoch(losses, self.trainer.optimizer):
            self.progress.say(change)
        if self.state.solved:
            share = self.schedule.stop_at
            self.progress.say(
                f"at least {share:.0%} of the validation answers are right: the run ends"
            )
        if self.schedule.stops(losses):
            self.progress.say(
                "the validation loss has not fallen for "
                f"{self.schedule.stop_after} epochs: the run ends"
            )

    def _validation(self, signals: StopSignals) -> dict[str, float]:
        """Returns the validation metrics, which the chief alone computes."""
        # None also where a signal has cut it short; the others hear of it by `_agree`.
        validation = None
        if self.team.is_chief:
            with contextlib.suppress(stopping.StoppedError), signals.at_once():
                validation = self.task.evaluate()
        validation = self._agree(validation, signals)
        if validation is None:
            raise signals.error()
        return validation

    def _log(self) -> None:
        sums, self.state.interval_sums = self.state.interval_sums, Sums()
        optimizer = self.trainer.optimizer
        rate = float(optimizer.annealed(optimizer.learning_rate).numpy())
        self.progress.interval(sums.means(), sums.values["weight"], rate)

    def _interrupt(self, signals: StopSignals) -> None:
        self._save_now()
        # Nobody reads the output any more after SIGPIPE; `stopping.say` writes to stderr.
        say = stopping.say if signals.received == "SIGPIPE" else self.progress.say
        say(
            f"{signals.reason} after step {self.state.step}; "
            f"the same command goes on from step {self.checkpoints.saved or 0}"
        )

    def _end(self) -> checkpoints.Unsaved | None:
        """Writes what a finished run does not have on disk; returns what cannot be written."""
        saved = self._save_now()
        # Somebody may have removed or changed the file since it was written.
        if not self.checkpoints.unwritten_best:
            self.state.compare_best(self.checkpoints)
        if not self.state.best[1]:
            saved = self._keep_last() and saved
        if self.team.agree(saved):
            return None
        arrays = self.state.arrays()  # with the other workers' shares
        if isinstance(self.checkpoints, followers.NoCheckpoints):
            return None
        return checkpoints.Unsaved(self.checkpoints, self.state.step, arrays)

    def _keep_last(self) -> bool:
        """Keeps the last epoch's weights as the best, which are lost; returns whether it did."""
        state = self.state
        epoch = len(state.losses)
        self.progress.say(
            f"the weights of the last epoch, {epoch}, are kept as the best"
        )
        state.best = (state.losses[-1], epoch)
        with self.trainer.optimizer.evaluation_weights(
            self.task.model.trainable_variables
        ):
            return self.checkpoints.save_best(state.weights(), epoch)

    def _save_now(self) -> bool:
        """Writes what is not on disk; returns whether everything is there now."""
        self.check_held()
        self.progress.flush()
        self.checkpoints.wait()
        store, state = self.checkpoints, self.state
        # Together: `state.arrays` gathers the shares of all workers.
        if self.team.agree(store.saved == state.step and not store.unwritten_best):
            store.remove_old()  # a store that failed for some time may have kept many
            return True
        return store.save(state.step, state.arrays())

    def _save(self) -> None:
        """Copies everything for a checkpoint; a thread writes it while training continues."""
        self.check_held()
        self.progress.flush()
        self.checkpoints.wait()  # memory holds one copy at a time
        self.checkpoints.start_saving(self.state.step, self.state.arrays())


def _loss(validation: Mapping[str, float], epoch: int) -> float:
    """Returns the loss by which the best epoch is chosen.

    Without validation data it is a number that falls from epoch to epoch, which the last one wins.
    """
    return validation["loss"] if validation else -float(epoch)


def _check_finite(metrics: Mapping[str, float], step: int) -> None:
    """Raises NonFiniteLossError if a step's loss or gradient norm is NaN or infinite."""
    loss, norm = metrics["loss"], metrics["gradient_norm"]
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise NonFiniteLossError(step, f"loss {loss}, gradient norm {norm}")
