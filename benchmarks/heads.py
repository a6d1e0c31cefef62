"""One training step of each output head, alone, on the CPU.

    python -m benchmarks.heads --vocabulary_size=267735 --json=heads.json

Features are random, targets are drawn from Zipf's law over the vocabulary, the first word the most
frequent. A step is the mean nll, its gradients with respect to features, table and the head's
variables, and plain gradient descent. `docs/benchmarks.md` explains the columns.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import report, workers
from benchmarks.contenders import RATE
from benchmarks.workers import Contender, Result

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class HeadSizes:
    """The features `[positions, units]` and the vocabulary of a head."""

    positions: int
    units: int
    vocabulary_size: int
    experts: int
    cutoffs: tuple[int, ...]
    threads: int

    def features(self) -> Any:
        """Returns float32 `[positions, units]`."""
        import numpy as np

        shape = (self.positions, self.units)
        return np.random.default_rng(0).standard_normal(shape, np.float32)

    def targets(self) -> Any:
        """Returns int32 `[positions]`: word n, from 1, with a probability proportional to 1/n."""
        import numpy as np

        weights = 1 / np.arange(1, self.vocabulary_size + 1)
        drawn = np.random.default_rng(1).choice(
            self.vocabulary_size, self.positions, p=weights / weights.sum()
        )
        return drawn.astype(np.int32)


def tied(sizes: HeadSizes) -> Contender:
    """One softmax over all words."""
    from keras_trellis import heads

    return _contender(heads.TiedSoftmax(), sizes)


def mixture(sizes: HeadSizes) -> Contender:
    """A mixture of `experts` softmaxes over all words."""
    from keras_trellis import heads

    return _contender(heads.MixtureOfSoftmaxes(sizes.experts), sizes)


def adaptive(sizes: HeadSizes) -> Contender:
    """A softmax split at `cutoffs`."""
    from keras_trellis import heads

    return _contender(heads.AdaptiveSoftmax(sizes.cutoffs), sizes)


def _contender(head: Any, sizes: HeadSizes) -> Contender:
    import tensorflow as tf

    table_shape = (sizes.vocabulary_size, sizes.units)
    head.build((None, sizes.units), table_shape)
    table = tf.Variable(tf.random.stateless_uniform(table_shape, (0, 0), -0.1, 0.1))
    features, targets = tf.constant(sizes.features()), tf.constant(sizes.targets())
    variables = [table, *(variable.value for variable in head.trainable_variables)]

    @tf.function
    def step(features: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(features)
            loss = tf.reduce_mean(head.nll(features, targets, table, training=True))
        below, *gradients = tape.gradient(loss, [features, *variables])
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss, below  # what is not returned would not be computed

    step.get_concrete_function(features, targets)  # tracing belongs to the process at rest
    parameters = sum(math.prod(variable.shape) for variable in variables)
    return Contender(lambda: step(features, targets)[0].numpy(), {"parameters": parameters})


FULL = "tied"
HEADS = {
    FULL: ("TiedSoftmax", tied),
    "mixture": ("MixtureOfSoftmaxes", mixture),
    "adaptive": ("AdaptiveSoftmax", adaptive),
}


def row(name: str, results: dict[str, Result]) -> dict[str, Any]:
    """Returns a head's row."""
    facts, readings = results[name]
    found = {"name": name, "title": HEADS[name][0], **facts, "seconds": report.seconds(readings)}
    found["peak_bytes"] = report.peak(readings)
    if FULL in results:
        full = results[FULL].readings
        found["time_to_full"] = report.ratios(readings, full)
        if found["peak_bytes"] is not None:
            found["peak_to_full"] = found["peak_bytes"] / report.peak(full)
    return found


def table(found: dict[str, Any]) -> str:
    """Returns the result as a Markdown table."""
    titles = (
        *("", "ms", "time to the full softmax's: min, median, max", "positions/s"),
        *("peak MiB", "to the full softmax's", "parameters"),
    )
    return report.markdown(titles, [_cells(each, found["sizes"]) for each in found["rows"]])


def _cells(found: dict[str, Any], sizes: dict[str, Any]) -> list[str]:
    median = statistics.median(found["seconds"])
    ratio = found.get("peak_to_full")
    return [
        found["title"],
        f"{1e3 * median:,.1f}",
        report.spread_cell(found.get("time_to_full")),
        f"{sizes['positions'] / median:,.0f}",
        report.mebibytes(found["peak_bytes"]),
        "" if ratio is None else f"{ratio:.2f}",
        f"{found['parameters']:,}",
    ]


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("positions", 832, "B T, the scored positions.", lower_bound=1)
    flags.DEFINE_integer("units", 400, "Size of features and word vectors.", lower_bound=1)
    flags.DEFINE_integer("vocabulary_size", 10_000, "Words.", lower_bound=2)
    flags.DEFINE_integer("experts", 15, "Softmaxes of the mixture.", lower_bound=1)
    flags.DEFINE_list("cutoffs", ["2000", "5000"], "Clusters of the adaptive softmax.")
    report.define_only(list(HEADS), FULL)
    report.define_flags(rounds=5, warmup=1)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    sizes = HeadSizes(
        positions=FLAGS.positions,
        units=FLAGS.units,
        vocabulary_size=FLAGS.vocabulary_size,
        experts=FLAGS.experts,
        cutoffs=report.integers("cutoffs"),
        threads=report.threads(),
    )
    here = report.begin(argv)
    builds = {name: HEADS[name][1] for name in report.chosen(list(HEADS), FULL)}
    results, left_out = workers.measure(
        builds, sizes, threads=sizes.threads, warmup=FLAGS.warmup, rounds=FLAGS.rounds
    )
    found = {"sizes": dataclasses.asdict(sizes), **here}
    found["rows"] = [row(name, results) for name in results]
    found["left_out"] = {HEADS[name][0]: reason for name, reason in left_out.items()}
    report.end(found, table)
    return int(bool(left_out))


if __name__ == "__main__":
    define_flags()
    app.run(main)
