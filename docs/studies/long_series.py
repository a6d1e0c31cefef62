r"""Measures the program of README.md: a trellis network beside other layers on long series.

    python -m docs.studies.long_series
    python -m docs.studies.long_series --layers=lstm --seeds=1 --seconds=150 --jit_compile

Each layer has the parameters of the trellis network, within 5 %, and the same seconds of the
processor for its training, from its first step on, which traces. It is trained at three rates;
the one that is best on the validation series counts, and its accuracy on the test series is the
result. All rows go to docs/studies/long_series.csv.
"""

import csv
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from absl import app, flags

from keras_trellis import TrellisLayer

FLAGS = flags.FLAGS
flags.DEFINE_list("layers", ["trellis", "lstm", "gru", "conv"], "What is trained.")
flags.DEFINE_list("rates", ["3e-3", "1e-2", "3e-2"], "The rates of each.")
flags.DEFINE_list("seeds", ["1", "2", "3"], "The seeds of each.")
flags.DEFINE_float("seconds", 15, "The processor seconds of a training.")
flags.DEFINE_bool("jit_compile", False, "Whether XLA compiles, as `fit` on a GPU does.")

TABLE = pathlib.Path(__file__).with_suffix(".csv")
TRAIN, BATCH, READINGS = 4000, 32, 1000


def vibrations(count, seed):  # a second of each turning shaft, 1,000 readings
    rng = np.random.default_rng(seed)
    fault = rng.integers(3, size=count)  # its bearing: sound, outer ring, inner ring
    speed = rng.uniform(20, 30, (count, 1))  # turns a second
    turns = speed * np.arange(1000) / 1000 + rng.random((count, 1))
    knocks = np.array([1, 3.58, 5.42])[fault, None]  # of the damaged ring, a turn
    since = (knocks * turns + rng.random((count, 1))) % 1 / (knocks * speed)  # seconds
    ringing = np.exp(-since / 0.005) * np.sin(2 * np.pi * 220 * since)
    signal = np.sin(2 * np.pi * turns) + ringing * (fault > 0)[:, None]
    return (signal + rng.normal(0, 0.5, signal.shape))[..., None], fault


def convolutions() -> keras.Sequential:
    """Returns three convolutions without overlap, which end in one step."""
    layers = [
        keras.layers.Conv1D(12, 10, strides=10, activation="relu") for _ in range(3)
    ]
    return keras.Sequential([*layers, keras.layers.Flatten()])


LAYERS = {
    "trellis": lambda: TrellisLayer(
        8, depth=3, kernel_size=10, dilation_rate=[1, 10, 100]
    ),
    "lstm": lambda: keras.layers.LSTM(26),
    "gru": lambda: keras.layers.GRU(29),
    "conv": convolutions,
}


def measure(name: str, rate: float, seed: int) -> dict[str, Any]:
    """Trains one layer; returns its row of the table."""
    keras.utils.set_random_seed(seed)
    layer = LAYERS[name]()
    model = keras.Sequential([keras.Input([READINGS, 1]), layer])
    model.add(keras.layers.Dense(3, activation="softmax"))
    model.compile(
        keras.optimizers.Adam(rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=FLAGS.jit_compile,
    )
    signals, faults = vibrations(TRAIN, seed)
    end = time.process_time() + FLAGS.seconds
    while time.process_time() < end:
        rows = np.random.choice(TRAIN, BATCH)
        model.train_on_batch(signals[rows], faults[rows])
    steps = int(model.optimizer.iterations)
    _, validation = model.evaluate(*vibrations(500, 2000 + seed), 250, verbose=0)
    _, test = model.evaluate(*vibrations(1000, 1000 + seed), 250, verbose=0)
    return {
        "layer": name,
        "parameters": layer.count_params(),
        "seconds": FLAGS.seconds,
        "jit_compile": FLAGS.jit_compile,
        "rate": rate,
        "seed": seed,
        "steps": steps,
        "validation": round(validation, 3),
        "test": round(test, 3),
    }


def main(argv: Sequence[str]) -> None:
    """Trains each layer with each seed and rate; prints and keeps each row."""
    del argv
    for seed in map(int, FLAGS.seeds):
        for name in FLAGS.layers:
            rows = [measure(name, float(rate), seed) for rate in FLAGS.rates]
            keep(rows)
            best = max(rows, key=lambda row: row["validation"])
            print(
                f"{name}, seed {seed}, rate {best['rate']}: {best['test']:.1%}",
                flush=True,
            )


def keep(rows: Sequence[dict[str, Any]]) -> None:
    """Adds rows to the table."""
    first = not TABLE.exists()
    with TABLE.open("a", newline="") as table:
        writer = csv.DictWriter(table, rows[0], lineterminator="\n")
        if first:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    app.run(main)
