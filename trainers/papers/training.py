"""A run of `trainers.reproduce` from its first step, or its last checkpoint, to its card."""

import contextlib
import math
import platform
import time
from collections.abc import Mapping
from typing import Any

import jax
import keras
import numpy as np
from etils import epath
from ml_collections import ConfigDict

from configs.papers import Row
from trainers.data import files, names
from trainers.papers.rows import expected
from trainers.papers.step import Devices, Rule, State, make_step, slot_name
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.training import checkpoints, resources, schedules, variables
from trainers.training.experiment import SPLITS
from trainers.training.stopping import StoppedError, StopSignals
from trainers.training.table import EPOCH, METRICS, VALIDATION, Table
from trainers.training.workdir import WorkdirError, open_workdir

CARD = "card.md"
_AHEAD = 8  # steps that the devices may be behind
_LOG_SECONDS = 30.0  # between two lines
_SAVE_SECONDS = 300.0  # between two checkpoints within an epoch
_FAR = 0.3  # nats above what is expected, at which a run has left its curve


class LeftCurveError(ArithmeticError):
    """A loss is no number, or far above what is expected; the message says where."""


def reproduce(
    config: ConfigDict,
    data_dir: str | None,
    path: epath.Path,
    row: Row | None = None,
    deadline: float = math.inf,
) -> bool:
    """Trains a run to its end or the deadline, from where it stopped; at the end scores it.

    Args:
        config: the run's config.
        data_dir: the folder of the task's data.
        path: the run's folder.
        row: the row that the run is for; None: it has no published number.
        deadline: when to stop, by `time.monotonic`.

    Returns:
        whether the run has finished. If not, the same call goes on with it.

    Raises:
        LeftCurveError: the loss is no number, or far from the curve. Earlier checkpoints stay.
        ValueError, OSError, WorkdirError: the data or the folder cannot be used.
        NotKeptError: the last checkpoint could not be written.
        StoppedError: a signal came, and everything is saved.
    """
    keras.utils.set_random_seed(config.seed)
    reproduced = registry.get(config.task).reproduced()
    parts, keep = reproduced.load(config, data_dir, path)
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        stack.enter_context(signals.output())
        opened = open_workdir(path, config.to_dict(), upgrade=configs.upgrade)
        folder = stack.enter_context(opened)
        store = checkpoints.Checkpoints(
            path / "checkpoints",
            run_id=folder.run.run_id,
            check_held=folder.check_held,
        )
        stack.callback(store.close)
        keep()
        if (result := folder.result()) is not None:
            print(f"{path} holds a finished run: {result['summary']}", flush=True)
            return True

        run = Run(config, parts, row)
        _fill(run, store)
        folder.record(run.done, run.epoch)
        table = Table(path / METRICS, last_step=run.done)
        print(f"{run}, in {path}", flush=True)
        seconds = _train(run, store, table, signals, deadline)
        try:
            table.flush()
        except OSError as error:
            print(f"records in {table.path} cannot be written ({error})", flush=True)
        checkpoints.Unsaved(store, run.done, run.arrays()).save()
        signals.check()
        if not run.ended or time.monotonic() + 4 * seconds >= deadline:
            print(f"saved after step {run.done}; the same command goes on", flush=True)
            return False
        # Score the best weights by both protocols; this alone reads the test data.
        with signals.at_once():
            checkpoints.load_best(path, run.model)
            weights = variables.model_variables(run.model)
            values = {name: variable.value for name, variable in weights.items()}
            scores = {split: parts.scores(values, split) for split in SPLITS}
        told = [f"{split} {run.describe(each)}" for split, each in scores.items()]
        summary = "; ".join(told)
        write_card(path, run, scores)
        ours = {"summary": summary, "scores": scores, "beside": []}
        folder.finish({**run.result(), **ours})
        print(f"{summary}\n{path / CARD} has the details", flush=True)
        return True


def _fill(run: "Run", store: checkpoints.Checkpoints) -> None:
    """Fills a run from its newest checkpoint; a new run gets its first one.

    Raises:
        WorkdirError: no checkpoint can be read, or a new run would replace weights.
    """
    checkpoint = store.restore()
    run.fill(checkpoint[1] if checkpoint else {}, store)
    if checkpoint is not None:
        return
    if files.exists(best := store.folder / checkpoints.BEST):
        raise WorkdirError(
            f"{best} is there without a checkpoint of its run, and a new run would replace "
            "it; choose another --workdir"
        )
    store.begin(run.arrays())


