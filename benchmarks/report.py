"""What the commands share: flags, the machine, tables, and the result as JSON."""

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import workers
from benchmarks.workers import Reading

FLAGS = flags.FLAGS
# What stands in documents for folders that are anywhere on a reader's disk.
PLACES = {
    "reference_dir": "/tmp/trellisnet",
    "data_dir": "/tmp/ptb",
    "run": "/tmp/step",
    "csv": "/tmp/long_memory.csv",
}


def define_flags(*, rounds: int | None, warmup: int | None = None) -> None:
    """Defines the flags of all commands; not on import, so that a test may import a command."""
    flags.DEFINE_integer("threads", None, "For each contender; all cores by default.")
    if rounds is not None:
        flags.DEFINE_integer("rounds", rounds, "Rounds that count.", lower_bound=1)
    if warmup is not None:
        flags.DEFINE_integer("warmup", warmup, "Rounds that do not count.", lower_bound=0)
    flags.DEFINE_string("reference_dir", None, "A clone of github.com/locuslab/trellisnet.")
    flags.DEFINE_string("json", None, "A file for the result, each reading included.")


def define_only(names: Sequence[str], always: str) -> None:
    """Defines the flag that leaves out contenders."""
    flags.DEFINE_multi_enum("only", None, list(names), f"Beside {always}; all by default.")


def chosen(names: Sequence[str], always: str) -> list[str]:
    """Returns the names that are not left out."""
    return [name for name in names if name == always or name in (FLAGS.only or names)]


def threads() -> int:
    """Returns the flag's value, all cores by default."""
    cores = workers.available_cores()
    found = cores if FLAGS.threads is None else FLAGS.threads
    if not 1 <= found <= cores:
        raise app.UsageError(
            f"`threads` must be from 1 to {cores}, the cores here. Received: --threads={found}"
        )
    return found


def integers(name: str) -> tuple[int, ...]:
    """Returns a list flag's value as numbers above zero."""
    values = FLAGS[name].value
    digits = all(each.isascii() and each.isdecimal() for each in values)
    if not values or not digits or 0 in map(int, values):
        raise app.UsageError(
            f"`{name}` must be numbers like 1,2,4. Received: --{name}={','.join(values)}"
        )
    return tuple(map(int, values))


def begin(argv: Sequence[str]) -> dict[str, Any]:
    """Refuses stray arguments; returns what the figures depend on, and prints a line of it."""
    if len(argv) > 1:
        raise app.UsageError(
            f"arguments must be flags, --FLAG=VALUE. Received: {' '.join(argv[1:])}"
        )
    here = {"command": command(), **machine(), "threads": threads()}
    print(described(here), flush=True)
    return here


def command() -> list[str]:
    """Returns the command as it was given."""
    specification = getattr(sys.modules["__main__"], "__spec__", None)
    module = specification.name if specification else Path(sys.argv[0]).stem
    module = module.removesuffix(".__main__")
    return ["python", "-m", module, *sys.argv[1:]]


def end(found: dict[str, Any], table: Callable[[dict[str, Any]], str]) -> None:
    """Prints the result and who was left out, and writes it where --json says."""
    for title, reason in found["left_out"].items():
        print(f"Left out: {title}: {reason}")
    print(table(found))
    if FLAGS.json:
        Path(FLAGS.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Returns the machine and its software."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {}
    for name in ("tensorflow", "keras", "keras-tcn", "torch", "jax"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": workers.available_cores(),
        "load_average": round(os.getloadavg()[0], 2),  # before: what others do
        "python": platform.python_version(),
        "versions": versions,
    }


def described(here: Mapping[str, Any]) -> str:
    """Returns a line on the machine of a result."""
    versions = ", ".join(f"{name} {version}" for name, version in here["versions"].items())
    return (
        f"{here['processor']}, {here.get('threads', here['cores'])} threads, load average "
        f"{here['load_average']} before; {versions}."
    )


def shown(words: Sequence[str]) -> str:
    """Returns a recorded command as a document shows it: in lines, with nobody's folders."""
    kept = []
    for word in words:
        name, equals, _ = word.removeprefix("--").partition("=")
        if name != "json":
            kept.append(f"--{name}={PLACES[name]}" if equals and name in PLACES else word)
    lines = [f".venv/bin/{kept[0]}"]
    for word in kept[1:]:
        if len(lines[-1]) + len(word) > 92:
            lines[-1] += " \\"
            lines.append(" ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table, the first column to the left, columns without any entry left out."""
    filled = [index for index in range(len(titles)) if any(row[index] for row in rows)]
    lines = [[titles[index] for index in filled], ["---", *["---:"] * (len(filled) - 1)]]
    lines += [[row[index] for index in filled] for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the least, the median and the greatest."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def spread_cell(found: Mapping[str, float] | None) -> str:
    """Returns a spread as a table's cell."""
    return "{min:.2f}, **{median:.2f}**, {max:.2f}".format(**found) if found else ""


def ratios(readings: Sequence[Reading], others: Sequence[Reading]) -> dict[str, float]:
    """Returns the spread of times over another contender's, round by round."""
    pairs = zip(readings, others, strict=True)
    return spread([one.seconds / other.seconds for one, other in pairs])


def seconds(readings: Sequence[Reading]) -> list[float]:
    """Returns the times."""
    return [reading.seconds for reading in readings]


def peak(readings: Sequence[Reading]) -> int | None:
    """Returns the most memory of any step, if it could be read."""
    peaks = [reading.bytes for reading in readings if reading.bytes is not None]
    return max(peaks) if peaks else None


def mebibytes(size: int | None) -> str:
    """Returns a size as a table's cell."""
    return "" if size is None else f"{size / 2**20:,.0f}"
