"""The loop: its steps against NumPy, over replicas, stopped and resumed in all manner of ways."""

import contextlib
import csv
import errno
import functools
import io
import json
import os
import shutil
import signal
import sys
import threading
import time

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests.refusals import refuses
from tests.trainers.training import toy
from trainers import optimizers
from trainers.training import (
    checkpoints,
    loop,
    run_state,
    schedules,
    stopping,
    variables,
    workdir,
)
from trainers.training.trainer import Trainer

STEPS, EPOCHS = 5, 4
# The call of `display` after step 14, in the middle of an epoch; the last checkpoint is of step 12.
STOP = 11


def new_task():
    return toy.Task(steps_per_epoch=STEPS, dropout=0.3)


def trainer_of(task, strategy=None):
    return Trainer(task, toy.optimizer_of("sgd"), clip_norm=0.3, strategy=strategy)


@functools.cache
def traced():
    return toy.Traced(trainer_of(new_task()))


def as_new(bad_step=None):
    """Returns a task as a new one is, whose steps are traced already."""
    task = traced().as_new().task
    task.bad_step = bad_step
    return task


def train(folder, task=None, schedule=None, strategy=None, **arguments):
    """Trains the toy task in this process; returns the result, without its cost, and the task.

    By default the task is `as_new`; with a strategy it is built in its scope.
    """
    if strategy:
        with strategy.scope():
            trainer = trainer_of(new_task(), strategy)
    else:
        task, shared = task or as_new(), traced().trainer
        trainer = shared if task is shared.task else trainer_of(task)
    arguments = {
        "epochs": EPOCHS,
        "log_every_steps": 2,
        "checkpoint_every_steps": 2,
        **arguments,
    }
    usual = trainer.allow_replicas_change
    trainer.allow_replicas_change = arguments.pop("allow_replicas_change", usual)
    with workdir.open_workdir(folder, {}) as opened:
        result = loop.fit(
            trainer,
            schedule or schedules.Schedule(patience=1, average=True),
            opened,
            **arguments,
        )
    trainer.allow_replicas_change = usual
    return result._replace(cost=None), trainer.task


def flags(**arguments):
    return [f"--{name}={value}" for name, value in arguments.items()]


def program(forks, *runs):
    """Ends the toy's program in a process of its own, with one run after another."""
    return forks.run("-m", toy.__name__, json.dumps(runs))


def outcomes(forks, *runs):
    """What the toy's program printed of each run."""
    done = program(forks, *runs)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def flat(values):
    return np.concatenate([np.ravel(value) for value in values])