def _train(
    run: "Run",
    store: checkpoints.Checkpoints,
    table: Table,
    signals: StopSignals,
    deadline: float,
) -> float:
    """Trains epoch after epoch, to the end, a signal or the deadline.

    Returns:
        the seconds of the last validation.
    """
    saved, seconds = time.monotonic(), 0.0
    every = run.config.training.checkpoint_every_steps
    while not run.ended:
        # Train to the end of the epoch.
        end = run.epoch_end(len(run.losses) + 1)
        while run.done < end and not signals.received:
            if time.monotonic() >= deadline:
                break
            run.take_step()
            is_due = every and run.done % every == 0
            if is_due or time.monotonic() - saved > _SAVE_SECONDS:
                store.start_saving(run.done, run.arrays())
                saved = time.monotonic()
        if run.done < end or time.monotonic() + seconds >= deadline:
            break
        # Validate, with the averages if there are some; keep the best weights.
        run.settle(0)
        began = time.monotonic()
        with contextlib.suppress(StoppedError), signals.at_once():
            validation = run.parts.validation(run.weights())
        if signals.received:
            break
        seconds = time.monotonic() - began
        is_best, train = run.end_epoch(validation)
        if is_best:
            store.save_best(as_arrays(run.weights()), run.best[1])
        # Record the epoch, follow the schedule, write a checkpoint.
        _record(run, table, train, validation)
        if change := run.schedule.after_epoch(run.losses, run.rule):
            print(change, flush=True)
        store.start_saving(run.done, run.arrays())
        saved = time.monotonic()
    return seconds


def _record(
    run: "Run", table: Table, train: float, validation: Mapping[str, float]
) -> None:
    """Adds the losses of the epoch that ended to the table."""
    place = {"step": run.done, "epoch": run.epoch}
    for kind, values in ((EPOCH, {"loss": train}), (VALIDATION, validation)):
        # What a full disk does not take is written with the next row.
        with contextlib.suppress(OSError):
            if not table.has(kind, run.done):
                table.append({"kind": kind, **place, **values})


