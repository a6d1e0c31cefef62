"""A training step of `TrellisLayer` on each backend, beside the same layer of another commit.

    git worktree add ../before COMMIT
    python -m benchmarks.one_answer --before=../before --threads=1

One answer to a series, with a mask and without one, and all answers. In each case the layer of this
checkout, that of the other one and a rival take turns. What is not installed is left out; a line
says so. `docs/notes/benchmarks.md` has the table.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from absl import app, flags

from benchmarks import contenders, report, workers
from benchmarks.report import Contenders
from benchmarks.sizes import Sizes

FLAGS = flags.FLAGS
NOW, BEFORE, RIVAL = "now", "before", "rival"
RIVALS: Contenders = {
    "lstm": ("an LSTM of as many parameters", contenders.equal_lstm),
    "unmasked": ("without a mask", contenders.unmasked),
    "tensorflow": ("on TensorFlow", contenders.trellis),
}


class Case(NamedTuple):
    """What is measured.

    Attributes:
        network: what there is of it beside its sizes.
        sizes: of the step.
        backend: Keras's.
        rival: a name in `RIVALS`.
    """

    network: str
    sizes: Sizes
    backend: str
    rival: str

    @property
    def title(self) -> str:
        """What the table calls it."""
        mask = ", a mask" if self.sizes.masked else ""
        steps = f"B {self.sizes.batch_size}, T {self.sizes.time_steps:,}"
        return f"{self.network}, {steps}{mask}; {self.backend}"


def _levels(rows: int, steps: int, masked: bool = False) -> Sizes:
    """Returns one answer by 96 channels, five levels of four taps."""
    return Sizes(
        *(rows, steps, 1, 96, 5, (1, 4, 16, 64, 256)),
        discard=steps - 1,
        kernel_size=4,
        masked=masked,
    )


def _readme(steps: int, taps: int) -> Sizes:
    """Returns one answer by the README's layer, with the taps by which it sees so many steps."""
    cycle = (1, taps, taps**2)
    return Sizes(32, steps, 1, 8, 3, cycle, discard=steps - 1, kernel_size=taps)


def _all_answers(channels: int) -> Sizes:
    return Sizes(2, 1024, channels, channels, 5, (1, 4, 16, 64, 256), kernel_size=4)


CASES: Sequence[Case] = [
    Case("96 channels", _levels(16, 784), "tensorflow", "lstm"),
    Case("96 channels", _levels(16, 784, masked=True), "tensorflow", "unmasked"),
    Case("96 channels", _levels(16, 784, masked=True), "tensorflow", "lstm"),
    Case("96 channels", _levels(16, 256, masked=True), "tensorflow", "lstm"),
    Case("96 channels", _levels(64, 784), "jax", "tensorflow"),
    *(
        Case("README's layer", _readme(steps, taps), backend, "tensorflow")
        for steps, taps in ((256, 7), (1000, 10), (4096, 16))
        for backend in ("jax", "torch")
    ),
    Case("64 channels, all answers", _all_answers(64), "tensorflow", "lstm"),
    Case("256 channels, all answers", _all_answers(256), "tensorflow", "lstm"),
]


def measure(case: Case, threads: int) -> tuple[report.Facts, dict[str, str]]:
    """Returns the row of a case, and the reasons for what was left out.

    Args:
        case: the case.
        threads: of each contender.
    """
    ours = functools.partial(contenders.trellis, backend=case.backend)
    builds = {NOW: ours}
    if FLAGS.before:
        builds[BEFORE] = functools.partial(contenders.of_checkout, FLAGS.before, ours)
    builds[RIVAL] = RIVALS[case.rival][1]
    results, left_out = workers.measure(
        builds,
        case.sizes,
        threads=threads,
        warmup=FLAGS.warmup,
        rounds=FLAGS.rounds,
    )
    row = {"title": case.title, "beside": RIVALS[case.rival][0]}
    if NOW in results:
        for name, (_, readings) in results.items():
            seconds = [reading.processor_seconds for reading in readings]
            row[name] = report.spread(seconds) | {"peak": report.peak(readings)}
            others = results[NOW].readings
            row[f"{name}_to_ours"] = report.processor_ratios(readings, others)
    return row, {f"{case.title}: {name}": why for name, why in left_out.items()}


def _milliseconds(name: str, row: report.Row) -> str:
    return report.number(1e3 * row[name]["median"], 1) if name in row else ""


COLUMNS: report.Columns = {
    "one training step": report.title,
    "CPU ms": functools.partial(_milliseconds, NOW),
    "before": functools.partial(_milliseconds, BEFORE),
    "before / now: min, median, max": functools.partial(
        report.spread_cell, f"{BEFORE}_to_ours"
    ),
    "beside": lambda row: row["beside"],
    "ms": functools.partial(_milliseconds, RIVAL),
    "that / now": functools.partial(report.spread_cell, f"{RIVAL}_to_ours"),
}


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("before", None, "A checkout whose layer is measured besides.")
    report.define_case()
    report.define_flags(rounds=7, warmup=2)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    if FLAGS.before and not (Path(FLAGS.before) / "keras_trellis").is_dir():
        raise app.UsageError(
            "`before` must be a checkout of this repository. "
            f"Received: --before={FLAGS.before}"
        )
    cases = report.selected(CASES)
    rows, all_left_out = [], {}
    for case in cases:
        print(case.title, flush=True)
        row, left_out = measure(case, here["threads"])
        rows.append(row)
        all_left_out |= left_out
    result = {**here, "left_out": all_left_out, "rows": rows}
    report.end(result, report.table(rows, COLUMNS))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