def values(task):
    return flat([variable.numpy() for variable in task.model.variables])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The result and the weights of a run that nothing happens to."""
    result, task = train(tmp_path_factory.mktemp("undisturbed") / "run")
    return result, values(task)


def assert_same(undisturbed, result, task):
    """A run has come to what the one came to that nothing happened to."""
    assert result == undisturbed[0]
    np.testing.assert_array_equal(values(task), undisturbed[1])


@pytest.fixture(scope="module")
def half_way(tmp_path_factory):
    """Returns the folder of a run of two epochs, trained once for any losses of these epochs."""

    @functools.cache
    def trained(losses=()):
        folder = tmp_path_factory.mktemp("half_way") / "run"
        task = as_new()
        if losses:
            losses_of(task, losses)
        train(folder, task, epochs=2)
        return folder

    return trained


@pytest.fixture
def half(half_way, tmp_path):
    """A copy of the folder of a run of two epochs, which is to go on."""
    return shutil.copytree(half_way(), tmp_path / "run")


def total_loss(task, ids, targets, state):
    """The mean loss, as a function of NumPy arrays alone."""
    table, recurrent, decoder = (v.numpy() for v in task.model.trainable_variables)
    loss = 0.0
    for t in range(ids.shape[1]):
        state = np.tanh(table[ids[:, t]] + state @ recurrent)
        logits = state @ decoder
        normalizer = np.log(np.exp(logits).sum(-1))
        loss += (normalizer - logits[np.arange(len(ids)), targets[:, t]]).sum()
        loss += 0.1 * (logits**2).sum()
    return loss / ids.size, state


def test_a_step_is_the_gradient_of_the_mean_clipped_then_applied():
    task = toy.Task()
    optimizer = optimizers.SGD(1.0)
    trainer = Trainer(task, optimizer, clip_norm=0.3)
    state = trainer.spread(task.initial_state())
    batches = trainer.batches(0)
    carried = np.zeros((4, toy.WIDTH))
    for _ in range(STEPS + 1):
        batch = next(batches)
        ids, targets = batch[0].numpy(), batch[1].numpy()
        before = [v.numpy() for v in task.model.trainable_variables]
        expected, carried = total_loss(task, ids, targets, carried)
        numeric = _numeric_gradient(task, ids, targets, state[0].numpy())
        metrics, state = trainer.step(batch, state)
        after = [v.numpy() for v in task.model.trainable_variables]
        norm = np.sqrt(sum((g**2).sum() for g in numeric))
        np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-12)
        np.testing.assert_allclose(
            metrics["prediction"] + metrics["penalty"], expected, rtol=1e-12
        )
        np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-6)
        assert metrics["weight"] == ids.size
        scale = min(1.0, 0.3 / (norm + 1e-6))
        for a, b, gradient in zip(after, before, numeric, strict=True):
            np.testing.assert_allclose(b - a, scale * gradient, atol=1e-7)
        np.testing.assert_allclose(state[0], carried, rtol=1e-12)
    assert task.traces == 2  # one for the epoch's last window, which is shorter


def _numeric_gradient(task, ids, targets, state, by=1e-6):
    gradients = []
    for variable in task.model.trainable_variables:
        value = variable.numpy()
        gradient = np.zeros_like(value)
        for index in np.ndindex(*value.shape):
            losses = []
            for sign in (by, -by):
                moved = value.copy()
                moved[index] += sign
                variable.assign(moved)
                losses.append(total_loss(task, ids, targets, state)[0])
            gradient[index] = (losses[0] - losses[1]) / (2 * by)
        variable.assign(value)
        gradients.append(gradient)
    return gradients


def test_two_replicas_give_what_one_gives_and_xla_what_is_not_compiled(tmp_path, forks):
    # The first run of a process makes its devices.
    chosen = [
        dict(optimizer="sgd", replicas=2),
        dict(optimizer="adam", replicas=2, jit_compile=1),
        dict(optimizer="sgd"),
        dict(optimizer="adam"),
    ]
    runs = [
        flags(workdir=tmp_path / str(number), dropout=0, **each)
        for number, each in enumerate(chosen)
    ]
    *twos, sgd, adam = outcomes(forks, *runs)
    for one, two in zip((sgd, adam), twos, strict=True):
        difference = np.abs(flat(one["variables"]) - flat(two["variables"])).max()
        assert difference < 1e-10
        best = one["result"], two["result"]
        assert best[0]["best_epoch"] == best[1]["best_epoch"]
        np.testing.assert_allclose(
            best[0]["best_loss"], best[1]["best_loss"], rtol=1e-12
        )
        assert (one["traces"], two["traces"]) == (2, 4)  # a trace on each replica


@hypothesis.settings(max_examples=5)
@hypothesis.given(data=st.data())
def test_how_many_steps_a_call_has_changes_no_bit(data):
    task = new_task()
    trainer = Trainer(task, toy.optimizer_of("adam"), clip_norm=0.3)
    first = [variable.numpy() for variable in toy.variables_of(trainer)]

    def outcome(counts):
        for variable, value in zip(toy.variables_of(trainer), first, strict=True):
            variable.assign(value)
        batches, state, told = trainer.batches(0), task.initial_state(), []
        for count in counts:
            metrics, state = trainer.steps(batches, state, count)
            told.append(np.stack(list(metrics.values()), 1))
        return flat([*toy.variables_of(trainer), *state, np.concatenate(told)])

    counts = []
    while (left := STEPS - 1 - sum(counts)) > 0:
        counts.append(data.draw(st.integers(1, left)))
    np.testing.assert_array_equal(outcome([*counts, 1]), outcome([1] * STEPS))
    assert task.traces == 2  # one for the epoch's last window, which is shorter


def test_batches_are_let_go_at_once():
    """The autotuning of tf.data kept about one iterator in four, and its run, for seconds."""
    trainer = Trainer(Numbers(), optimizers.SGD(1.0))
    iterators = [trainer.batches(0) for _ in range(20)]
    for _ in range(60):
        for iterator in iterators:
            next(iterator)
        time.sleep(0.05)
    began = time.monotonic()
    while iterators:
        iterators.pop()
    assert time.monotonic() - began < 2


class Numbers(toy.Task):
    """Has batches from TensorFlow alone, as the tasks on files."""

    def dataset(self, first_step):
        batches = tf.data.Dataset.range(first_step, 1_000_000)
        return batches.map(tf.square).prefetch(tf.data.AUTOTUNE)


def test_one_replica_is_a_run_on_one_device(tmp_path, undisturbed):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])  # as with one GPU
    assert_same(undisturbed, *train(tmp_path, strategy=strategy))


KILLS = {
    "between": ({"killed_at": STOP}, (10, 12)),  # the last is being written, or was
    # Beside checkpoints, the best weights of step 5.
    "best": ({"killed_writing": 4}, (4,)),
    "next": ({"killed_writing": 5}, (4,)),  # the checkpoint after these
}


@pytest.mark.parametrize(("replicas", "names"), [(1, [*KILLS]), (2, ["between"])])
def test_a_run_that_was_killed_ends_as_one_that_was_not(
    tmp_path, forks, replicas, names
):
    places = {name: tmp_path / name for name in names}
    kept = dict(replicas=replicas, jit_compile=replicas - 1, whole=replicas - 1)
    for name, place in places.items():
        killed, steps = KILLS[name]
        ended = program(forks, flags(workdir=place, **kept, **killed))
        assert ended.returncode == -signal.SIGKILL
        assert checkpoints.Checkpoints(place / "checkpoints").steps()[-1] in steps
    # With other numbers of steps a call.
    undisturbed = flags(workdir=tmp_path / "whole", every_steps=100, **kept)
    again = [flags(workdir=place, **kept) for place in places.values()]
    whole, *others = outcomes(forks, undisturbed, *again)
    table = _epoch_rows((tmp_path / "whole" / "metrics.csv").read_text())
    for place, resumed in zip(places.values(), others, strict=True):
        assert resumed["variables"] == whole["variables"]
        assert resumed["result"] == whole["result"]
        assert resumed["cost"]["weight"] == whole["cost"]["weight"]
        assert _epoch_rows((place / "metrics.csv").read_text()) == table


def _epoch_rows(table):
    rows = csv.DictReader(io.StringIO(table))
    return [
        {field: value for field, value in row.items() if value}
        for row in rows
        if row["kind"] != "train_interval"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_run_goes_on_from_there(
    tmp_path, capsys, undisturbed, number
):
    former = signal.getsignal(number)
    stopped = as_new()
    toy.send_at(stopped, STOP, number)
    result, _ = train(tmp_path, stopped, checkpoint_every_steps=None)
    assert not result.finished
    assert result.step == 14
    assert signal.getsignal(number) is former
    name = number.name
    line = f"stopped by {name} after step 14; the same command goes on from step 14"
    assert line in capsys.readouterr().out
    assert_same(undisturbed, *train(tmp_path))


@pytest.mark.parametrize("part", ["step", "input"])
def test_a_slow_run_hears_a_signal_soon(tmp_path, part):
    """Not only after all the steps up to the next record, nor if some batches came at once."""
    task = toy.Task(steps_per_epoch=40)
    windows, loss, calls = task.windows, task.loss, []

    def slow(value):
        calls.append(value)
        time.sleep(0.2)
        if len(calls) == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return value

    def slow_loss(batch, state):
        ids = tf.numpy_function(slow, [batch[0]], "int32")
        return loss((tf.ensure_shape(ids, batch[0].shape), *batch[1:]), state)

    if part == "step":
        task.loss = slow_loss
    else:
        task.windows = lambda first_step: map(slow, windows(first_step))
    result, _ = train(tmp_path, task, log_every_steps=100, checkpoint_every_steps=None)
    assert not result.finished
    assert result.step <= 24


def test_a_signal_while_an_epoch_is_evaluated_does_not_wait_for_that(
    tmp_path, undisturbed
):
    stopped = as_new()
    ended = []

    def evaluate():
        signal.raise_signal(signal.SIGTERM)
        ended.append(True)

    stopped.evaluate = evaluate
    result, _ = train(tmp_path, stopped)
    assert not result.finished and not ended
    assert result.step == STEPS and result.epochs == 0
    assert_same(undisturbed, *train(tmp_path))


def test_an_output_that_is_closed_saves_and_the_run_goes_on_from_there(
    tmp_path, monkeypatch, capfd, undisturbed
):
    capfd.readouterr()
    signals = stopping.StopSignals()
    closed = as_new()
    display, calls = closed.display, []

    def displaying(metrics):
        calls.append(metrics)
        if len(calls) == STOP:
            read, write = os.pipe()
            os.close(read)
            monkeypatch.setattr(sys.stdout, "_stream", open(write, "w"))
        return display(metrics)

    closed.display = displaying
    with signals.output():
        result, _ = train(
            tmp_path, closed, checkpoint_every_steps=None, signals=signals
        )
    assert not result.finished and signals.error().code == 141
    output = capfd.readouterr()
    assert output.err == (
        f"the output is closed after step {result.step}; "
        f"the same command goes on from step {result.step}\n"
    )
    assert_same(undisturbed, *train(tmp_path))


def test_more_epochs_go_on_and_no_more_change_nothing(half, undisturbed):
    result, again = train(half, new_task(), epochs=2)
    assert (result.finished, result.step, again.traces) == (True, 2 * STEPS, 0)
    longer = train(half, log_every_steps=3, checkpoint_every_steps=4)
    assert_same(undisturbed, *longer)


def test_a_run_of_steps_validates_in_equal_parts_and_carries_its_state_through_them(
    tmp_path,
):
    _, task = train(tmp_path / "whole", epochs=3, steps=13)
    table = csv.DictReader(
        io.StringIO((tmp_path / "whole" / "metrics.csv").read_text())
    )
    assert [row["step"] for row in table if row["kind"] == "validation"] == [
        "4",
        "8",
        "13",
    ]

    expected, trainer = values(task), traced().as_new()
    batches = trainer.batches(0)
    for step in range(13):
        if step % STEPS == 0:
            state = trainer.task.initial_state()
        _, state = trainer.steps(batches, state, 1)
    np.testing.assert_array_equal(values(trainer.task), expected)


def test_a_run_of_steps_goes_on_as_one_that_never_stopped(tmp_path):
    length = dict(epochs=3, steps=13)
    whole, task = train(tmp_path / "whole", **length)
    expected = values(task)
    stopped = as_new()
    toy.send_at(stopped, 8, signal.SIGTERM)
    result, _ = train(tmp_path / "stopped", stopped, **length)
    assert not result.finished and 4 < result.step < 13
    again, resumed = train(tmp_path / "stopped", **length)
    assert again == whole and whole.step == 13
    np.testing.assert_array_equal(values(resumed), expected)


class EnoughError(Exception):
    """Ends a run from outside."""


def test_a_run_that_no_longer_improves_stops_and_stays_so(tmp_path, capsys):
    falls_once = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    schedule = schedules.Schedule(stop_after=2)
    for told in ("the validation loss has not fallen for 2 epochs: the run ends", ""):
        task = as_new()
        losses_of(task, falls_once)
        result, _ = train(tmp_path, task, epochs=9, schedule=schedule)
        assert result[:5] == (True, 4 * STEPS, 4, 2.0, 2)
        out = capsys.readouterr().out
        assert told in out and out.count("the run ends") == bool(told)
    schedule = schedules.Schedule(stop_after=3)  # a change that goes on
    task = as_new()
    losses_of(task, falls_once)
    result, _ = train(tmp_path, task, epochs=5, schedule=schedule)
    assert result[:5] == (True, 5 * STEPS, 5, 1.0, 5)


def test_a_run_that_is_solved_stops_and_stays_so(tmp_path):
    """Also if it was stopped before it could write its result."""
    schedule = schedules.Schedule(stop_at=0.9)
    shares = iter([0.2, 0.9, 0.1])
    for _ in range(2):
        task = as_new()
        task.evaluate = lambda: {"loss": 1.0, "right_answers": next(shares)}
        result, _ = train(tmp_path, task, epochs=9, schedule=schedule)
        assert result[:3] == (True, 2 * STEPS, 2) and result.solved


def test_a_run_is_observed_after_each_epoch_and_goes_on_after_one_that_ended_it(
    tmp_path, undisturbed
):
    seen = []

    def observe(losses):
        seen.append(list(losses))
        if len(seen) == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        train(tmp_path, observe=observe)
    assert_same(undisturbed, *train(tmp_path, observe=observe))
    assert [len(losses) for losses in seen] == [1, 2, 2, 3, 4]
    assert all(seen[-1][: len(losses)] == losses for losses in seen)


@pytest.mark.parametrize("bad_step", [0, 7])
def test_nan_stops_the_run_with_its_step_and_leaves_the_checkpoint(tmp_path, bad_step):
    task = as_new(bad_step)
    with refuses(
        f"loss nan.* at step {bad_step + 1}", loop.NonFiniteLossError
    ) as error:
        train(tmp_path, task, log_every_steps=100)
    assert error.value.step == bad_step + 1
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    assert all(step <= bad_step for step in store.steps())
    if bad_step:
        step, arrays = store.restore()
        assert step == 6
        weights = [array for name, array in arrays.items() if name.startswith("model/")]
        assert len(weights) == 4 and all(np.isfinite(array).all() for array in weights)


def test_a_nan_validation_loss_stops_the_run(tmp_path):
    task = as_new()
    task.evaluate = lambda: {"loss": float("nan")}
    with refuses("validation loss nan at step 5", loop.NonFiniteLossError):
        train(tmp_path, task)
    assert not (tmp_path / "checkpoints" / checkpoints.BEST).exists()


def test_steps_go_on_while_a_checkpoint_is_written_of_what_was(tmp_path, monkeypatch):
    task = as_new()
    write, display = np.savez, task.display
    weights, gone_on, written = [], threading.Event(), []

    def displaying(metrics):
        weights.append(values(task))  # after every second step
        if len(weights) == 2:
            gone_on.set()
        return display(metrics)

    def slow(file, **arrays):
        if (
            not written and "losses" in arrays and weights
        ):  # the first after that of step 0
            assert gone_on.wait(60)
            written.append(
                flat([arrays[name] for name in variables.model_variables(task.model)])
            )
        write(file, **arrays)

    task.display = displaying
    monkeypatch.setattr(np, "savez", slow)
    train(tmp_path, task, epochs=1)
    np.testing.assert_array_equal(written[0], weights[0])
    assert (weights[1] != weights[0]).any()


@pytest.mark.parametrize("end", ["finished", "signal", "nan"])
def test_a_run_does_not_end_before_its_checkpoint_is_written(
    tmp_path, monkeypatch, end
):
    task = as_new(bad_step=2 if end == "nan" else None)
    if end == "signal":
        toy.send_at(task, 1, signal.SIGTERM)  # at step 2
    write = np.savez

    def slow(file, **arrays):
        time.sleep(0.5)
        write(file, **arrays)

    monkeypatch.setattr(np, "savez", slow)
    with (
        pytest.raises(loop.NonFiniteLossError)
        if end == "nan"
        else contextlib.nullcontext()
    ):
        train(tmp_path, task, epochs=1)
    names = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert not [name for name in names if name.endswith(".part")]
    assert f"step-0000000{5 if end == 'finished' else 2}.npz" in names


def test_the_best_epoch_is_kept(tmp_path):
    task = as_new()
    losses, weights = [3.0, 1.0, 2.0, 2.5], []

    def evaluate():
        weights.append(values(task))
        return {"loss": losses[len(weights) - 1]}

    task.evaluate = evaluate
    result, _ = train(tmp_path, task)
    assert (result.best_epoch, result.best_loss) == (2, 1.0)
    checkpoints.load_best(tmp_path, task.model)
    np.testing.assert_array_equal(values(task), weights[1])


class Disk:
    """Has writes fail: those of arrays for which `full` says so."""

    def __init__(self, monkeypatch):
        self.full = lambda arrays: False
        self.failures = []
        self.write = np.savez
        monkeypatch.setattr(np, "savez", self)

    def __call__(self, file, **arrays):
        if self.full(arrays):
            self.failures.append(arrays)
            file.write(b"half of it")
            code = [errno.ENOSPC, errno.EDQUOT, errno.EIO][len(self.failures) % 3]
            raise OSError(code, os.strerror(code))
        self.write(file, **arrays)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def of_a_checkpoint(arrays):
    return "losses" in arrays and arrays["losses"].size


def test_a_full_disk_is_told_and_the_run_goes_on(tmp_path, capsys, disk, undisturbed):
    disk.full = lambda arrays: (
        len(disk.failures) < 3 and "losses" in arrays and len(arrays["losses"]) == 1
    )
    result, task = train(tmp_path)
    assert len(disk.failures) == 3
    assert_same(undisturbed, result, task)
    output = capsys.readouterr().out
    assert "the disk is full" in output
    assert (
        "the checkpoint of step 5 is lost; the last checkpoint is that of step 4"
        in output
    )


def losses_of(task, losses):
    """Has the task's evaluations come to these losses; returns the weights of each."""
    weights, done = [], iter(losses)

    def evaluate():
        weights.append(values(task))
        return {"loss": next(done)}

    task.evaluate = evaluate
    return weights


