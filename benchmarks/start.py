"""Processor seconds until an exported language model has answered, beside an LSTM's.

    python -m benchmarks.start --json=start.json

A process that has imported TensorFlow loads a SavedModel by `tf.saved_model.load`, and asks it for
two tokens by `generate`, as a server does when it starts. The sizes are those of the preset `small`
of `ptb`, which is also that of `pydoc`.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from benchmarks import cold, exported, lstm, report, workers
from benchmarks.exported import Model
from benchmarks.workers import Contender

FLAGS = flags.FLAGS
TOKENS = 2
READINGS = {"load": "load", "generate": "first `generate`", "again": "second `generate`"}
OURS = "TrellisLM"


def trellis(model: Model) -> Contender:
    """The export, asked for tokens after an empty prompt's cache."""
    import tensorflow as tf

    def ask(loaded):
        generate = loaded.signatures["generate"]
        request = exported.sampling(1, TOKENS, temperature=0.0)
        request["ids"] = tf.zeros([1, 1], tf.int32)
        request["lengths"] = tf.ones([1], tf.int32)
        specs = exported.cache_of(generate.structured_input_signature[1])
        for name, spec in specs.items():
            request[name] = tf.zeros([1, *spec.shape[1:]], spec.dtype)
        return lambda: generate(**request)

    return _contender(model.load, ask)


def baseline(model: Model) -> Contender:
    """The LSTM, asked for as many tokens."""
    import tensorflow as tf

    def ask(loaded):
        generate = loaded.signatures["generate"]
        ids = tf.zeros([1], tf.int32)
        count = tf.constant(TOKENS)
        return lambda: generate(ids=ids, max_length=count)

    return _contender(lambda: tf.saved_model.load(lstm_path(model)), ask)


def write_lstm(model: Model) -> Contender:
    """A step writes the LSTM."""
    return Contender(lambda: lstm.export(model, lstm_path(model)), {})


def lstm_path(model: Model) -> str:
    """Returns the folder of the LSTM's SavedModel."""
    return str(Path(model.folder) / "lstm")


def _contender(load, ask):
    def step(watch):
        loaded = watch.time("load", load)
        call = ask(loaded)
        watch.time("generate", call)
        watch.time("again", call)

    return cold.contender(step)


CONTENDERS = {OURS: trellis, "keras.layers.LSTM": baseline}


def define_flags() -> None:
    """Defines the flags."""
    exported.define_flags(
        units=256,
        depth=6,
        embedding_units=200,
        dilation_rate=("1", "3", "9"),
    )
    report.define_flags(rounds=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    threads = here["threads"]
    with exported.from_flags(threads) as model:
        exported.write(model)
        workers.once("the LSTM", write_lstm, model, threads)
        rows = cold.measure(CONTENDERS, model, rounds=FLAGS.rounds, threads=threads)
    found = {"setting": model.sizes(), **here, "left_out": {}, "rows": rows}
    report.end(found, cold.table(rows, READINGS))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
