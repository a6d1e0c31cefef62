"""Processor seconds of a model's first steps, of another length, and of unknown lengths.

    python -m benchmarks.first_steps --json=first_steps.json

This is what a `fit` costs before it is under way: TensorFlow traces, optimises and compiles its
graph. Each reading is of a process of its own. The seconds are those of all its threads, which
other processes hardly disturb.
"""

import functools
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

from absl import app, flags

from benchmarks import report, workers
from benchmarks.workers import Contender, Facts

FLAGS = flags.FLAGS
BATCH, CHANNELS, UNITS, DEPTH = 32, 8, 64, 8
LENGTH, OTHER_LENGTH = 30, 45
MANY = 40
READINGS = {
    "epoch": "first epoch of a small model",
    "first": "first step",
    "known": f"{MANY} steps",
    "another": "first step of another length",
    "unknown": f"{MANY} steps, lengths not known",
}


class Setting(NamedTuple):
    """What is measured.

    Attributes:
        return_sequences: whether the loss is on the outputs of all time steps, or on the last.
    """

    return_sequences: bool


def trellis(setting: Setting) -> Contender:
    """Our layer."""
    from keras_trellis import TrellisLayer

    small = functools.partial(TrellisLayer, 16, depth=8, dilation_rate=[1, 2, 4, 8])
    layer = functools.partial(TrellisLayer, UNITS, depth=DEPTH, **setting._asdict())
    return _contender(setting, small, layer)


def baseline(setting: Setting) -> Contender:
    """The layer whose place it takes."""
    from keras.layers import LSTM

    layer = functools.partial(LSTM, UNITS, **setting._asdict())
    return _contender(setting, functools.partial(LSTM, 16), layer)


OURS = "TrellisLayer"
CONTENDERS = {OURS: trellis, "keras.layers.LSTM": baseline}


def _contender(setting, small, layer):
    seconds: dict[str, float] = {}

    def time_of(name, work):
        start = time.process_time()
        work()
        seconds[name] = time.process_time() - start

    def step():
        time_of("epoch", _first_epoch(_model(small, 1)))
        model = _model(layer, CHANNELS)
        fit = functools.partial(_fit, model, setting)
        time_of("first", fit(LENGTH, 1))
        time_of("known", fit(LENGTH, MANY))
        time_of("another", fit(OTHER_LENGTH, 1))
        fit = functools.partial(_fit, _model(layer, CHANNELS), setting, known=False)
        time_of("traced", fit(LENGTH, 1))
        time_of("unknown", fit(LENGTH, MANY))

    return Contender(step, {}, lambda: seconds)


def _model(layer, channels):
    import keras

    inputs = keras.Input([None, channels])
    model = keras.Sequential([inputs, layer(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def _first_epoch(model):
    """Returns what trains on 2,000 random walks, each with whether it ends above zero."""
    import numpy as np

    random = np.random.default_rng(0)
    walks = random.choice([-1.0, 1.0], (2000, 30, 1))
    ends = walks.sum(axis=(1, 2)) > 0
    return lambda: model.fit(walks, ends, verbose=0)


def _fit(model, setting, length, steps, *, known=True):
    """Returns what takes so many training steps, of a length that the graph knows or not."""
    import numpy as np
    import tensorflow as tf

    def shape(length):
        outputs = [length] if setting.return_sequences else []
        return [BATCH, length, CHANNELS], [BATCH, *outputs, 1]

    batch = tuple(np.ones(each, np.float32) for each in shape(length))
    shapes = shape(length if known else None)
    specs = tuple(tf.TensorSpec(each) for each in shapes)
    batches = tf.data.Dataset.from_generator(
        lambda: itertools.repeat(batch, steps), output_signature=specs
    )
    return lambda: model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)


def measure(setting: Setting, rounds: int, threads: int) -> list[Facts]:
    """Returns a row for each contender, with a list of seconds for each reading; they take turns.

    Raises:
        RuntimeError: one of them failed.
    """
    rows: dict[str, Facts] = {}
    for name in [*CONTENDERS] * rounds:
        facts = workers.once(name, CONTENDERS[name], setting, threads).facts
        row = rows.setdefault(name, {"name": name})
        for each in READINGS:
            row.setdefault(each, []).append(facts[each])
    return list(rows.values())


def table(found: Facts) -> str:
    """Returns the medians as a Markdown table."""
    columns = {"processor seconds, the median": lambda row: row["name"]}
    for name, title in READINGS.items():
        columns[title] = functools.partial(_median, name)
    return report.table(found["rows"], columns)


def _median(name, row):
    return report.number(statistics.median(row[name]), 2)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_bool("return_sequences", False, "Take the loss on the outputs of all time steps.")
    report.define_flags(rounds=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    setting = Setting(FLAGS.return_sequences)
    rows = measure(setting, FLAGS.rounds, here["threads"])
    sizes = {
        "batch_size": BATCH,
        "time_steps": LENGTH,
        "units": UNITS,
        "depth": DEPTH,
        **setting._asdict(),
    }
    found = {"setting": sizes, **here, "left_out": {}, "rows": rows}
    report.end(found, table(found))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