def test_best_weights_that_cannot_be_written_wait_for_the_next_time(
    tmp_path, capsys, disk
):
    disk.full = lambda arrays: "losses" not in arrays and not disk.failures
    task = as_new()
    weights = losses_of(task, [1.0, 2.0])
    result, _ = train(tmp_path, task, epochs=2, checkpoint_every_steps=None)
    assert (len(disk.failures), result.best_loss, result.best_epoch) == (1, 1.0, 1)
    assert (
        capsys.readouterr().out.count("(best so far, its weights not yet written)") == 1
    )
    checkpoints.load_best(tmp_path, task.model)
    np.testing.assert_array_equal(values(task), weights[0])


def step_of(folder):
    return checkpoints.Checkpoints(folder / "checkpoints").steps()[-1]


@pytest.mark.parametrize(
    ("full", "missing", "step"),
    [
        (of_a_checkpoint, "the checkpoint of step 20", 4),
        # The best weights are those of epoch 1 and of later ones: no checkpoint follows.
        (
            lambda a: "epoch" in a,
            "the best weights .best.npz. and the checkpoint of step 20",
            4,
        ),
    ],
)
def test_a_disk_that_stays_full_ends_no_run(
    tmp_path, disk, undisturbed, full, missing, step
):
    disk.full = full
    result, _ = train(tmp_path)
    assert result.finished and result.unsaved
    assert step_of(tmp_path) == step
    with refuses(
        f"{missing} cannot be written .*goes on from step {step}", workdir.NotKeptError
    ):
        result.unsaved.save()
    best = result.unsaved.store.unwritten_best or checkpoints.load_arrays(
        tmp_path / "checkpoints" / checkpoints.BEST
    )
    disk.full = lambda arrays: False
    result, task = train(tmp_path)
    assert_same(undisturbed, result, task)
    kept = checkpoints.load_arrays(tmp_path / "checkpoints" / checkpoints.BEST)
    assert best["epoch"] == kept["epoch"] == result.best_epoch
    np.testing.assert_array_equal(best["model/variable"], kept["model/variable"])


