"""Trains the small forms of the gated recurrent layers, for docs/recurrent.md.

    python -m docs.studies.gated DATA_DIR RUNS --seeds=3 --jobs=2

It trains each preset of `SMALL` with each seed on the Penn Treebank, by `trainers.lm` on one core,
all presets with seed 1 first. The same command goes on where it stopped. Then it prints a table of
the finished runs, and writes their numbers to docs/studies/gated.csv. A run that stands there is
not trained again, even if its folder is gone; delete its line to train it.
"""

import functools
import itertools
import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from absl import app

from configs import ptb_recurrent
from docs.studies import running

SMALL = [name for name in ptb_recurrent.PRESETS if name.startswith("small_")]
TABLE = pathlib.Path(__file__).with_suffix(".csv")


def train(data_dir: str, folder: pathlib.Path, preset: str, seed: int) -> None:
    """Trains a run to its end, or goes on with it."""
    arguments = ["trainers.lm", "--task=ptb", f"--preset={preset}"]
    arguments += [f"--data_dir={data_dir}", f"--config.seed={seed}"]
    running.train(folder, arguments)


def finished(runs: pathlib.Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Returns the numbers of the runs in the table and in a folder, by preset and seed."""
    paths = (path for preset in SMALL for path in (runs / preset).glob("*/result.json"))
    rows = (_numbers(path.parent) for path in paths)
    found = running.with_table(TABLE, rows, ("preset", "seed"))
    places = sorted(found, key=lambda place: (SMALL.index(place[0]), place[1]))
    return {place: found[place] for place in places}


def _numbers(folder: pathlib.Path) -> dict[str, Any]:
    result = json.loads((folder / "result.json").read_text())
    scores, cost = result["scores"], result["cost"]
    return {
        "preset": folder.parent.name,
        "seed": int(folder.name),
        "parameters": result["parameters"],
        "validation": scores["validation"]["exact"]["perplexity"],
        "test": scores["test"]["exact"]["perplexity"],
        "tokens_a_second": cost["weight"] / cost["seconds"],
    }


def told(found: Sequence[dict]) -> str:
    """Returns the rows of a table: a preset with the mean and the deviation of its seeds."""
    lines = [
        "| preset | parameters | test perplexity | runs | tokens/s |",
        "|---|---:|---:|---:|---:|",
    ]
    for preset, group in itertools.groupby(found, lambda row: row["preset"]):
        of_preset = list(group)
        scores = [row["test"] for row in of_preset]
        spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
        speed = statistics.median(row["tokens_a_second"] for row in of_preset)
        lines.append(
            f"| `{preset}` | {of_preset[0]['parameters']:,} | "
            f"{statistics.mean(scores):.2f}{spread} | {len(scores)} | {speed:,.0f} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Trains what is not finished, and prints the table."""
    _, data_dir, folder = argv
    runs = pathlib.Path(folder)
    there = finished(runs)
    calls = []
    for seed, preset in itertools.product(running.seeds(), SMALL):
        if (preset, seed) not in there:
            place = runs / preset / str(seed)
            calls.append(functools.partial(train, data_dir, place, preset, seed))
    running.train_all(calls)
    found = list(finished(runs).values())
    running.write_table(TABLE, found)
    print(told(found))


if __name__ == "__main__":
    app.run(main)
