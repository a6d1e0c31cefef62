"""Exports in less precision beside float32: time to write and to load, size, speed, and answers.

    python -m benchmarks.precisions --json=precisions.json

A cold load is `tf.saved_model.load` and the first answer, in a process that has imported
TensorFlow. The weights are random, so this says nothing of perplexity:
`python -m trainers.export --precision=int8 --data_dir=TEXT` measures that of a trained model.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence

from absl import app, flags

from benchmarks import exported, report, workers
from benchmarks.exported import FULL, Model
from benchmarks.workers import Contender, Facts, Reading, Result, Results

FLAGS = flags.FLAGS
PRECISIONS = (FULL, "float16", "int8")
SIGNATURES = ("step", "score")
TOKENS = 32  # that `step` and `score` read
PROMPTS = (4, 16)  # rows and tokens, after which answers are compared


@dataclasses.dataclass(frozen=True)
class Setting:
    """A signature, asked for so many tokens of a row."""

    model: Model
    signature: str
    tokens: int


def cold(precision: str, model: Model) -> Contender:
    """Loads an export and asks it for its first answer; a process of its own does so once."""
    import tensorflow as tf

    found: Facts = {}

    def step():
        start = time.perf_counter()
        found["loaded"] = model.load(precision)
        found["load_seconds"] = time.perf_counter() - start
        found["loaded"].signatures["serving_default"](text=tf.constant(["w1"]))

    def learn():
        words = model.vocabulary_size
        ids = tf.random.stateless_uniform(PROMPTS, (0, 0), 0, words, tf.int32)
        lengths = tf.fill(PROMPTS[:1], PROMPTS[1])
        answer = found.pop("loaded").signatures["prefill"](ids=ids, lengths=lengths)
        return {**found, "log_probs": answer["log_probs"].numpy()}

    return Contender(step, {}, learn)


def warm(precision: str, setting: Setting) -> Contender:
    """Asks a loaded export for so many tokens, by `step` or by `score`."""
    loaded = setting.model.load(precision)
    ask = {"step": _steps, "score": _score}[setting.signature]
    return Contender(ask(loaded, setting.tokens), {})


def _steps(loaded, tokens):
    import tensorflow as tf

    one = loaded.signatures["step"]
    ids = tf.zeros([1], tf.int32)

    def step():
        log_probs, cache = exported.empty_cache(loaded, 1)
        for _ in range(tokens):
            log_probs, cache = exported.split(one(ids=ids, **cache))
        return log_probs.numpy()

    return step


def _score(loaded, tokens):
    import tensorflow as tf

    text = tf.constant([" ".join(["w1"] * tokens)])
    return lambda: loaded.signatures["score"](text=text)["nll"].numpy()


def measure_cold(model: Model, rounds: int) -> dict[str, list[Result]]:
    """Returns for each precision as many results of `cold`; they take turns, one at a time.

    Raises:
        RuntimeError: an export could not be loaded.
    """
    found: dict[str, list[Result]] = {precision: [] for precision in PRECISIONS}
    for precision in PRECISIONS * rounds:
        build = functools.partial(cold, precision)
        result = workers.once(precision, build, model, model.threads)
        found[precision].append(result)
    return found


def measure_warm(model: Model, rounds: int) -> tuple[dict[str, Results], dict[str, str]]:
    """Returns results of `warm` by signature and precision, and the reasons of those left out."""
    builds = {precision: functools.partial(warm, precision) for precision in PRECISIONS}
    found: dict[str, Results] = {}
    left_out: dict[str, str] = {}
    for name in SIGNATURES:
        setting = Setting(model, name, TOKENS)
        found[name], missing = workers.measure(
            builds, setting, threads=model.threads, warmup=1, rounds=rounds
        )
        left_out |= missing
    return found, left_out


def row(
    precision: str,
    size: int,
    written: Results,
    colds: dict[str, list[Result]],
    warms: dict[str, Results],
) -> Facts:
    """Returns a precision's row.

    Args:
        precision: the row's.
        size: bytes of the export.
        written: what `exported.write` returned.
        colds: what `measure_cold` returned.
        warms: by signature, results by precision.
    """
    import numpy as np

    answers = [colds[each][0].facts["log_probs"] for each in (precision, FULL)]
    difference = np.abs(answers[0] - answers[1])
    return {
        "precision": precision,
        "bytes": size,
        "export_seconds": written[precision].readings[0].seconds,
        "load_seconds": [each.facts["load_seconds"] for each in colds[precision]],
        "cold_seconds": [each.readings[0].seconds for each in colds[precision]],
        "difference": float(np.max(difference)),
        **{name: _speed(results, precision) for name, results in warms.items()},
    }


def _speed(results, precision):
    readings: list[Reading] = results[precision].readings
    ratios = report.ratios(readings, results[FULL].readings)
    return {"seconds": report.seconds(readings), "time_to_full": ratios}


def table(found: Facts) -> str:
    """Returns the result as a Markdown table."""
    columns: dict[str, Callable[[report.Row], str]] = {
        "weights in": lambda row: row["precision"],
        "MiB": lambda row: report.mebibytes(row["bytes"], 1),
        "export, s": lambda row: report.number(row["export_seconds"], 1),
        "load, s": lambda row: _median(row["load_seconds"]),
        "load and first answer, s": lambda row: _median(row["cold_seconds"]),
    }
    for signature in SIGNATURES:
        columns |= _speed_columns(signature, found["tokens"])
    columns["log-probabilities differ by at most"] = lambda row: f"{row['difference']:.1e}"
    return report.table(found["rows"], columns)


def _median(times):
    return report.number(statistics.median(times), 2)


def _speed_columns(signature, tokens):
    def a_token(row):
        return _median([1e3 * seconds / tokens for seconds in row[signature]["seconds"]])

    def to_full(row):
        return report.spread_cell(row[signature]["time_to_full"])

    ratio = f"`{signature}`'s time to float32's: min, median, max"
    return {f"`{signature}`, ms a token": a_token, ratio: to_full}


def define_flags() -> None:
    """Defines the flags."""
    exported.define_flags()
    report.define_flags(rounds=3)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    with exported.from_flags(here["threads"]) as model:
        written = exported.write(model, PRECISIONS)
        sizes = {precision: model.size(precision) for precision in PRECISIONS}
        colds = measure_cold(model, FLAGS.rounds)
        warms, left_out = measure_warm(model, FLAGS.rounds)
    found = {"setting": model.sizes(), "tokens": TOKENS, **here, "left_out": left_out}
    measured = PRECISIONS if not left_out else ()
    found["rows"] = [row(name, sizes[name], written, colds, warms) for name in measured]
    report.end(found, table(found))
    return int(bool(left_out))


if __name__ == "__main__":
    define_flags()
    app.run(main)