def test_what_could_not_be_saved_is_saved_once_there_is_room(
    tmp_path, disk, undisturbed
):
    disk.full = lambda arrays: of_a_checkpoint(arrays) or "epoch" in arrays
    result, _ = train(tmp_path)
    disk.full = lambda arrays: False
    result.unsaved.save()
    again, task = train(tmp_path, new_task())
    assert task.traces == 0
    assert_same(undisturbed, again, task)


def test_a_stopped_run_says_where_it_goes_on_from(tmp_path, capsys, disk, undisturbed):
    disk.full = lambda arrays: of_a_checkpoint(arrays) or "epoch" in arrays
    task = as_new()
    toy.send_at(task, STOP, signal.SIGTERM)
    assert not train(tmp_path, task)[0].finished
    line = "stopped by SIGTERM after step 14; the same command goes on from step 4"
    assert line in capsys.readouterr().out
    disk.full = lambda arrays: False
    assert train(tmp_path)[0] == undisturbed[0]


def test_a_run_whose_loss_is_not_finite_keeps_its_best_weights_if_it_can(
    tmp_path, disk
):
    disk.full = lambda arrays: "epoch" in arrays and not disk.failures
    task = as_new(bad_step=7)
    with pytest.raises(loop.NonFiniteLossError):
        train(tmp_path, task, checkpoint_every_steps=None)
    # The last checkpoint is the one of step 0, and the epoch will be computed again.
    assert checkpoints.Checkpoints(tmp_path / "checkpoints").best_epoch() == 1


