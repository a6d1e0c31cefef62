"""One training step of `TrellisLayer`, or its forward half, beside its peers on the CPU.

    python -m benchmarks.train_step --reference_dir=TRELLISNET --json=train_step.json

`--mode=first --mode=another_length --mode=unknown_length` measures what `fit` meets besides: the
first step, which traces and compiles, and a graph that does not know the number of time steps.

`--backend=jax --backend=torch` measures the layer on these backends of Keras besides.

A contender that cannot run here is left out; a line says why.
`docs/notes/benchmarks.md` explains the columns.
"""

import dataclasses
from collections.abc import Sequence

from absl import app, flags

from benchmarks import report
from benchmarks.contenders import BACKENDS, CONTENDERS, OURS
from benchmarks.sizes import DTYPES, MODES, Sizes
from benchmarks.workers import Facts

FLAGS = flags.FLAGS


def table(result: Facts) -> str:
    """Returns the result as a Markdown table."""
    sizes = result["sizes"]
    tokens = sizes["batch_size"] * (sizes["time_steps"] - sizes["discard"])

    def rate(row):
        is_first = row["mode"] in ("first", "another_length")
        return "" if is_first else report.number(tokens / row["median"])

    columns: report.Columns = {
        "": report.title,
        "mode": lambda row: row["mode"],
        "ms": report.milliseconds,
        **report.times_to("ours"),
        "tokens/s": rate,
        "peak MiB": report.peak_mebibytes,
        "receptive field": lambda row: (
            report.number(row["receptive_field"]) or "no end"
        ),
        "parameters": report.parameters,
    }
    return report.table(result["rows"], columns)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("batch_size", 16, "B.", lower_bound=1)
    flags.DEFINE_integer("time_steps", 110, "T.", lower_bound=1)
    flags.DEFINE_integer(
        "input_units", None, "p; as `units` by default.", lower_bound=1
    )
    flags.DEFINE_integer("units", 512, "Hidden channels, q.", lower_bound=1)
    flags.DEFINE_integer("depth", 20, "Levels, L.", lower_bound=1)
    flags.DEFINE_integer("kernel_size", 2, "Taps, k.", lower_bound=2)
    flags.DEFINE_list("dilation_rate", ["1"], "The cycle of dilations: 1,2,4,8.")
    flags.DEFINE_integer("discard", 0, "Outputs at the start that the loss leaves out.")
    flags.DEFINE_bool("masked", False, "Rows of T/2 to T steps, padded on the right.")
    flags.DEFINE_multi_enum(
        "mode",
        ["train"],
        MODES,
        "A training step, or forward alone; a training step that XLA compiles; the first training "
        "step; the first at 3 T / 2 after one at T; a step of a graph that does not know T. Give "
        "it again for several.",
    )
    flags.DEFINE_enum("dtype", "float32", DTYPES, "What is computed in.")
    flags.DEFINE_multi_enum(
        "backend",
        ["tensorflow"],
        ["tensorflow", *BACKENDS],
        "Keras's backend under our layer; that on TensorFlow is always measured. Give it again for "
        "several.",
    )
    report.define_only(CONTENDERS, OURS)
    report.define_reference()
    report.define_flags(rounds=10, warmup=2)


def _sizes(mode, threads):
    if not 0 <= FLAGS.discard < FLAGS.time_steps:
        raise app.UsageError(
            f"`discard` must be from 0 to {FLAGS.time_steps - 1}, time_steps - 1. "
            f"Received: --discard={FLAGS.discard}"
        )
    fields = {field.name for field in dataclasses.fields(Sizes)}
    given = report.values(fields - {"mode", "threads"})
    given["input_units"] = FLAGS.input_units or FLAGS.units
    given["dilation_rate"] = report.integers("dilation_rate")
    return Sizes(**given, mode=mode, threads=threads)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    settings = [_sizes(mode, here["threads"]) for mode in FLAGS.mode]
    result = {"sizes": dataclasses.asdict(settings[0]), **here}
    result |= {"left_out": {}, "rows": []}
    backends = {name: BACKENDS[name] for name in FLAGS.backend if name in BACKENDS}
    contenders = CONTENDERS | backends
    for sizes in settings:
        results, left_out = report.compare(
            contenders, OURS, sizes, here, always=backends
        )
        result["left_out"] |= left_out
        rows = report.rows(contenders, OURS, results)
        result["rows"] += [{**row, "mode": sizes.mode} for row in rows]
    del result["sizes"]["mode"]
    report.end(result, table(result))
    return int(CONTENDERS[OURS][0] in result["left_out"])


if __name__ == "__main__":
    define_flags()
    app.run(main)
