"""The loop: its steps against NumPy, over replicas, stopped and resumed in all manner of ways."""

import errno
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.trainers.training import toy
from trainers.training import checkpoints, loop, optimizers, schedules, workdir

STEPS, EPOCHS = 5, 4
# The call of `display` after step 14, in the middle of an epoch; the last checkpoint is of step 12.
STOP = 11


def train(folder, task=None, optimizer=None, **arguments):
    """Trains the toy task in this process; returns the result and the task."""
    task = task or toy.Task(steps_per_epoch=STEPS, dropout=0.3)
    arguments = {"epochs": EPOCHS, "log_every_steps": 2, "checkpoint_every_steps": 2, **arguments}
    with workdir.open_workdir(folder, {}) as opened:
        result = loop.train(
            task,
            optimizer or toy.optimizer_of("sgd"),
            schedules.Schedule(patience=1, average=True),
            opened,
            clip_norm=0.3,
            **arguments,
        )
    return result, task


def start(folder, **arguments):
    """Starts the toy's program in a process of its own."""
    command = [sys.executable, toy.__file__, f"--workdir={folder}"]
    command += [f"--{name}={value}" for name, value in arguments.items()]
    root = pathlib.Path(toy.__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def outcome(process):
    """What the toy's program printed at its end."""
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-2000:]
    return json.loads(output.splitlines()[-1])


def flat(values):
    return np.concatenate([np.ravel(value) for value in values])


def values(task):
    return flat([variable.numpy() for variable in task.model.variables])


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
    trainer = loop.Trainer(task, optimizer, clip_norm=0.3)
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
        np.testing.assert_allclose(metrics["prediction"] + metrics["penalty"], expected, rtol=1e-12)
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


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_two_replicas_give_what_one_gives(tmp_path, optimizer):
    running = [
        start(tmp_path / str(replicas), replicas=replicas, dropout=0, optimizer=optimizer)
        for replicas in (1, 2)
    ]
    one, two = (outcome(process) for process in running)
    difference = np.abs(flat(one["variables"]) - flat(two["variables"])).max()
    assert difference < 1e-10
    assert one["result"]["best_epoch"] == two["result"]["best_epoch"]
    np.testing.assert_allclose(one["result"]["best_loss"], two["result"]["best_loss"], rtol=1e-12)
    assert (one["traces"], two["traces"]) == (2, 4)  # a trace on each replica


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_run_that_was_killed_ends_as_one_that_was_not(tmp_path, replicas):
    whole = start(tmp_path / "whole", replicas=replicas)
    killed = start(tmp_path / "killed", replicas=replicas, signal_at=STOP)
    assert killed.wait() == -signal.SIGKILL
    killed.communicate()
    assert checkpoints.Checkpoints(tmp_path / "killed" / "checkpoints").steps()[-1] == 12
    resumed = start(tmp_path / "killed", replicas=replicas)
    whole, resumed = outcome(whole), outcome(resumed)
    assert resumed["variables"] == whole["variables"]
    assert resumed["result"] == whole["result"]
    tables = [(tmp_path / name / "metrics.csv").read_text() for name in ("whole", "killed")]
    assert _epoch_rows(tables[0]) == _epoch_rows(tables[1])