def test_a_run_that_can_write_no_checkpoint_does_not_begin(tmp_path, disk):
    disk.full = lambda arrays: True
    task = new_task()
    with refuses("not begun: .*step-00000000.npz .*make room", workdir.WorkdirError):
        train(tmp_path, task)
    assert task.traces == 0
    disk.full = lambda arrays: False
    assert train(tmp_path, epochs=1)[0].finished


def remove_checkpoints(folder):
    for path in (folder / "checkpoints").glob("step-*"):
        path.unlink()


def remove_all_but_the_table(folder):
    shutil.rmtree(folder / "checkpoints")


def cut_all_short(folder):
    for path in (folder / "checkpoints").glob("step-*"):
        path.write_bytes(path.read_bytes()[:-90])


def numbered(arrays):
    """The arrays under the names of 0.1."""
    found = dict(arrays)
    for prefix in ("model", "optimizer"):
        names = [name for name in arrays if name.startswith(f"{prefix}/")]
        found |= {f"{prefix}/{i}": found.pop(name) for i, name in enumerate(names)}
    return found


def test_a_run_of_0_1_goes_on(half, undisturbed):
    for path in (half / "checkpoints").glob("*.npz"):
        arrays = numbered(checkpoints.load_arrays(path))
        np.savez(path, **arrays)
    with pytest.warns(UserWarning, match="of release 0.1: it has no checksum"):
        ended = train(half)
    assert_same(undisturbed, *ended)


