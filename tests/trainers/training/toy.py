"""A small task for the loop's tests: an embedding with dropout and a carried state.

Run as a program, it trains once for each list of flags in its argument, a JSON list; the tests stop
it in all manner of ways.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from tests import pictures
from trainers import optimizers
from trainers.data import stores
from trainers.training import (
    cluster,
    followers,
    loop,
    schedules,
    strategies,
    workdir,
    workers,
)
from trainers.training.schedules import WHOLE
from trainers.training.trainer import Trainer

VOCABULARY, WIDTH, WINDOW = 11, 4, 3


class Model(keras.Model):
    """state' = tanh(embedding(id) + state W), the output of each step softmaxed."""

    def __init__(self, dropout=0.0, seed=0):
        super().__init__(dtype="float64")
        generator = np.random.default_rng(seed)

        def weight(*shape):
            values = generator.normal(size=shape)
            return self.add_weight(
                shape=shape,
                initializer=lambda *_, **__: tf.constant(values),
                dtype="float64",
            )

        self.table = weight(VOCABULARY, WIDTH)
        self.recurrent = weight(WIDTH, WIDTH)
        self.decoder = weight(WIDTH, VOCABULARY)
        self.dropout = dropout
        self.seeds = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, ids, state, training=False):
        inputs = tf.gather(self.table.value, ids)
        if training and self.dropout:
            inputs = keras.random.dropout(inputs, self.dropout, seed=self.seeds)
        logits = []
        for t in range(inputs.shape[1]):
            state = tf.tanh(inputs[:, t] + tf.matmul(state, self.recurrent))
            logits.append(tf.matmul(state, self.decoder))
        return tf.stack(logits, 1), state


class Task:
    """Predicts random ids; the last window of an epoch is shorter unless all are `whole`."""

    unit = "tokens"
    evaluation_steps, scoring = 2.0, 2.0
    stages, allows_rewrites = WHOLE, True

    def __init__(
        self,
        batch_size=4,
        steps_per_epoch=5,
        dropout=0.0,
        seed=0,
        bad_step=None,
        whole=False,
    ):
        self.model = Model(dropout, seed)
        self.steps_per_epoch = steps_per_epoch
        self.batch_size = batch_size
        self.bad_step = bad_step
        self.traces = 0
        length = steps_per_epoch * WINDOW + whole
        generator = np.random.default_rng(1)
        self.ids = generator.integers(0, VOCABULARY, (batch_size, length)).astype(
            "int32"
        )

    def windows(self, first_step):
        step = first_step
        while True:
            start = step % self.steps_per_epoch * WINDOW
            ids = self.ids[:, start : start + WINDOW + 1]
            weights = np.full(ids[:, 1:].shape, 1.0)
            if self.bad_step is not None and step >= self.bad_step:
                weights *= np.nan
            yield ids[:, :-1], ids[:, 1:], weights
            step += 1

    def dataset(self, first_step):
        ids = tf.TensorSpec([self.batch_size, None], "int32")
        weights = tf.TensorSpec([self.batch_size, None], "float64")
        return tf.data.Dataset.from_generator(
            lambda: self.windows(first_step), output_signature=(ids, ids, weights)
        )

    def initial_state(self):
        return (tf.zeros([self.batch_size, WIDTH], "float64"),)

    def loss(self, batch, state, penalty=0.1):
        self.traces += 1
        ids, targets, weights = batch
        logits, state = self.model(ids, state[0], training=True)
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits) * weights
        prediction = tf.reduce_sum(nll)
        penalty *= tf.reduce_sum(tf.square(logits))
        metrics = {"prediction": prediction, "penalty": penalty}
        return prediction + penalty, tf.size(targets), (state,), metrics

    def evaluate(self):
        logits, _ = self.model(
            self.ids[:, :-1], tf.zeros([self.batch_size, WIDTH], "float64")
        )
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(self.ids[:, 1:], logits)
        return {"loss": float(tf.reduce_mean(nll))}

    def display(self, metrics):
        nll = metrics.get("prediction", metrics["loss"])
        return {"perplexity": float(np.exp(nll)), "loss": metrics["loss"]}


def optimizer_of(name):
    """The optimizer of a name, with arguments of some effect."""
    if name == "adam":
        return optimizers.Adam(0.01, weight_decay=1e-3, averages=True)
    return optimizers.SGD(1.0, weight_decay=1e-3, averages=True)


def variables_of(trainer):
    return [*trainer.task.model.variables, *trainer.optimizer.variables]


class Traced:
    """A trainer of the toy task, whose steps are traced once for many runs.

    Args:
        trainer: a new one, which is to be used by `as_new` alone.
    """

    def __init__(self, trainer):
        self.trainer = trainer
        self._first = [variable.numpy() for variable in variables_of(trainer)]

    def as_new(self):
        """Returns the trainer with its first values and without what a test gave its task."""
        for variable, value in zip(
            variables_of(self.trainer), self._first, strict=True
        ):
            variable.assign(value)
        task = self.trainer.task
        task.bad_step = None
        for replaced in ("display", "evaluate"):
            vars(task).pop(replaced, None)
        return self.trainer


