"""One training step of tensorized LSTMs of several sizes beside Keras's LSTM on the CPU.

    python -m benchmarks.tensorized --json=tensorized.json

The LSTMs have as many parameters, or are as deep. `docs/notes/tensorized.md` has a table.
"""

import functools
from collections.abc import Sequence

from absl import app, flags

from benchmarks import contenders, report
from benchmarks.sizes import Sizes, define_step_flags

FLAGS = flags.FLAGS
PLACES = (1, 2, 4, 8)
OURS = "places_1"  # what times are compared with
CONTENDERS: report.Contenders = {
    **{
        f"places_{size}": (
            f"TensorizedLSTM, P = {size}",
            functools.partial(contenders.tensorized, size),
        )
        for size in PLACES
    },
    "places_8_recompute": (
        "TensorizedLSTM, P = 8, recompute",
        functools.partial(contenders.tensorized, PLACES[-1], recompute=True),
    ),
    "square_3": (
        "TensorizedLSTM, 3 x 3",
        functools.partial(contenders.tensorized, 3, rank=3),
    ),
    "as_large": ("LSTM of as many parameters", contenders.as_large),
    "as_deep": (
        "8 LSTMs, as deep as P = 8",
        functools.partial(contenders.stacked, PLACES[-1]),
    ),
}
COLUMNS: report.Columns = {
    "layer": report.title,
    "ms": report.milliseconds,
    **report.times_to("P = 1"),
    "peak MiB": report.peak_mebibytes,
    "parameters": report.parameters,
}


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("batch_size", 50, "B.", lower_bound=1)
    flags.DEFINE_integer("time_steps", 50, "T.", lower_bound=1)
    flags.DEFINE_integer("units", 100, "M, and channels of inputs.", lower_bound=1)
    define_step_flags()
    report.define_only(CONTENDERS, OURS)
    report.define_flags(rounds=10, warmup=2)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    given = report.values(["batch_size", "time_steps", "units", "mode", "dtype"])
    sizes = Sizes(**given, input_units=FLAGS.units, depth=1, threads=here["threads"])
    report.show(CONTENDERS, OURS, sizes, here, COLUMNS)
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