def lead_all_astray(folder):
    """No one can open them, whatever they hold."""
    for path in (folder / "checkpoints").glob("step-*"):
        path.unlink()
        path.symlink_to(path.name)


def put_those_of_another_model_in_place(folder):
    for path in (folder / "checkpoints").glob("step-*"):
        checkpoints.Checkpoints(path.parent).save(
            int(path.stem.removeprefix("step-")), {"model/0": np.zeros(3)}
        )


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (
            remove_checkpoints,
            "metrics.csv and checkpoints/best.npz of a run, and its checkpoints",
        ),
        (
            remove_all_but_the_table,
            "metrics.csv of a run, and its checkpoints are gone",
        ),
        (cut_all_short, "no checkpoint in .*step-00000010.npz.*step-00000008.npz"),
        (lead_all_astray, "step-00000010.npz cannot be read, .*symbolic"),
        (
            put_those_of_another_model_in_place,
            "step 10 .* not one of this model: it has 1 arrays",
        ),
    ],
)
def test_a_run_whose_checkpoints_are_of_no_use_does_not_begin_anew(half, harm, told):
    harm(half)
    (half / "checkpoints").mkdir(exist_ok=True)
    before = {
        p: p.is_symlink() or p.read_bytes() for p in (half / "checkpoints").iterdir()
    }
    table = (half / "metrics.csv").read_bytes()
    task = new_task()
    for _ in range(2):
        with refuses(told, workdir.WorkdirError):
            train(half, task)
    after = {
        p: p.is_symlink() or p.read_bytes() for p in (half / "checkpoints").iterdir()
    }
    assert after == before and (half / "metrics.csv").read_bytes() == table
    assert task.traces == 0