def run(flags):
    """Trains as the flags say; returns what it comes to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--whole", type=int, default=0)
    parser.add_argument("--every_steps", type=int, default=2)
    parser.add_argument("--jit_compile", type=int, default=0)
    parser.add_argument("--killed_at", type=int)
    parser.add_argument("--killed_writing", type=int)
    parser.add_argument("--ports", type=int, nargs="*", default=[])
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--signal", type=int, default=signal.SIGKILL)
    parser.add_argument("--at_call", type=int)
    args = parser.parse_args(flags)
    if args.ports:
        return train_together(args)
    if args.replicas > 1:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * args.replicas,
        )
    strategies.make_deterministic(3)
    return train(
        args, strategies.get_strategy("mirrored" if args.replicas > 1 else "none")
    )


def train_together(args):
    """Trains as one of several workers; the last port is that of the chief for the others."""
    addresses = tuple(f"localhost:{port}" for port in args.ports[:-1])
    members = cluster.Cluster(addresses, args.index)
    try:
        with workers.Team(members, args.ports[-1], 60) as team:
            strategies.make_deterministic(3)
            try:
                return train(args, strategies.get_strategy("none", members), team)
            except tf.errors.OpError as error:
                # Inside the team, whose threads find out which worker it was.
                team.wait_for_loss()
                raise workers.LostError("no thread has found out") from error
    except workers.LostError as error:
        print(error, file=sys.stderr)
        sys.exit(workers.LOST)


def train(args, strategy, team=workers.ALONE):
    with strategy.scope():
        task = Task(dropout=args.dropout, whole=bool(args.whole))
        optimizer = optimizer_of(args.optimizer)
    if args.killed_at is not None:
        send_at(task, args.killed_at, signal.SIGKILL)
    if args.killed_writing is not None:
        kill_writing(args.killed_writing)
    config = {"training": {"epochs": args.epochs}, "dropout": args.dropout}
    trainer = Trainer(
        task,
        optimizer,
        clip_norm=0.3,
        strategy=strategy,
        team=team,
        jit_compile=bool(args.jit_compile),
    )
    first = keep_first(trainer, args.at_call, args.signal)
    opened = contextlib.nullcontext(followers.NoWorkdir())
    if team.is_chief:
        may_change = ["training.epochs"]
        path = stores.to_path(args.workdir)
        opened = workdir.open_workdir(path, config, may_change=may_change)
    with opened as folder:
        result = loop.fit(
            trainer,
            schedules.Schedule(patience=1, average=True),
            folder,
            epochs=args.epochs,
            log_every_steps=args.every_steps,
            checkpoint_every_steps=args.every_steps,
        )
        if result.finished and team.is_chief:
            if result.unsaved:
                result.unsaved.save()
            folder.finish(result._asdict())
    variables = task.model.variables + optimizer.variables
    values = [variable.numpy().tolist() for variable in variables]
    ended = {
        "result": result._replace(cost=None)._asdict(),
        "cost": result.cost._asdict(),
    }
    return {**ended, "variables": values, "traces": task.traces, "first": first}


def keep_first(trainer, at_call, number):
    """Returns a list that gets the weights after the first call of steps, which takes one.

    Before the call `at_call`, counted from 1, the process sends itself a signal, and gives others
    the time to hear of it: the steps that are left take milliseconds.
    """
    steps, first, calls = trainer.steps, [], []

    def keeping(*args):
        calls.append(args)
        if len(calls) == at_call:
            os.kill(os.getpid(), number)
            time.sleep(1)
        taken = steps(*args)
        if not first:
            first.extend(v.numpy().tolist() for v in trainer.task.model.variables)
        return taken

    trainer.steps = keeping
    return first


def in_files(flags, out, err):
    """Trains as the flags say, with its output in files, in a process of its own."""
    pictures.make_plain()
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), number)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
    print(json.dumps(run(flags)), flush=True)


def send_at(task, call, number):
    """Has a call of the task's `display`, counted from 1, send the process a signal."""
    display, calls = task.display, []

    def sending(metrics):
        calls.append(metrics)
        if len(calls) == call:
            os.kill(os.getpid(), number)
        return display(metrics)

    task.display = sending


def kill_writing(call):
    """Has a write of NumPy arrays, counted from 1, kill the process when half of it is done."""
    write, calls = np.savez, []

    def killing(file, **arrays):
        calls.append(file)
        if len(calls) == call:
            file.write(b"half of it")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(file, **arrays)

    np.savez = killing


if __name__ == "__main__":
    for flags in json.loads(sys.argv[1]):
        print(json.dumps(run(flags)))
