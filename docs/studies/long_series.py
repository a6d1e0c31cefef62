r"""Measures the program of README.md: a trellis network beside other layers on long series.

    python -m docs.studies.long_series
    python -m docs.studies.long_series --layers=lstm --rates=1e-3 --seconds=80
    KERAS_BACKEND=jax python -m docs.studies.long_series --layers=trellis --rates=1e-2 --steps=STEPS

Each layer has the parameters of the trellis network, within 5 %, and the same CPU seconds for its
training, from its first step on, which traces. Each is tuned in the same way: of the same rates,
the one that is best on validation series, in the mean over the seeds, counts, and its accuracy on
test series is the result. All rows go to docs/studies/long_series.csv, on another backend than
TensorFlow to long_series_BACKEND.csv.
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
RATES = ["3e-4", "1e-3", "3e-3", "1e-2", "3e-2"]
flags.DEFINE_list("rates", RATES, "The learning rates of each.")
flags.DEFINE_list("seeds", ["1", "2", "3"], "The seeds of each.")
flags.DEFINE_float("seconds", 8, "The CPU seconds of a training.")
flags.DEFINE_list("steps", [], "In their place the training steps, of each seed.")

_BACKEND = keras.backend.backend()
_ENDING = "" if _BACKEND == "tensorflow" else f"_{_BACKEND}"
TABLE = pathlib.Path(__file__).with_name(f"long_series{_ENDING}.csv")


def vibrations(count):  # series of 1,000 readings, and the part that knocks in each
    part = np.random.randint(3, size=count)
    period = np.array([7, 9, 11])[part, None]  # readings from knock to knock
    knocks = (np.arange(1000) + np.random.randint(period)) % period == 0
    return (knocks + np.random.normal(0, 0.7, knocks.shape))[..., None], part


def convolutions() -> keras.Sequential:
    """Returns three convolutions without overlap, which end in one step."""
    layers = [
        keras.layers.Conv1D(12, 10, strides=10, activation="relu") for _ in range(3)
    ]
    return keras.Sequential([*layers, keras.layers.Flatten()])


def after_stem(layer: keras.layers.Layer) -> keras.Sequential:
    """Returns a layer after a convolution that reads ten steps at a time."""
    stem = keras.layers.Conv1D(9, 10, strides=10, padding="causal", activation="relu")
    return keras.Sequential([stem, layer])


LAYERS = {
    "trellis": lambda: TrellisLayer(
        8, depth=3, kernel_size=10, dilation_rate=[1, 10, 100]
    ),
    "lstm": lambda: keras.layers.LSTM(26),
    "gru": lambda: keras.layers.GRU(29),
    "conv": convolutions,
    "stem": lambda: after_stem(
        TrellisLayer(5, depth=2, kernel_size=10, dilation_rate=[1, 10])
    ),
    "stem_lstm": lambda: after_stem(keras.layers.LSTM(22)),
    "stem_gru": lambda: after_stem(keras.layers.GRU(26)),
}


def measure(name: str, rate: float, seed: int, steps: int | None) -> dict[str, Any]:
    """Trains one layer, for its seconds or so many steps; returns its row of the table."""
    keras.utils.set_random_seed(seed)
    layer = LAYERS[name]()
    model = keras.Sequential([layer, keras.layers.Dense(3, "softmax")])
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    begin = time.process_time()
    made = 0
    while made < steps if steps else time.process_time() < begin + FLAGS.seconds:
        model.train_on_batch(*vibrations(32))
        made += 1
    seconds = time.process_time() - begin if steps else FLAGS.seconds
    validation, test = (
        model.evaluate(*vibrations(1000), 250, verbose=0)[1] for _ in range(2)
    )
    return {
        "layer": name,
        "parameters": layer.count_params(),
        "seconds": round(seconds, 1),
        "rate": rate,
        "seed": seed,
        "steps": made,
        "validation": round(validation, 3),
        "test": round(test, 3),
    }


def main(argv: Sequence[str]) -> None:
    """Trains each layer with each rate and seed; prints and keeps the rows."""
    del argv
    none: list[int | None] = [None] * len(FLAGS.seeds)
    steps = [*map(int, FLAGS.steps)] or none
    trainings = [*zip(map(int, FLAGS.seeds), steps, strict=True)]
    for name in FLAGS.layers:
        by_rate = [
            [measure(name, float(rate), *training) for training in trainings]
            for rate in FLAGS.rates
        ]
        keep([row for rows in by_rate for row in rows])
        best = max(by_rate, key=lambda rows: sum(row["validation"] for row in rows))
        scores = ", ".join(f"{row['test']:.1%}" for row in best)
        print(f"{name}, rate {best[0]['rate']}: {scores}", flush=True)


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
