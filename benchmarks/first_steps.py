"""Processor seconds of a model's first steps, of another length, and where lengths are not known.

    python -m benchmarks.first_steps --json=first_steps.json

What a `fit` costs before it is under way: its graph is traced, optimised and compiled. Each reading
is of a process of its own that has imported TensorFlow. The seconds are those of all its threads,
which other processes disturb little.
"""

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import report, workers
from benchmarks.workers import Contender

FLAGS = flags.FLAGS
BATCH, CHANNELS, UNITS, DEPTH = 32, 8, 64, 8
LENGTH, OTHER_LENGTH = 30, 45
MANY = 40
READINGS = {
    "epoch": "first epoch of the README's example",
    "first": "first step",
    "known": f"{MANY} steps",
    "another": "first step of another length",
    "layer": "of it the layer's gradients",
    "unknown": f"{MANY} steps, lengths not known",
}


class Setting(NamedTuple):
    """What is measured.

    Attributes:
        return_sequences: whether the loss is on the outputs of all steps, or on the last one.
    """

    return_sequences: bool


def trellis(setting: Setting) -> Contender:
    """Our layer."""
    import keras_trellis

    example = functools.partial(keras_trellis.TrellisLayer, 16, depth=8, dilation_rate=[1, 2, 4, 8])
    layer = functools.partial(keras_trellis.TrellisLayer, UNITS, depth=DEPTH, **setting._asdict())
    return _contender(setting, example, layer)


def baseline(setting: Setting) -> Contender:
    """The layer whose place it takes."""
    import keras

    example = functools.partial(keras.layers.LSTM, 16)
    layer = functools.partial(keras.layers.LSTM, UNITS, **setting._asdict())
    return _contender(setting, example, layer)


OURS, LSTM = "TrellisLayer", "keras.layers.LSTM"
CONTENDERS = {OURS: trellis, LSTM: baseline}


def _contender(setting: Setting, example: Callable[[], Any], layer: Callable[[], Any]) -> Contender:
    import numpy as np
    import tensorflow as tf

    found: dict[str, float] = {}

    def fit(name: str, model: Any, length: int, count: int, *, known: bool = True) -> None:
        steps = (length if known else None,) if setting.return_sequences else ()
        signature = (
            tf.TensorSpec([BATCH, length if known else None, CHANNELS]),
            tf.TensorSpec([BATCH, *steps, 1]),
        )
        shape = (BATCH, length, 1) if setting.return_sequences else (BATCH, 1)
        batch = np.ones([BATCH, length, CHANNELS], np.float32), np.ones(shape, np.float32)
        batches = tf.data.Dataset.from_generator(
            lambda: itertools.repeat(batch, count), output_signature=signature
        )
        start = time.process_time()
        model.fit(batches, steps_per_epoch=count, shuffle=False, verbose=0)
        found[name] = time.process_time() - start

    def step() -> None:
        walks = np.random.default_rng(0).choice([-1.0, 1.0], (2000, 30, 1))
        model, start = _model(example, 1), time.process_time()
        model.fit(walks, walks.sum(axis=(1, 2)) > 0, verbose=0)
        found["epoch"] = time.process_time() - start
        model = _model(layer, CHANNELS)
        fit("first", model, LENGTH, 1)
        fit("known", model, LENGTH, MANY)
        fit("another", model, OTHER_LENGTH, 1)
        found["layer"] = _gradient_seconds(model.layers[0])
        model = _model(layer, CHANNELS)
        fit("traced", model, LENGTH, 1, known=False)
        fit("unknown", model, LENGTH, MANY, known=False)

    return Contender(step, {}, lambda: found)


def _gradient_seconds(layer: Any) -> float:
    """Returns what a graph of a layer's gradients takes, traced and run once."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([BATCH, None, CHANNELS])])
    def gradients(sequences: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(layer(sequences, training=True))
        return tape.gradient(total, [variable.value for variable in layer.trainable_variables])

    start = time.process_time()
    gradients(tf.ones([BATCH, OTHER_LENGTH, CHANNELS]))
    return time.process_time() - start


def _model(layer: Callable[[], Any], channels: int) -> Any:
    import keras

    model = keras.Sequential([keras.Input([None, channels]), layer(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def measure(setting: Setting, rounds: int, threads: int) -> dict[str, list[dict[str, float]]]:
    """Returns each contender's readings, one a round; they take turns.

    Raises:
        RuntimeError: one of them failed.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for name in [*CONTENDERS] * rounds:
        found[name].append(workers.alone(name, CONTENDERS[name], setting, threads))
    return found


def rows(readings: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Returns a row for each contender: its seconds, by what they were spent on."""
    return [
        {"name": name, **{each: [one[each] for one in found] for each in READINGS}}
        for name, found in readings.items()
    ]


def table(found: dict[str, Any]) -> str:
    """Returns the result as a Markdown table."""
    titles = ("processor seconds, the median", *READINGS.values())
    cells = [
        [row["name"], *(f"{report.spread(row[each])['median']:.2f}" for each in READINGS)]
        for row in found["rows"]
    ]
    return report.markdown(titles, cells)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_bool("return_sequences", False, "Take the loss on the outputs of all steps.")
    report.define_flags(rounds=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    setting = Setting(FLAGS.return_sequences)
    readings = measure(setting, FLAGS.rounds, here["threads"])
    sizes = {"batch_size": BATCH, "time_steps": LENGTH, "units": UNITS, "depth": DEPTH}
    found = {
        "setting": {**sizes, **setting._asdict()},
        **here,
        "left_out": {},
        "rows": rows(readings),
    }
    report.end(found, table)
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