def remove_best(path):
    path.unlink()


def damage_best(path):
    path.write_bytes(path.read_bytes()[:-1])


def put_a_former_best_in_place(path):
    store = checkpoints.Checkpoints(path.parent)
    arrays = checkpoints.load_arrays(path)
    store.save_best({k: v for k, v in arrays.items() if k.startswith("model/")}, 1)


@pytest.mark.parametrize("harm", [remove_best, damage_best])
@pytest.mark.parametrize("epochs", [2, 4])
def test_best_weights_that_are_lost_are_told_when_the_run_goes_on(
    tmp_path, half_way, capsys, harm, epochs
):
    trained = half_way((3.0, 1.0) if epochs == 4 else (1.0, 3.0))
    folder = shutil.copytree(trained, tmp_path / "run")
    best = folder / "checkpoints" / checkpoints.BEST
    harm(best)
    capsys.readouterr()
    task = as_new()
    weights = losses_of(task, [5.0, 4.0])
    result, task = train(folder, task, epochs=epochs)
    output = capsys.readouterr().out
    assert (
        f"{best} lacks the weights of the best epoch"
        in output.splitlines()[harm is damage_best]
    )
    assert best.with_name("best.npz.unreadable").exists() == (harm is damage_best)
    assert (result.best_epoch, result.lost_epoch) == (4, 2) if epochs == 4 else (2, 1)
    last = weights[1] if epochs == 4 else values(task)
    checkpoints.load_best(folder, task.model)
    np.testing.assert_array_equal(values(task), last)


