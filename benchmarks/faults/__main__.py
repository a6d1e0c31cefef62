"""Disturbs runs: kills the process, fills the disk, damages files.

    python -m benchmarks.faults --seconds=600 --seed=0
    python -m benchmarks.faults --only=kills --only=stops
    python -m benchmarks.faults --only=workers --most=20
    python -m benchmarks.faults --only=stores --most=20
    python -m benchmarks.faults --case=errors:train:EIO-once:write:run/metrics.csv:2

Each case disturbs one command of the trainers, and gives it again until it has finished. Then
everything must be as if nothing had happened. If a case goes wrong, the line that repeats it is
printed, and the exit status is 1.
"""

import collections
import dataclasses
import operator
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import report
from benchmarks.faults import shim

FLAGS = flags.FLAGS
KINDS = {
    "kills": "killed at a random moment",
    "stops": "killed before or after a file operation",
    "errors": "a file operation fails",
    "damage": "a file cut short, gone, or a bit of it flipped",
    "denied": "a file or a folder of another owner",
    "memory": "memory runs out",
    "drawn": "an input drawn at random",
    "pairs": "two processes at once",
    "workers": "one of two workers killed, stopped, paused or cut off",
    "stores": "a request to an object store goes wrong, or the process is killed",
}
# A case of these takes ten times as long as one of the others.
_LONG = ("workers", "stores")
USUAL = [kind for kind in KINDS if kind not in _LONG]
MEMORY = Path("/dev/shm")  # files here cost no disk
# In a forked process TensorFlow has only the calling thread.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # gcsfs reads it when it is imported.
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
}


def main(argv: Sequence[str]) -> int:
    """Tries cases, and prints the table; returns the exit status."""
    if not shim.present():
        return _begin_again()
    library = shim.library()
    here = report.begin(argv)
    began = time.monotonic()
    memory = MEMORY if MEMORY.is_dir() else None
    try:
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            findings = _findings(Path(folder), here["threads"], began + FLAGS.seconds)
    finally:
        shutil.rmtree(library.parent)
    for finding in findings:
        if FLAGS.case or not finding["good"]:
            print(format_finding(finding))
    seconds = time.monotonic() - began
    result = {
        **here,
        "seed": FLAGS.seed,
        "seconds": seconds,
        "cases": findings,
        "left_out": {},
    }
    report.end(result, table(result))
    return int(not all(finding["good"] for finding in findings))


def _begin_again():
    """Runs this command with the library preloaded; returns only if the library cannot be built."""
    folder = Path(tempfile.mkdtemp())
    library = shim.build(folder)
    if library is None:
        folder.rmdir()
        print(
            "file operations are let fail on Linux with a C compiler, cc",
            file=sys.stderr,
        )
        return 2
    environment = {**os.environ, **ENVIRONMENT, shim.VARIABLE: str(library)}
    command = [sys.executable, "-m", "benchmarks.faults", *sys.argv[1:]]
    os.execve(sys.executable, command, environment)


def _findings(folder, lanes, deadline):
    # It imports TensorFlow, which the first process does not need.
    from benchmarks.faults import server

    findings = []
    for finding in server.findings(
        FLAGS.case or (),
        kinds=FLAGS.only or USUAL,
        only=FLAGS.program or (),
        seed=FLAGS.seed,
        deadline=deadline,
        most=FLAGS.most,
        lanes=lanes,
        folder=folder,
    ):
        findings.append({**dataclasses.asdict(finding), "good": finding.good})
        wrong = sum(not one["good"] for one in findings)
        print(
            f"\r{len(findings)} cases, {wrong} wrong",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    return sorted(findings, key=lambda finding: finding["case"])


def format_finding(finding: dict[str, Any]) -> str:
    """Returns what went wrong in a case, and the command that repeats it."""
    lines = [
        shlex.join(["python", "-m", "benchmarks.faults", f"--case={finding['case']}"])
    ]
    for name in ("wrong", "lost", "different"):
        lines += [f"  {name}: {line}" for line in finding[name]]
    for status, message in zip(finding["statuses"], finding["messages"], strict=True):
        lines.append(f"  exit status {status}: {message}")
    return "\n".join(lines)


def table(result: dict[str, Any]) -> str:
    """Returns the result as two Markdown tables, a row for each kind and for each program."""
    kinds, programs = collections.defaultdict(list), collections.defaultdict(list)
    for finding in result["cases"]:
        kind, program, *_ = finding["case"].split(":")
        kinds[KINDS[kind]].append(finding)
        programs[program].append(finding)
    kind_rows = {title: kinds[title] for title in KINDS.values() if title in kinds}
    program_rows = dict(sorted(programs.items()))
    return "\n\n".join(
        _table(parts, result["cases"]) for parts in (kind_rows, program_rows)
    )


def _table(parts, findings):
    rows = [_row(title, part) for title, part in {**parts, "all": findings}.items()]
    return report.table(rows, {name: operator.itemgetter(name) for name in rows[0]})


def _row(title, findings):
    refused = sum(finding["refused"] for finding in findings)
    counts = {
        "cases": len(findings),
        "refused with a line": refused,
        "went on": len(findings) - refused,
    }
    for name in ("different", "lost", "wrong"):
        counts[name] = sum(bool(finding[name]) for finding in findings)
    return {"": title} | {name: report.number(count) for name, count in counts.items()}


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_float(
        "seconds", 600.0, "No case begins later than this.", lower_bound=0
    )
    flags.DEFINE_integer("seed", 0, "Seed of the draw of cases.")
    flags.DEFINE_multi_enum(
        "only",
        None,
        list(KINDS),
        "Kinds of cases; all but workers and stores by default.",
    )
    flags.DEFINE_multi_string(
        "program", None, "Programs whose cases are drawn; all by default."
    )
    flags.DEFINE_multi_string("case", None, "A case to repeat, instead of drawn ones.")
    flags.DEFINE_integer(
        "most", None, "Most cases; by default as many as there is time for.", 1
    )
    report.define_flags(rounds=None)


if __name__ == "__main__":
    define_flags()
    app.run(main)
