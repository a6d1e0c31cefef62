"""All benchmarks, one after another, and their tables and plots in docs/benchmarks.md.

    python -m benchmarks.suite --results=DIR --reference_dir=TRELLISNET --data_dir=PTB
    python -m benchmarks.suite --results=DIR --norun

The first line measures, sized for a bit more than an hour on two cores, and writes the document;
the second writes it anew from the results that DIR holds. A result DIR/NAME.json goes between the
markers `<!-- NAME -->` and `<!-- /NAME -->`; where there is none, the document stays as it is.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import (
    evaluate,
    first_steps,
    generate,
    growth,
    heads,
    load,
    long_memory,
    precisions,
    report,
    serving,
    soak,
    stablehlo,
    start,
    train_step,
    weight_gradient,
)

FLAGS = flags.FLAGS
ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "benchmarks" / "growth.png"
POINTS = PLOT.with_name("long_memory.csv")
MODULES = {
    module.__name__: module
    for module in (
        evaluate,
        first_steps,
        generate,
        growth,
        heads,
        load,
        long_memory,
        precisions,
        serving,
        soak,
        stablehlo,
        start,
        train_step,
        weight_gradient,
    )
}
BOTH = ("--dtype=float32", "--dtype=bfloat16")
# The word-level window of the paper; 512 channels instead of 1400, which would take eight times
# as long.
WINDOW = ("--depth=58", "--discard=58")
# What takes minutes to compile, or has nothing to do with a window, is measured once.
FEW = tuple(
    f"--only={name}"
    for name in ("trellis_recompute", "authors", "products_tensorflow", "products_torch")
)
SMALL = ("--units=256", "--depth=6", "--embedding_units=200", "--dilation_rate=1,3,9")
COMMANDS: dict[str, tuple[str, ...]] = {
    "train_step": ("train_step", *BOTH, "--rounds=5", "--warmup=1"),
    "train_step_window": ("train_step", *WINDOW, *FEW, *BOTH, "--rounds=3", "--warmup=1"),
    **{
        f"recompute_{depth}": (
            *("train_step", f"--depth={depth}", "--units=128", "--only=trellis_recompute"),
            "--rounds=5",
        )
        for depth in (16, 256)
    },
    "weight_gradient": ("weight_gradient", *BOTH),
    "forward": ("train_step", "--mode=forward", *BOTH, *FEW, "--only=lstm", "--rounds=5"),
    "readme_swap": (
        *("train_step", "--only=lstm", "--batch_size=32", "--time_steps=30", "--input_units=1"),
        *("--units=16", "--depth=8", "--dilation_rate=1,2,4,8", "--rounds=200"),
    ),
    "first_steps": ("first_steps",),
    "first_steps_all": ("first_steps", "--return_sequences"),
    # The released recipe for sequential MNIST, whose loss is on the last output.
    "train_step_last": (
        *("train_step", "--only=authors", "--only=lstm", "--batch_size=64", "--time_steps=784"),
        *("--input_units=1", "--units=130", "--depth=11", "--discard=783"),
        *("--dilation_rate=1,1,2,4,8,16,32,64,128,256,512", "--rounds=5", "--warmup=1"),
    ),
    "evaluate": ("evaluate",),
    "generate": ("generate", "--rounds=3"),
    "serving": ("serving", "--rounds=3"),
    # The preset `small` of `ptb` and `pydoc`, whose answers take little more than the calls do.
    "serving_small": (
        *("serving", *SMALL, "--only=generate", "--only=lstm", "--only=lstm_generate"),
        *("--rounds=30", "--new_tokens=32"),
    ),
    "start": ("start",),
    "precisions": ("precisions",),
    "precisions_small": ("precisions", *SMALL),
    "load": ("load",),
    "soak": ("soak",),
    "growth": ("growth",),
    "long_memory_copy": (
        *("long_memory", "--task=copy_memory", "--seconds=30", "--rate=4e-3", "--rate=2e-2"),
        "--threads=1",
    ),
    "long_memory_adding": ("long_memory", "--task=adding", "--seconds=35", "--threads=1"),
    "heads_ptb": ("heads",),
    # The released window; a mixture would take minutes a step.
    "heads_wikitext103": (
        *("heads", "--vocabulary_size=267735", "--cutoffs=2800,20000,76000", "--positions=3000"),
        *("--units=512", "--only=adaptive", "--rounds=3"),
    ),
}
NEEDS = {
    "long_memory": ("csv",),
    "train_step": ("reference_dir",),
    "weight_gradient": (),
    "first_steps": (),
    "evaluate": ("data_dir", "reference_dir"),
    "generate": ("reference_dir",),
    "serving": ("reference_dir",),
    "precisions": (),
    "start": (),
    "load": (),
    "soak": (),
    "growth": ("reference_dir",),
    "heads": (),
}


def command(name: str, results: Path, places: dict[str, str | None]) -> list[str]:
    """Returns a benchmark's command; `places` has the folders that were given."""
    module, *given = COMMANDS[name]
    given += [f"--{each}={places[each]}" for each in NEEDS[module] if places.get(each)]
    return [sys.executable, "-m", f"benchmarks.{module}", *given, f"--json={results / name}.json"]