def test_weights_of_another_epoch_are_not_taken_for_the_best(
    tmp_path, half_way, capsys
):
    folder = shutil.copytree(half_way((3.0, 1.0)), tmp_path / "run")
    put_a_former_best_in_place(folder / "checkpoints" / checkpoints.BEST)
    task = as_new()
    losses_of(task, [4.0, 3.5])
    result, _ = train(folder, task, epochs=4)
    assert "best epoch, 2 (loss 1): they are lost; kept are those of epoch 1" in (
        capsys.readouterr().out
    )
    assert (result.best_epoch, result.best_loss, result.lost_epoch) == (1, 3.0, 2)


def test_best_weights_of_a_checkpoint_to_come_are_no_loss(half, capsys, undisturbed):
    """A process was killed between the two; or the checkpoint is damaged."""
    cut_short = half / "checkpoints" / "step-00000010.npz"
    cut_short.write_bytes(cut_short.read_bytes()[:-1])
    assert_same(undisturbed, *train(half))
    assert "lacks the weights" not in capsys.readouterr().out


def test_another_number_of_replicas_is_refused_unless_it_is_allowed(tmp_path, capsys):
    result, _ = train(tmp_path, epochs=1)
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    step, arrays = store.restore()
    assert arrays["replicas"] == 1
    store.save(step, {**arrays, "replicas": np.int64(2)})
    with refuses("a run on 2 replicas, and here are 1; ", workdir.WorkdirError):
        train(tmp_path, epochs=1)
    other = shutil.copytree(tmp_path, tmp_path / "other")
    train(other, epochs=2, allow_replicas_change=True)
    told = "1 replicas instead of 2 from step 5 on, with other masks"
    assert told in capsys.readouterr().out
    newest = checkpoints.Checkpoints(other / "checkpoints").restore()
    assert newest[1]["replicas"] == 1
    del arrays["replicas"]
    store.save(step, arrays)
    assert train(tmp_path, epochs=1)[0] == result


def test_a_batch_that_is_not_divisible_by_the_replicas_is_refused():
    trainer = Trainer(toy.Task(batch_size=4), optimizers.SGD(1.0))
    trainer.replicas = 3
    for refused in (
        lambda: trainer.batches(0),
        lambda: trainer.spread(tf.zeros([4, 2])),
    ):
        with refuses("`batch_size` must be divisible .* 3 .*batch_size=4"):
            refused()


def test_no_checkpoint_is_written_twice(tmp_path, monkeypatch):
    written, write = [], checkpoints.Checkpoints._save

    def counted(store, step, arrays):
        written.append(step)
        return write(store, step, arrays)

    monkeypatch.setattr(checkpoints.Checkpoints, "_save", counted)
    train(tmp_path)
    assert written and len(written) == len({*written})


def test_means_weigh_each_step_by_its_batch():
    sums = run_state.Sums()
    sums.add({"weight": 2.0, "loss": 3.0})
    sums.add({"weight": 1.0, "loss": 6.0})
    assert sums.means() == {"loss": 4.0}
