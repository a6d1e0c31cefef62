"""Processor seconds of a model's first steps, of another length, and of unknown lengths.

    python -m benchmarks.first_steps --json=first_steps.json

This is what a `fit` costs before it is under way: TensorFlow traces, optimises and compiles its
graph.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from absl import app, flags

from benchmarks import cold, report
from benchmarks.workers import Contender

FLAGS = flags.FLAGS
BATCH, CHANNELS, UNITS, DEPTH = 32, 8, 64, 8
LENGTH, OTHER_LENGTH = 30, 45
MANY = 40
READINGS = {
    "epoch": "first epoch of a small model",
    "first": "first step",
    "known": f"{MANY} steps",
    "another": "first step of another length",
    "layer": "of it the layer's gradients",
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
    def step(watch):
        watch.time("epoch", _first_epoch(_model(small, 1)))
        model = _model(layer, CHANNELS)
        fit = functools.partial(_fit, model, setting)
        watch.time("first", fit(LENGTH, 1))
        watch.time("known", fit(LENGTH, MANY))
        watch.time("another", fit(OTHER_LENGTH, 1))
        watch.time("layer", _gradients(model.layers[0]))
        fit = functools.partial(_fit, _model(layer, CHANNELS), setting, known=False)
        watch.time("traced", fit(LENGTH, 1))
        watch.time("unknown", fit(LENGTH, MANY))

    return cold.contender(step)


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


def _gradients(layer):
    """Returns what traces a graph of a layer's gradients, and runs it once."""
    import tensorflow as tf

    spec = tf.TensorSpec([BATCH, None, CHANNELS])

    @tf.function(input_signature=[spec])
    def gradients(sequences):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(layer(sequences, training=True))
        return tape.gradient(total, [variable.value for variable in layer.trainable_variables])

    sequences = tf.ones([BATCH, OTHER_LENGTH, CHANNELS])
    return lambda: gradients(sequences)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_bool("return_sequences", False, "Take the loss on the outputs of all time steps.")
    report.define_flags(rounds=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    setting = Setting(FLAGS.return_sequences)
    rows = cold.measure(CONTENDERS, setting, rounds=FLAGS.rounds, threads=here["threads"])
    sizes = {
        "batch_size": BATCH,
        "time_steps": LENGTH,
        "units": UNITS,
        "depth": DEPTH,
        **setting._asdict(),
    }
    found = {"setting": sizes, **here, "left_out": {}, "rows": rows}
    report.end(found, cold.table(rows, READINGS))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