class Run:
    """What a run has come to: its arrays, its counts and its losses.

    Args:
        config: the run's config.
        parts: the model with its data: `Texts` or `Examples`.
        row: as for `reproduce`.

    Attributes:
        rule: the optimizer, which counts the steps.
        state: the arrays that steps change.
        losses: the validation loss of each epoch done.
        best: the least of them, with its epoch; infinity and 0 at first.
        length: the steps of the whole run.
    """

    def __init__(self, config: ConfigDict, parts: Any, row: Row | None = None) -> None:
        self.config, self.parts, self.row = config, parts, row
        self.model: keras.Model = parts.model
        self.devices = Devices(config.data.batch_size)
        self.rule = Rule(config)
        self.schedule = schedules.make_schedule(config)
        self.step = make_step(self.model, parts.loss, self.rule, config, self.devices)
        self.epochs = config.training.epochs
        self.length = schedules.length(config.training, parts.count)
        self.expected = expected(row) if row else {}
        self.losses: list[float] = []
        self.best = (math.inf, 0)
        self._logged = time.monotonic()
        self._sums = {"loss": 0.0, "weight": 0.0}
        self._meter = resources.Meter(resources.Cost())
        self._pending: list[jax.Array] = []
        self._named = variables.model_variables(self.model)

    def __str__(self) -> str:
        config, device = self.config, jax.devices()[0].device_kind
        return (
            f"{config.task}, preset {config.preset}: {self.parameters:,} parameters, "
            f"{self.devices.count} x {device}, step {self.done:,} of {self.length:,}"
        )

    @property
    def done(self) -> int:
        """The number of steps done."""
        return self.rule.iterations

    @property
    def epoch(self) -> float:
        """The epochs done, with the fraction of the current one."""
        return round(self.done * self.epochs / self.length, 4)

    @property
    def ended(self) -> bool:
        """Whether all epochs are done."""
        is_last = len(self.losses) == self.epochs
        return is_last or self.schedule.stops(self.losses)

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(math.prod(v.shape) for v in self.model.trainable_variables)

    def epoch_end(self, epoch: int) -> int:
        """Returns the step after which an epoch ends, counted from 1."""
        return epoch * self.length // self.epochs

    def fill(
        self,
        arrays: Mapping[str, np.ndarray],
        store: checkpoints.Checkpoints | None = None,
    ) -> None:
        """Takes the contents of a checkpoint in a store; {}: those of a new run.

        Raises:
            WorkdirError: the checkpoint is of another model or program.
        """
        # Copies: a step takes over the memory of what it is given.
        state = {name: np.array(v.value) for name, v in self._named.items()}
        for name, variable in self._named.items():
            for slot in self.rule.slot_names if variable.trainable else ():
                state[slot_name(name, slot)] = np.zeros(variable.shape, variable.dtype)
        state |= self._first_state()
        for name, first in state.items() if arrays else ():
            found = variables.as_dtype(arrays.get(name, np.zeros(0)), first.dtype.name)
            if found.shape != first.shape:
                raise WorkdirError(
                    "the newest checkpoint is none of this model and program: it lacks "
                    f"{name} of shape {first.shape}; choose another --workdir"
                )
            state[name] = found.astype(first.dtype)
        if arrays:
            self._take_counts(arrays, store)
        self.state = {
            n: jax.device_put(a, self.devices.of(n)) for n, a in state.items()
        }

    def _take_counts(self, arrays: Mapping[str, np.ndarray], store: Any) -> None:
        rule = self.rule
        rule.iterations = int(arrays["optimizer/iteration"])
        rule.learning_rate = np.float64(arrays["optimizer/learning_rate"])
        rule.averaged_from = int(arrays.get("optimizer/averaged_from", -1))
        rule.last_factor = float(arrays.get("optimizer/last_factor", 1.0))
        self.losses = arrays["losses"].tolist()
        loss, epoch = arrays["best"].tolist()
        self.best = (loss, int(epoch))
        # The best weights there may be of a later epoch, which will come again.
        if epoch and not store.best_epoch():
            self.best = (math.inf, 0)
            print("the best weights are missing; kept are those of the epochs to come")
        self._sums = {n: float(arrays.get(f"sums/{n}", 0.0)) for n in self._sums}
        cost = (float(arrays[f"cost/{name}"]) for name in resources.Cost._fields)
        self._meter = resources.Meter(resources.Cost(*cost))

    def _first_state(self) -> State:
        """Returns what the first batch of a pass begins with."""
        first = self.parts.first_state()
        return {f"state/{place}": np.array(each) for place, each in enumerate(first)}

    def take_step(self) -> None:
        """Begins a training step; the devices may still compute the ones before it."""
        number, stages = self.done, self.parts.stages.arguments
        if number and number % self.parts.count == 0:
            self.state |= jax.device_put(self._first_state(), self.devices.rows)
        batch, time_steps = self.parts.batch(number)
        stage = stages[number * len(stages) // self.length]
        placed, numbers = self.devices.put(batch), self.rule.next(time_steps)
        self.state, metrics = self.step(self.state, placed, numbers, **stage)
        self._pending.append(metrics)
        self.settle(_AHEAD)

    def settle(self, ahead: int) -> None:
        """Adds up the metrics of all steps but the last `ahead`; waits for them.

        Raises:
            LeftCurveError: a loss or a gradient is no number.
        """
        while len(self._pending) > ahead:
            loss, weight, norm = map(float, np.asarray(self._pending.pop(0)))
            step = self.done - len(self._pending)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise LeftCurveError(
                    f"step {step}: the loss is {loss / weight}, the gradient's norm {norm}"
                )
            self._sums["loss"] += loss
            self._sums["weight"] += weight
            self._meter.add(weight)
            if time.monotonic() - self._logged > _LOG_SECONDS:
                self._logged = time.monotonic()
                told = f"step {step:,} of {self.length:,}: loss {loss / weight:.4f}"
                print(told, flush=True)

    def weights(self) -> State:
        """Returns the values of the model's variables, averages in place of weights."""
        values = {name: self.state[name] for name in self._named}
        if self.rule.has_average:
            averages = {name: slot_name(name, "average") for name in values}
            values = {n: self.state.get(averages[n], values[n]) for n in values}
        return values

    def end_epoch(self, validation: Mapping[str, float]) -> tuple[bool, float]:
        """Counts an epoch; returns whether it is the best one, and its training loss.

        Raises:
            LeftCurveError: the validation loss is no number, or far above what is expected.
        """
        epoch, loss = len(self.losses) + 1, validation["loss"]
        train = self._sums["loss"] / self._sums["weight"]
        shown = ", ".join(f"{name} {value:.4f}" for name, value in validation.items())
        known = self.expected.get(epoch)
        beside = "" if known is None else f" (expected {known:.4f})"
        print(
            f"epoch {epoch} of {self.epochs}: training loss {train:.4f}; validation {shown}"
            f"{beside}; rate {self.rule.learning_rate:g}",
            flush=True,
        )
        most, whose = self.parts.guess, "equal probabilities"
        if known is not None:
            most, whose = known, f"docs/benchmarks/{self.row and self.row.curve}"
        if not loss <= most + _FAR:
            raise LeftCurveError(
                f"epoch {epoch}: the validation loss is {loss:.4f}, and must be at most {_FAR} "
                f"above the {most:.4f} of {whose}"
            )
        self.losses.append(loss)
        self._sums = {"loss": 0.0, "weight": 0.0}
        is_best = loss < self.best[0]
        self.best = (loss, epoch) if is_best else self.best
        return is_best, train

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the contents of a checkpoint, by the names that the trainers have for them."""
        self.settle(0)
        rule, cost = self.rule, self._meter.read()._asdict()
        numbers: dict[str, Any] = {
            "optimizer/iteration": np.int64(rule.iterations),
            "optimizer/learning_rate": rule.learning_rate,
            "optimizer/averaged_from": np.int64(rule.averaged_from),
            "optimizer/last_factor": np.float64(rule.last_factor),
            "losses": np.array(self.losses, "float64"),
            "best": np.array(self.best, "float64"),
            **{f"sums/{name}": np.float64(v) for name, v in self._sums.items()},
            **{f"cost/{name}": np.float64(value) for name, value in cost.items()},
        }
        return {**as_arrays(self.state), **numbers}

    def describe(self, scores: Mapping[str, Any]) -> str:
        """Returns the scores of a split, by protocol, in words."""
        measure, parts = self.parts.measure, []
        for protocol, score in scores.items():
            text = measure.format_score(score[measure.name], measure.count(score))
            parts.append(f"{protocol} {text}")
        return f"{measure.name}: {', '.join(parts)}"

    def result(self) -> dict[str, Any]:
        """Returns what `result.json` holds beside the scores."""
        cost = self._meter.read()._asdict()
        return {
            "epochs": len(self.losses),
            "best_epoch": self.best[1],
            "parameters": self.parameters,
            "cost": {n: None if math.isnan(v) else v for n, v in cost.items()},
        }


def as_arrays(state: State) -> dict[str, np.ndarray]:
    """Returns copies of arrays of devices."""
    return {name: np.array(value) for name, value in state.items()}


def write_card(path: epath.Path, run: Any, scores: Mapping[str, Any]) -> None:
    """Writes the card into a run's folder.

    Args:
        path: the folder.
        run: the run, at its end.
        scores: the scores by split and protocol.
    """
    config, row, measure = run.config, run.row, run.parts.measure
    minutes, device = run.result()["cost"]["seconds"] / 60, jax.devices()[0]
    preset = names.flatten(configs.load(config.task, config.preset))
    recipe = [f"--task={config.task}", f"--preset={config.preset}"]
    for name, (_, value) in names.differences(preset, names.flatten(config)).items():
        recipe.append(f"--config.{name}={str(value).replace(' ', '')}")
    facts = {
        "Recipe": f"{' '.join(recipe)}, seed {config.seed}",
        "Parameters": f"{run.parameters:,}",
        "Computed in": config.model.dtype,
        "Trained": f"{run.done:,} steps, {len(run.losses)} epochs, {minutes:,.1f} minutes",
        "Best epoch": f"{run.best[1]}",
        "Devices": f"{run.devices.count} x {device.device_kind} ({device.platform})",
        "Versions": f"JAX {jax.__version__}, Keras {keras.__version__}, "
        f"Python {platform.python_version()}",
    }
    for split, protocols in scores.items():
        for protocol, score in protocols.items():
            name = f"{split} {measure.name}, protocol `{protocol}`"
            facts[name.capitalize()] = measure.text(score[measure.name])
    if row is not None and row.published is not None:
        facts[f"Published ({row.table}: {row.what})"] = measure.text(row.published)
    lines = [f"# {config.task}, {config.preset}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    lines += ["", "| epoch | validation loss | expected |", "|---:|---:|---:|"]
    for epoch, loss in enumerate(run.losses, 1):
        known = run.expected.get(epoch)
        lines.append(
            f"| {epoch} | {loss:.4f} | {'' if known is None else f'{known:.4f}'} |"
        )
    files.write_text(path / CARD, "\n".join([*lines, ""]))
