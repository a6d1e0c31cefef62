"""Processor seconds until an exported language model has answered, beside an LSTM's.

    python -m benchmarks.start --json=start.json

A process that has imported TensorFlow loads a SavedModel by `tf.saved_model.load`, and asks it for
two tokens by `generate`: what a server does as it starts, or warms up. Each reading is of a process
of its own. The sizes are those of the preset `small` of `ptb`, which is also that of `pydoc`.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import exported, lstm, report, workers
from benchmarks.exported import Model
from benchmarks.workers import Contender

FLAGS = flags.FLAGS
TOKENS = 2
READINGS = ("load", "generate", "again")
OURS, LSTM = "TrellisLM", "keras.layers.LSTM"


def trellis(model: Model) -> Contender:
    """The export, asked for tokens after an empty prompt's cache."""
    import tensorflow as tf

    def ask(loaded: Any) -> Callable[[], Any]:
        specs = loaded.signatures["generate"].structured_input_signature[1]
        settings = exported.sampling(1, TOKENS, temperature=0.0)
        cache = {
            name: tf.zeros([1, *spec.shape[1:]], spec.dtype)
            for name, spec in specs.items()
            if name.startswith("cache_")
        }
        request = {"ids": tf.zeros([1, 1], tf.int32), "lengths": tf.ones([1], tf.int32)}
        return lambda: loaded.signatures["generate"](**request, **settings, **cache)

    return _cold(model.load, ask)


def write_lstm(model: Model) -> Contender:
    """A step writes the LSTM."""
    return Contender(lambda: lstm.export(model, lstm_path(model)), {})


def baseline(model: Model) -> Contender:
    """The LSTM, asked for as many tokens."""
    import tensorflow as tf

    def ask(loaded: Any) -> Callable[[], Any]:
        request = {"ids": tf.zeros([1], tf.int32), "max_length": tf.constant(TOKENS)}
        return lambda: loaded.signatures["generate"](**request)

    return _cold(lambda: tf.saved_model.load(lstm_path(model)), ask)


def lstm_path(model: Model) -> str:
    """Returns the folder of the LSTM's SavedModel."""
    return str(Path(model.folder) / "lstm")


def _cold(load: Callable[[], Any], ask: Callable[[Any], Callable[[], Any]]) -> Contender:
    found: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        done = work()
        found[name] = time.process_time() - start
        return done

    def step() -> None:
        loaded = timed("load", load)
        call = ask(loaded)
        timed("generate", call)
        timed("again", call)

    return Contender(step, {}, lambda: found)


CONTENDERS = {OURS: trellis, LSTM: baseline}


def measure(model: Model, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Returns each contender's readings, one a round; they take turns.

    Raises:
        RuntimeError: one of them could not be written or loaded.
    """
    exported.write(model)
    workers.alone("the LSTM", write_lstm, model, model.threads)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for name in [*CONTENDERS] * rounds:
        found[name].append(workers.alone(name, CONTENDERS[name], model, model.threads))
    return found


def rows(readings: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Returns a row for each contender: its seconds, by what they were spent on."""
    return [
        {"name": name, **{each: [one[each] for one in found] for each in READINGS}}
        for name, found in readings.items()
    ]


def table(found: dict[str, Any]) -> str:
    """Returns the result as a Markdown table."""
    titles = ("processor seconds, the median", "load", "first `generate`", "second `generate`")
    cells = [
        [row["name"], *(f"{report.spread(row[each])['median']:.2f}" for each in READINGS)]
        for row in found["rows"]
    ]
    return report.markdown(titles, cells)


def define_flags() -> None:
    """Defines the flags."""
    exported.define_flags(units=256, depth=6, embedding_units=200, dilation_rate=("1", "3", "9"))
    report.define_flags(rounds=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    with exported.from_flags(here["threads"]) as model:
        readings = measure(model, FLAGS.rounds)
    found = {"setting": model.sizes(), **here, "left_out": {}, "rows": rows(readings)}
    report.end(found, table)
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
