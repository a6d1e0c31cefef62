"""One training step of `TrellisLayer`, or its forward half, beside its peers on the CPU.

    python -m benchmarks.train_step --reference_dir=TRELLISNET --json=train_step.json

A contender that cannot run here is left out; a line says why.
`docs/benchmarks.md` explains the columns.
"""

import dataclasses
import functools
import statistics
from collections.abc import Sequence

from absl import app, flags

from benchmarks import report
from benchmarks.contenders import CEILINGS, CONTENDERS, OURS
from benchmarks.sizes import DTYPES, MODES, Sizes
from benchmarks.workers import Build, Contender, Facts, Results

FLAGS = flags.FLAGS


def row(name: str, results: Results, dtype: str = "float32") -> Facts:
    """Returns a contender's row; the results are those of its dtype."""
    facts, readings = results[name]
    times = report.seconds(readings)
    title = _title(CONTENDERS[name][0], dtype)
    found = {
        "name": name,
        "title": title,
        "dtype": dtype,
        **facts,
        "seconds": times,
    }
    found["gflops_per_second"] = facts["flops"] / statistics.median(times) / 1e9
    fastest = _fastest_products(results)
    if fastest:
        pairs = zip(times, fastest, strict=True)
        shares = [facts["flops"] / seconds / rate for seconds, rate in pairs]
        found["share_of_products"] = statistics.median(shares)
    if name not in CEILINGS:
        if OURS in results:
            found["time_to_ours"] = report.ratios(readings, results[OURS].readings)
        found["peak_bytes"] = report.peak(readings)
    return found


def _fastest_products(results):
    """Returns each round's rate of the faster of the libraries of products, in flop/s."""
    rates = []
    for name in CEILINGS:
        if name in results:
            flops = results[name].facts["flops"]
            rates.append([flops / each.seconds for each in results[name].readings])
    return [max(each) for each in zip(*rates, strict=True)]


def table(found: Facts) -> str:
    """Returns the result as a Markdown table."""
    sizes = found["sizes"]
    tokens = sizes["batch_size"] * (sizes["time_steps"] - sizes["discard"])
    columns: report.Columns = {
        "": lambda row: row["title"],
        f"ms ({sizes['mode']})": lambda row: report.milliseconds(row["seconds"]),
        "time to ours: min, median, max": lambda row: report.spread_cell(row.get("time_to_ours")),
        "tokens/s": lambda row: _of_layer(row, tokens / statistics.median(row["seconds"])),
        "GFLOP/s": lambda row: report.number(row["gflops_per_second"]),
        "of the products'": lambda row: report.share(row.get("share_of_products")),
        "peak MiB": lambda row: report.mebibytes(row.get("peak_bytes")),
        "receptive field": lambda row: _of_layer(row, row.get("receptive_field")) or _no_end(row),
        "parameters": lambda row: _of_layer(row, row.get("parameters")),
    }
    return report.table(found["rows"], columns)


def _of_layer(row, value):
    return "" if row["name"] in CEILINGS else report.number(value)


def _no_end(row):
    return "" if row["name"] in CEILINGS else "no end"


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
    report.define_only(CONTENDERS, OURS)
    report.define_flags(rounds=10, warmup=2)


def _sizes(threads):
    if not 0 <= FLAGS.discard < FLAGS.time_steps:
        raise app.UsageError(
            f"`discard` must be from 0 to {FLAGS.time_steps - 1}, time_steps - 1. "
            f"Received: --discard={FLAGS.discard}"
        )
    names = ("batch_size", "time_steps", "units", "depth", "kernel_size", "discard", "mode")
    return Sizes(
        **report.values(names),
        input_units=FLAGS.input_units or FLAGS.units,
        dilation_rate=report.integers("dilation_rate"),
        threads=threads,
        reference_dir=FLAGS.reference_dir,
    )


def in_dtype(build: Build, dtype: str, sizes: Sizes) -> Contender:
    """Builds a contender that computes in a dtype."""
    return build(dataclasses.replace(sizes, dtype=dtype))


def in_dtypes(dtypes: Sequence[str]) -> report.Contenders:
    """Returns every contender in each dtype, under the name and the dtype."""
    found = {}
    for dtype in dtypes:
        for name, (title, build) in CONTENDERS.items():
            built = functools.partial(in_dtype, build, dtype)
            found[f"{name} {dtype}"] = (_title(title, dtype), built)
    return found


def _title(title, dtype):
    return title if dtype == "float32" else f"{title}, {dtype}"


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    sizes = _sizes(here["threads"])
    dtypes = list(dict.fromkeys(FLAGS.dtype))
    if FLAGS.only:
        FLAGS.only = [f"{name} {dtype}" for dtype in dtypes for name in (OURS, *FLAGS.only)]
    results, left_out = report.compare(in_dtypes(dtypes), f"{OURS} {dtypes[0]}", sizes, here)
    found = {"sizes": dataclasses.asdict(sizes), **here, "left_out": left_out, "rows": []}
    for dtype in dtypes:
        # A row is set beside ours and the products of its own dtype.
        of = {}
        for name in CONTENDERS:
            if f"{name} {dtype}" in results:
                of[name] = results[f"{name} {dtype}"]
        found["rows"] += [row(name, of, dtype) for name in of]
    report.end(found, table(found))
    return int(f"{OURS} {dtypes[0]}" not in results)


if __name__ == "__main__":
    define_flags()
    app.run(main)
