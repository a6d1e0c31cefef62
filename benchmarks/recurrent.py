"""One training step of the gated recurrent layers beside Keras's LSTM and GRU on the CPU.

    python -m benchmarks.recurrent --json=recurrent.json

It measures each number of time steps in turn, for the growth of time and memory.
`docs/notes/recurrent.md` has a table.
"""

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from benchmarks import contenders, report
from benchmarks.sizes import Sizes, define_step_flags
from benchmarks.workers import Facts, Results

FLAGS = flags.FLAGS
KERAS = ("LSTM", "GRU")
GATED = (
    "IRCGRU",
    "IRCLSTM",
    "IHCLSTM",
    "SRU",
    "IRCSRU",
    "TLSTM",
    "IRCTLSTM",
    "FastGRNN",
    "IRCFastGRNN",
    "WeightDropLSTM",
)
CONTENDERS: report.Contenders = {
    name: (
        f"keras.layers.{name}" if name in KERAS else name,
        functools.partial(contenders.recurrent, name),
    )
    for name in KERAS + GATED
}
OURS = "LSTM"  # what rates are compared with


def rate_columns(sizes: Mapping[str, Any]) -> report.Columns:
    """Returns the columns of the steps of one length."""
    tokens = sizes["batch_size"] * sizes["time_steps"]
    return {
        f"T {sizes['time_steps']}": report.title,
        f"ms ({sizes['mode']})": report.milliseconds,
        **rates_to("LSTM"),
        **rates_to("GRU"),
        "tokens/s": lambda row: report.number(tokens / row["median"]),
        "peak MiB": report.peak_mebibytes,
        "parameters": report.parameters,
    }


def rates_to(name: str) -> report.Columns:
    """Returns the columns of rates over those of a layer of Keras, by the clock and processor."""
    return {
        f"rate to the {name}: min, median, max": functools.partial(
            report.spread_cell, f"rate_to_{name.lower()}"
        ),
        f"to the {name}, of the processor": functools.partial(
            report.spread_cell, f"processor_rate_to_{name.lower()}"
        ),
    }


def growth_columns(lengths: Sequence[int]) -> report.Columns:
    """Returns the columns of the growth from the shortest to the longest sequences."""
    times = f"T {lengths[-1]} to T {lengths[0]}"
    return {
        times: report.title,
        "time": lambda row: report.number(row["time_growth"], 2),
        "processor time": lambda row: report.number(row["processor_growth"], 2),
        "peak memory": lambda row: report.number(row["memory_growth"], 2),
    }


def length_rows(results: Results) -> list[Facts]:
    """Returns the rows of one length, with the rates to Keras's layers."""
    rows = report.rows(CONTENDERS, OURS, results)
    for row in rows:
        readings = results[row["name"]].readings
        for name in KERAS:
            if name in results:
                rates = report.ratios(results[name].readings, readings)
                row[f"rate_to_{name.lower()}"] = rates
                rates = report.processor_ratios(results[name].readings, readings)
                row[f"processor_rate_to_{name.lower()}"] = rates
    return rows


def growth(shortest: Sequence[Facts], longest: Sequence[Facts]) -> list[Facts]:
    """Returns the growth of each contender that has both rows."""
    before = {row["name"]: row for row in shortest}
    rows = []
    for row in longest:
        first = before.get(row["name"])
        if first is None:
            continue
        grown = {"title": row["title"], "time_growth": row["median"] / first["median"]}
        medians = [
            statistics.median(facts["processor_seconds"]) for facts in (row, first)
        ]
        grown["processor_growth"] = medians[0] / medians[1]
        grown["memory_growth"] = None
        if row["peak_bytes"] and first["peak_bytes"]:
            grown["memory_growth"] = row["peak_bytes"] / first["peak_bytes"]
        rows.append(grown)
    return rows


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("batch_size", 20, "B.", lower_bound=1)
    flags.DEFINE_list("time_steps", ["70"], "T, or several: 35,70,140.")
    flags.DEFINE_integer("units", 650, "Channels of inputs and outputs.", lower_bound=1)
    define_step_flags()
    report.define_only(CONTENDERS, OURS)
    report.define_flags(rounds=10, warmup=2)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the tables; returns the exit status."""
    here = report.begin(argv)
    lengths = report.integers("time_steps")
    given = report.values(["batch_size", "units", "mode", "dtype"])
    result: Facts = {**here, "left_out": {}, "lengths": []}
    tables = []
    for steps in lengths:
        sizes = Sizes(
            **given,
            time_steps=steps,
            input_units=FLAGS.units,
            depth=1,
            threads=here["threads"],
        )
        results, left_out = report.compare(CONTENDERS, OURS, sizes, here)
        result["left_out"] |= left_out
        rows = length_rows(results)
        result["lengths"].append({"time_steps": steps, "rows": rows})
        tables.append(report.table(rows, rate_columns(vars(sizes))))
    if len(lengths) > 1:
        by_length = [entry["rows"] for entry in result["lengths"]]
        result["growth"] = growth(by_length[0], by_length[-1])
        tables.append(report.table(result["growth"], growth_columns(lengths)))
    report.end(result, "\n\n".join(tables))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