def rendered(document: str, results: Path) -> str:
    """Returns the document with every result that there is between its markers."""

    def block(match: re.Match) -> str:
        path = results / f"{match['name']}.json"
        if not path.is_file():
            return match[0]
        found = json.loads(path.read_text(encoding="utf-8"))
        return f"<!-- {match['name']} -->\n{section(found)}\n<!-- /{match['name']} -->"

    return re.sub(r"<!-- (?P<name>\w+) -->\n.*?<!-- /(?P=name) -->", block, document, flags=re.S)


def section(found: dict[str, Any]) -> str:
    """Returns a result as Markdown: command, table, plot, who was left out, machine."""
    words = found["command"]
    module = MODULES[words[2]]
    parts = [f"```\n{report.shown(words)}\n```", module.table(found)]
    if module is growth:
        parts.append(f"![Time by size]({PLOT.relative_to(DOCUMENT.parent)})")
    parts += [f"Left out: {title}: {reason}" for title, reason in found["left_out"].items()]
    return "\n\n".join([*parts, report.described(found)])


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("results", None, "The folder of the results.", required=True)
    flags.DEFINE_bool("run", True, "Whether to measure, or only to write the document.")
    flags.DEFINE_multi_enum("only", None, list(COMMANDS), "What to measure; all by default.")
    flags.DEFINE_string("reference_dir", None, "A clone of github.com/locuslab/trellisnet.")
    flags.DEFINE_string("data_dir", None, "The folder of ptb.train.txt and ptb.test.txt.")


def main(argv: Sequence[str]) -> int:
    """Measures and writes; returns the exit status, 1 where a benchmark failed."""
    if len(argv) > 1:
        raise app.UsageError(f"arguments must be flags. Received: {' '.join(argv[1:])}")
    results = Path(FLAGS.results).resolve()
    results.mkdir(parents=True, exist_ok=True)
    points = results / POINTS.name
    places = {name: FLAGS[name].value for name in ("reference_dir", "data_dir")}
    places["csv"] = str(points)
    failed = []
    for name in (FLAGS.only or COMMANDS) if FLAGS.run else ():
        print(f"== {name}", flush=True)
        if subprocess.run(command(name, results, places), cwd=ROOT, check=False).returncode:
            failed.append(name)
    DOCUMENT.write_text(rendered(DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")
    if (results / "growth.json").is_file():
        growth.draw(json.loads((results / "growth.json").read_text(encoding="utf-8")), PLOT)
    if points.is_file():
        shutil.copyfile(points, POINTS)
        long_memory.draw(long_memory.read(points), POINTS.with_suffix(".png"))
    for name in failed:
        print(f"failed: {name}")
    return int(bool(failed))


if __name__ == "__main__":
    define_flags()
    app.run(main)
