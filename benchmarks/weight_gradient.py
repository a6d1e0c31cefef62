"""The hidden kernel's gradient over some levels: summed level by level, or one product of a stack.

    python -m benchmarks.weight_gradient --dtype=float32 --dtype=bfloat16

Both take the levels' taps [B T, k q] and gradients of pre-activations [B T, 4 q] as the backward
loop has them, one tensor a level, and return the sum in float32. What is measured here decides how
`keras_trellis.engine.level` does it.
"""

import dataclasses
import functools
import statistics
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import report, workers
from benchmarks.contenders import factors
from benchmarks.sizes import DTYPES, Sizes
from benchmarks.train_step import in_dtype
from benchmarks.workers import Contender, Result

FLAGS = flags.FLAGS


def by_level(sizes: Sizes) -> Contender:
    """A product for each level, cast to float32 and added to the sum."""
    import tensorflow as tf

    def summed(taps: list[tf.Tensor], blocks: list[tf.Tensor]) -> tf.Tensor:
        total = None
        for one, other in zip(taps, blocks, strict=True):
            # One level after another, as in the backward loop.
            with tf.control_dependencies([] if total is None else [total]):
                product = tf.matmul(one, other, transpose_a=True)
            product = tf.cast(product, tf.float32)
            total = product if total is None else tf.add_n([total, product])
        return total

    return _contender(sizes, summed)


def stacked(sizes: Sizes) -> Contender:
    """One product of the levels' taps and blocks, put one below the other."""
    import tensorflow as tf

    def summed(taps: list[tf.Tensor], blocks: list[tf.Tensor]) -> tf.Tensor:
        product = tf.matmul(tf.concat(taps, 0), tf.concat(blocks, 0), transpose_a=True)
        return tf.cast(product, tf.float32)

    return _contender(sizes, summed)


def _contender(sizes: Sizes, summed: Any) -> Contender:
    import tensorflow as tf

    taps, _, blocks = (tf.cast(each, sizes.dtype) for each in factors(sizes))
    # Tensors of their own: one tensor many times would stay in the cache.
    levels = [[each * (level + 1) for level in range(sizes.depth)] for each in (taps, blocks)]
    step = tf.function(summed, autograph=False)
    return Contender(lambda: step(*levels).numpy(), {}, memory=False)


BY_LEVEL = "by_level"
CONTENDERS = {BY_LEVEL: ("level by level", by_level), "stacked": ("one product", stacked)}


def rows(results: dict[str, Result], dtype: str) -> list[dict[str, Any]]:
    """Returns the rows of the contenders of one dtype."""
    found = {name: results[f"{name} {dtype}"].readings for name in CONTENDERS}
    return [
        {
            "title": CONTENDERS[name][0],
            "dtype": dtype,
            "seconds": report.seconds(readings),
            "time_to_ours": report.ratios(readings, found[BY_LEVEL]),
        }
        for name, readings in found.items()
    ]


def table(found: dict[str, Any]) -> str:
    """Returns the result as Markdown."""
    cells = [
        [
            f"{row['title']}, {row['dtype']}",
            f"{1e3 * statistics.median(row['seconds']):,.1f}",
            report.spread_cell(row["time_to_ours"]),
        ]
        for row in found["rows"]
    ]
    return report.markdown(["", "ms", "time to level by level: min, median, max"], cells)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("rows", 1300, "B T: of the word-level window, on average.", lower_bound=1)
    flags.DEFINE_integer("units", 512, "Hidden channels, q.", lower_bound=1)
    flags.DEFINE_integer("depth", 8, "Levels.", lower_bound=1)
    flags.DEFINE_multi_enum("dtype", ["float32"], DTYPES, "One or both, in the same run.")
    report.define_flags(rounds=30, warmup=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    sizes = Sizes(1, FLAGS.rows, FLAGS.units, FLAGS.units, FLAGS.depth, threads=report.threads())
    dtypes = list(dict.fromkeys(FLAGS.dtype))
    builds = {
        f"{name} {dtype}": functools.partial(in_dtype, build, dtype)
        for dtype in dtypes
        for name, (_, build) in CONTENDERS.items()
    }
    results, left_out = workers.measure(
        builds, sizes, threads=sizes.threads, warmup=FLAGS.warmup, rounds=FLAGS.rounds
    )
    measured = [row for dtype in dtypes for row in rows(results, dtype)]
    found = {"sizes": dataclasses.asdict(sizes), **here, "rows": measured, "left_out": left_out}
    report.end(found, table)
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
