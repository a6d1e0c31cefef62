"""A training step of `fit`, beside Keras's layers, on any backend and device of Keras.

    KERAS_BACKEND=jax python -m benchmarks.fit --csv=fit.csv

A step is one of Keras's `fit` with Adam, for a dense layer on top and the mean square of what it
returns, and has all that Keras does from one step to the next. It needs no TensorFlow. The first
epoch compiles; the others are timed by the clock. `--only=TrellisLayer` runs titles with that text.
"""

import csv
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from absl import app, flags

from keras_trellis import (
    EquilibriumTrellisLayer,
    TensorizedLSTM,
    TrellisLayer,
    recurrent,
)

FLAGS = flags.FLAGS
Layers = dict[str, Callable[..., Any]]
_DOUBLING = [2**level for level in range(10)]
_GATED = ("FastGRNN", "IHCLSTM", "IRCGRU", "IRCLSTM", "IRCSRU", "SRU")


class Case(NamedTuple):
    """What a step computes.

    Attributes:
        batch_size: B.
        time_steps: T.
        channels: of the input.
        sequences: whether there is an output for each time step, or for the last one alone.
        layers: from a title to what makes a layer.
    """

    batch_size: int
    time_steps: int
    channels: int
    sequences: bool
    layers: Layers


def _keras(units: int) -> Layers:
    names = ("LSTM", "GRU")
    return {
        f"Keras's {name}({units})": functools.partial(
            getattr(keras.layers, name), units
        )
        for name in names
    }


def _trellis(units: int, depth: int, *dilations: int, **arguments: Any) -> Layers:
    title = ", ".join([str(units), str(depth), *arguments])
    return {
        f"TrellisLayer({title})": functools.partial(
            TrellisLayer, units, depth, dilation_rate=dilations or (1,), **arguments
        )
    }


CASES = {
    "words": Case(
        *(16, 110, 512, True),
        _trellis(512, 20) | _trellis(512, 20, recompute=True) | _keras(512),
    ),
    "answer_1000": Case(32, 1000, 2, False, _trellis(32, 10, *_DOUBLING) | _keras(32)),
    "answer_784": Case(64, 784, 1, False, _trellis(96, 11, 1, *_DOUBLING) | _keras(96)),
    "outputs_1024": Case(32, 1024, 64, True, _trellis(64, 10, *_DOUBLING) | _keras(64)),
    "gated": Case(
        *(20, 70, 200, True),
        _keras(200)
        | {f"{n}(200)": functools.partial(getattr(recurrent, n), 200) for n in _GATED}
        | {
            "EquilibriumTrellisLayer(200)": functools.partial(
                EquilibriumTrellisLayer, 200
            ),
            "TensorizedLSTM(50, 3)": functools.partial(TensorizedLSTM, 50, 3),
        },
    ),
}


class _Clock(keras.callbacks.Callback):
    """When training began, and when each epoch had its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter())


def measure(
    case: Case, make: Callable[..., Any], steps: int, epochs: int
) -> dict[str, Any]:
    """Trains a layer, and returns its parameters and its times.

    Args:
        case: what a step computes.
        make: makes the layer.
        steps: of an epoch.
        epochs: that are timed, after one that is not.
    """
    keras.utils.set_random_seed(1)
    shape = (case.batch_size * steps, case.time_steps, case.channels)
    inputs = np.random.default_rng(0).standard_normal(shape, np.float32)
    layer = make(return_sequences=case.sequences)
    model = keras.Sequential([keras.Input(shape[1:]), layer, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    targets = np.zeros([shape[0], *model.output_shape[1:]], np.float32)
    clock = _Clock()
    model.fit(inputs, targets, case.batch_size, epochs + 1, 0, [clock])
    first, *others = np.diff(clock.seconds)
    milliseconds = 1e3 * np.array(others) / steps
    return {
        "parameters": layer.count_params(),
        "first_epoch_s": f"{first:.2f}",
        "ms_min": f"{min(milliseconds):.3f}",
        "ms_median": f"{np.median(milliseconds):.3f}",
        "ms_max": f"{max(milliseconds):.3f}",
    }


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_multi_enum(
        "case", list(CASES), CASES, "What is measured. Give it again for several."
    )
    flags.DEFINE_string("only", "", "A text that the titles of layers have.")
    flags.DEFINE_enum(
        "dtype", "float32", ["float32", "mixed_bfloat16"], "Keras's policy."
    )
    flags.DEFINE_integer("steps", 30, "Steps of an epoch.", lower_bound=1)
    flags.DEFINE_integer("epochs", 4, "Epochs that are timed.", lower_bound=1)
    flags.DEFINE_string("csv", None, "A new file for the rows.", required=True)


def main(argv: Sequence[str]) -> None:
    """Measures, prints each row, and writes them."""
    if argv[1:]:
        raise app.UsageError(f"there are only flags. Received: {argv[1:]}")
    path = Path(FLAGS.csv)
    if path.exists():
        raise app.UsageError(
            f"--csv must be a new file. Received: {path}, which exists"
        )
    keras.config.set_dtype_policy(FLAGS.dtype)
    with path.open("x", newline="") as file:
        writer = None
        for name in FLAGS.case:
            for title, make in CASES[name].layers.items():
                if FLAGS.only not in title:
                    continue
                row = {
                    "backend": keras.backend.backend(),
                    "dtype": FLAGS.dtype,
                    "case": name,
                    "layer": title,
                    **measure(CASES[name], make, FLAGS.steps, FLAGS.epochs),
                }
                if writer is None:
                    writer = csv.DictWriter(file, list(row), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(row)
                file.flush()
                print(*row.values(), flush=True)
                keras.utils.clear_session()


if __name__ == "__main__":
    define_flags()
    app.run(main)