def _epoch_rows(table):
    return [row for row in table.splitlines() if not row.startswith("train_interval")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_run_goes_on_from_there(tmp_path, capsys, number):
    whole, task = train(tmp_path / "whole")
    expected = values(task)
    former = signal.getsignal(number)
    stopped = toy.Task(steps_per_epoch=STEPS, dropout=0.3)
    toy.send_at(stopped, STOP, number)
    result, _ = train(tmp_path / "stopped", stopped, checkpoint_every_steps=None)
    assert not result.finished
    assert result.step == 14
    assert signal.getsignal(number) is former
    name = number.name
    line = f"stopped by {name} after step 14; the same command goes on from step 14"
    assert line in capsys.readouterr().out
    again, task = train(tmp_path / "stopped")
    assert again == whole
    np.testing.assert_array_equal(values(task), expected)


def test_a_second_signal_acts_as_usual():
    with pytest.raises(KeyboardInterrupt):
        with loop.StopSignals() as signals:
            signal.raise_signal(signal.SIGINT)
            assert signals.received == "SIGINT"
            signal.raise_signal(signal.SIGINT)


def test_more_epochs_go_on_and_no_more_change_nothing(tmp_path):
    longer, task = train(tmp_path / "longer")
    train(tmp_path / "run", epochs=2)
    result, again = train(tmp_path / "run", epochs=2)
    assert (result.finished, result.step, again.traces) == (True, 2 * STEPS, 0)
    result, again = train(tmp_path / "run", log_every_steps=3, checkpoint_every_steps=4)
    assert result == longer
    np.testing.assert_array_equal(values(again), values(task))


@pytest.mark.parametrize("bad_step", [0, 7])
def test_nan_stops_the_run_with_its_step_and_leaves_the_checkpoint(tmp_path, bad_step):
    task = toy.Task(steps_per_epoch=STEPS, bad_step=bad_step)
    with pytest.raises(
        loop.NonFiniteLossError, match=f"loss nan.* at step {bad_step + 1}"
    ) as error:
        train(tmp_path, task, log_every_steps=100)
    assert error.value.step == bad_step + 1
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    assert all(step <= bad_step for step in store.steps())
    if bad_step:
        step, arrays = store.restore()
        assert step == 6
        assert all(np.isfinite(arrays[f"model/{i}"]).all() for i in range(3))


def test_a_nan_validation_loss_stops_the_run(tmp_path):
    task = toy.Task(steps_per_epoch=STEPS)
    task.evaluate = lambda: {"loss": float("nan")}
    with pytest.raises(loop.NonFiniteLossError, match="validation loss nan at step 5"):
        train(tmp_path, task)
    assert not (tmp_path / "checkpoints" / checkpoints.BEST).exists()


def test_the_best_epoch_is_kept(tmp_path):
    task = toy.Task(steps_per_epoch=STEPS)
    losses, weights = [3.0, 1.0, 2.0, 2.5], []

    def evaluate():
        weights.append(values(task))
        return {"loss": losses[len(weights) - 1]}

    task.evaluate = evaluate
    result, _ = train(tmp_path, task)
    assert (result.best_epoch, result.best_loss) == (2, 1.0)
    checkpoints.load_best(tmp_path, task.model)
    np.testing.assert_array_equal(values(task), weights[1])


def test_a_full_disk_is_told_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    expected, task = train(tmp_path / "whole")
    write, failures = np.savez, []

    def full_for_a_while(file, **arrays):
        if len(failures) < 3 and "losses" in arrays and len(arrays["losses"]) == 1:
            failures.append(file)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, **arrays)

    monkeypatch.setattr(np, "savez", full_for_a_while)
    result, again = train(tmp_path / "full")
    assert len(failures) == 3
    assert result == expected
    np.testing.assert_array_equal(values(again), values(task))
    output = capsys.readouterr().out
    assert "the disk is full" in output
    assert "the checkpoint of step 5 is lost; the last checkpoint is that of step 4" in output


def test_best_weights_that_cannot_be_written_wait_for_the_next_time(tmp_path, capsys, monkeypatch):
    write, failures = np.savez, []

    def full_once(file, **arrays):
        if not failures and "losses" not in arrays:
            failures.append(file)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, **arrays)

    monkeypatch.setattr(np, "savez", full_once)
    task = toy.Task(steps_per_epoch=STEPS)
    losses, weights = [1.0, 2.0], []

    def evaluate():
        weights.append(values(task))
        return {"loss": losses[len(weights) - 1]}

    task.evaluate = evaluate
    result, _ = train(tmp_path, task, epochs=2, checkpoint_every_steps=None)
    assert (len(failures), result.best_loss, result.best_epoch) == (1, 1.0, 1)
    assert capsys.readouterr().out.count("(best so far, its weights not yet written)") == 1
    checkpoints.load_best(tmp_path, task.model)
    np.testing.assert_array_equal(values(task), weights[0])


def test_another_number_of_replicas_is_refused_where_it_is_recorded(tmp_path):
    result, _ = train(tmp_path, epochs=1)
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    step, arrays = store.restore()
    assert arrays["replicas"] == 1
    store.save(step, {**arrays, "replicas": np.int64(2)})
    with pytest.raises(workdir.WorkdirError, match="a run on 2 replicas, and here are 1; "):
        train(tmp_path, epochs=1)
    del arrays["replicas"]
    store.save(step, arrays)
    assert train(tmp_path, epochs=1)[0] == result


def test_a_batch_that_is_not_divisible_by_the_replicas_is_refused():
    trainer = loop.Trainer(toy.Task(batch_size=4), optimizers.SGD(1.0))
    trainer.replicas = 3
    for refused in (lambda: trainer.batches(0), lambda: trainer.spread(tf.zeros([4, 2]))):
        with pytest.raises(ValueError, match="`batch_size` must be divisible .* 3 .*batch_size=4"):
            refused()


def test_bad_arguments_are_named(tmp_path):
    for argument in ("epochs", "log_every_steps", "checkpoint_every_steps"):
        with pytest.raises(
            ValueError, match=f"`{argument}` must be at least 1. Received: {argument}=0"
        ):
            train(tmp_path, **{argument: 0})
    with pytest.raises(ValueError, match="`clip_norm` .* Received: clip_norm=0"):
        loop.Trainer(toy.Task(), optimizers.SGD(1.0), clip_norm=0)
    with pytest.raises(ValueError, match="'both'"):
        loop.get_strategy("both")
