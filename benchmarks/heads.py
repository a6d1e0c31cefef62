"""One training step of each output head, alone, on the CPU.

    python -m benchmarks.heads --vocabulary_size=267735 --json=heads.json

Features are random. Targets follow Zipf's law, the first word the most frequent.
A step computes the mean nll and its gradients with respect to the features, the word table and the
head's variables, and applies plain gradient descent. `docs/notes/benchmarks.md`
explains the columns.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import report
from benchmarks.contenders import descent, traced
from benchmarks.workers import Contender, Facts

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class HeadSizes:
    """The features `[positions, units]` and the vocabulary of a head."""

    positions: int
    units: int
    vocabulary_size: int
    experts: int
    cutoffs: tuple[int, ...]


def draw_targets(count: int, vocabulary_size: int) -> Any:
    """Returns int32 `[count]`: word n, from 1, with a probability proportional to 1/n."""
    import numpy as np

    weights = 1 / np.arange(1, vocabulary_size + 1)
    shares = weights / weights.sum()
    drawn = np.random.default_rng(1).choice(vocabulary_size, count, p=shares)
    return drawn.astype(np.int32)


def contender(name: str, sizes: HeadSizes) -> Contender:
    """A step of a head: one of `HEADS`."""
    import tensorflow as tf

    from keras_trellis import heads

    arguments = {
        "MixtureOfSoftmaxes": [sizes.experts],
        "AdaptiveSoftmax": [sizes.cutoffs],
    }
    head = getattr(heads, name)(*arguments.get(name, []))

    table_shape = (sizes.vocabulary_size, sizes.units)
    head.build((None, sizes.units), table_shape)
    words = tf.random.stateless_uniform(table_shape, (0, 0), -0.1, 0.1)
    table = tf.Variable(words)
    features = tf.random.stateless_normal((sizes.positions, sizes.units), (0, 1))
    targets = tf.constant(draw_targets(sizes.positions, sizes.vocabulary_size))
    variables = [table, *(variable.value for variable in head.trainable_variables)]

    def mean_nll(features, targets):
        return tf.reduce_mean(head.nll(features, targets, table, training=True))

    step = traced(descent(mean_nll, variables), [features, targets])
    parameters = sum(math.prod(variable.shape) for variable in variables)
    return Contender(step, {"parameters": parameters})


FULL = "tied"
TITLES = {
    FULL: "TiedSoftmax",
    "mixture": "MixtureOfSoftmaxes",
    "adaptive": "AdaptiveSoftmax",
}
HEADS: report.Contenders = {
    name: (title, functools.partial(contender, title)) for name, title in TITLES.items()
}


def table(result: Facts) -> str:
    """Returns the result as a Markdown table."""
    positions = result["sizes"]["positions"]
    columns: report.Columns = {
        "": report.title,
        "ms": report.milliseconds,
        **report.times_to("the full softmax's"),
        "positions/s": lambda row: report.number(positions / row["median"]),
        "peak MiB": report.peak_mebibytes,
        "parameters": report.parameters,
    }
    return report.table(result["rows"], columns)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("positions", 832, "B T, the scored positions.", lower_bound=1)
    flags.DEFINE_integer(
        "units", 400, "Size of features and word vectors.", lower_bound=1
    )
    flags.DEFINE_integer("vocabulary_size", 10_000, "Words.", lower_bound=2)
    flags.DEFINE_integer("experts", 15, "Softmaxes of the mixture.", lower_bound=1)
    flags.DEFINE_list("cutoffs", ["2000", "5000"], "Clusters of the adaptive softmax.")
    report.define_only(HEADS, FULL)
    report.define_flags(rounds=5, warmup=1)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    names = ("positions", "units", "vocabulary_size", "experts")
    sizes = HeadSizes(**report.values(names), cutoffs=report.integers("cutoffs"))
    results, left_out = report.compare(HEADS, FULL, sizes, here)
    result = {"sizes": dataclasses.asdict(sizes), **here, "left_out": left_out}
    result["rows"] = report.rows(HEADS, FULL, results)
    report.end(result, table(result))
    return int(bool(left_out))


if __name__ == "__main__":
    define_flags()
    app.run(main)
