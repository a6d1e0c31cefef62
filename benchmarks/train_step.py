"""One training step of `TrellisLayer`, or its forward half, beside its peers on the CPU.

    python -m benchmarks.train_step --reference_dir=TRELLISNET --json=train_step.json

A contender that cannot run here is left out; a line says why.
`docs/benchmarks.md` explains the columns.
"""

import dataclasses
import functools
import statistics
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import report, workers
from benchmarks.contenders import CEILINGS, CONTENDERS, OURS
from benchmarks.sizes import DTYPES, MODES, Sizes
from benchmarks.workers import Build, Contender, Result

FLAGS = flags.FLAGS


def row(name: str, results: dict[str, Result], dtype: str = "float32") -> dict[str, Any]:
    """Returns a contender's row; the results are those of its dtype."""
    facts, readings = results[name]
    times = report.seconds(readings)
    title = CONTENDERS[name][0] + (f", {dtype}" if dtype != "float32" else "")
    found = {"name": name, "title": title, "dtype": dtype, **facts, "seconds": times}
    found["gflops_per_second"] = facts["flops"] / statistics.median(times) / 1e9
    fastest = _fastest_products(results)
    if fastest:
        share = [facts["flops"] / s / rate for s, rate in zip(times, fastest, strict=True)]
        found["share_of_products"] = report.spread(share)
    if name not in CEILINGS:
        if OURS in results:
            found["time_to_ours"] = report.ratios(readings, results[OURS].readings)
        found["peak_bytes"] = report.peak(readings)
    return found


def _fastest_products(results: dict[str, Result]) -> list[float]:
    """Returns each round's rate of the faster of the libraries of products, in flop/s."""
    rates = [
        [results[name].facts["flops"] / each for each in report.seconds(results[name].readings)]
        for name in CEILINGS
        if name in results
    ]
    return [max(each) for each in zip(*rates, strict=True)]


def table(found: dict[str, Any]) -> str:
    """Returns the result as a Markdown table."""
    titles = [
        *("", f"ms ({found['sizes']['mode']})", "time to ours: min, median, max", "tokens/s"),
        *("GFLOP/s", "of the products'", "peak MiB", "receptive field", "parameters"),
    ]
    return report.markdown(titles, [_cells(each, found["sizes"]) for each in found["rows"]])


def _cells(found: dict[str, Any], sizes: dict[str, Any]) -> list[str]:
    median = statistics.median(found["seconds"])
    share = found.get("share_of_products")
    cells = [
        found["title"],
        f"{1e3 * median:,.1f}",
        report.spread_cell(found.get("time_to_ours")),
        f"{sizes['batch_size'] * (sizes['time_steps'] - sizes['discard']) / median:,.0f}",
        f"{found['gflops_per_second']:,.0f}",
        f"{share['median']:.0%}" if share else "",
        report.mebibytes(found.get("peak_bytes")),
    ]
    if found["name"] in CEILINGS:
        return [*cells[:3], "", *cells[4:], "", ""]
    return [*cells, str(found["receptive_field"] or "no end"), f"{found['parameters']:,}"]


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("batch_size", 16, "B.", lower_bound=1)
    flags.DEFINE_integer("time_steps", 110, "T.", lower_bound=1)
    flags.DEFINE_integer("input_units", None, "p; as `units` by default.", lower_bound=1)
    flags.DEFINE_integer("units", 512, "Hidden channels, q.", lower_bound=1)
    flags.DEFINE_integer("depth", 20, "Levels, L.", lower_bound=1)
    flags.DEFINE_integer("kernel_size", 2, "Taps, k.", lower_bound=1)
    flags.DEFINE_list("dilation_rate", ["1"], "The cycle of dilations: 1,2,4,8.")
    flags.DEFINE_integer("discard", 0, "Outputs at the start that the loss leaves out.")
    flags.DEFINE_enum("mode", "train", list(MODES), "A training step, or forward alone.")
    flags.DEFINE_multi_enum("dtype", ["float32"], DTYPES, "One or both, in the same run.")
    report.define_only(list(CONTENDERS), OURS)
    report.define_flags(rounds=10, warmup=2)


def _sizes() -> Sizes:
    if not 0 <= FLAGS.discard < FLAGS.time_steps:
        raise app.UsageError(
            f"`discard` must be from 0 to {FLAGS.time_steps - 1}, time_steps - 1. "
            f"Received: --discard={FLAGS.discard}"
        )
    return Sizes(
        batch_size=FLAGS.batch_size,
        time_steps=FLAGS.time_steps,
        input_units=FLAGS.input_units or FLAGS.units,
        units=FLAGS.units,
        depth=FLAGS.depth,
        kernel_size=FLAGS.kernel_size,
        dilation_rate=report.integers("dilation_rate"),
        threads=report.threads(),
        reference_dir=FLAGS.reference_dir,
        discard=FLAGS.discard,
        mode=FLAGS.mode,
    )


def in_dtype(build: Build, dtype: str, sizes: Sizes) -> Contender:
    """Builds a contender that computes in a dtype."""
    return build(dataclasses.replace(sizes, dtype=dtype))


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    sizes, here = _sizes(), report.begin(argv)
    names = report.chosen(list(CONTENDERS), OURS)
    dtypes = list(dict.fromkeys(FLAGS.dtype))
    builds = {
        f"{name} {dtype}": functools.partial(in_dtype, CONTENDERS[name][1], dtype)
        for dtype in dtypes
        for name in names
    }
    results, left_out = workers.measure(
        builds, sizes, threads=sizes.threads, warmup=FLAGS.warmup, rounds=FLAGS.rounds
    )
    rows = []
    for dtype in dtypes:
        # Ours and the ceilings are those of the same dtype.
        of = {n: results[f"{n} {dtype}"] for n in names if f"{n} {dtype}" in results}
        rows += [row(name, of, dtype) for name in of]
    found = {"sizes": dataclasses.asdict(sizes), **here, "rows": rows}
    found["left_out"] = {
        f"{CONTENDERS[name.split()[0]][0]}, {name.split()[1]}": reason
        for name, reason in left_out.items()
    }
    report.end(found, table)
    return int(f"{OURS} {dtypes[0]}" in left_out)


if __name__ == "__main__":
    define_flags()
    app.run(main)
