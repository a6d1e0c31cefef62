"""Trains the small forms of the gated recurrent layers, for docs/recurrent.md.

    python -m docs.studies.gated DATA_DIR RUNS --seeds=3 --jobs=2

It trains each preset of `SMALL` with each seed on the Penn Treebank, by `trainers.lm` on one core,
all presets with seed 1 first. The same command goes on where it stopped. Then it prints a table of
the finished runs, and writes their numbers to docs/studies/gated.csv.
"""

import csv
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent import futures

from absl import app, flags

from configs import ptb_recurrent

FLAGS = flags.FLAGS
flags.DEFINE_integer("seeds", 3, "How many seeds each preset has.", lower_bound=1)
flags.DEFINE_integer("jobs", 1, "How many runs go at a time.", lower_bound=1)

SMALL = [name for name in ptb_recurrent.PRESETS if name.startswith("small_")]
TABLE = pathlib.Path(__file__).with_suffix(".csv")
ONE_CORE = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
}


def train(data_dir: str, folder: pathlib.Path, preset: str, seed: int) -> None:
    """Trains a run to its end, or goes on with it; its output goes to a file beside it."""
    command = [sys.executable, "-m", "trainers.lm", "--task=ptb", f"--preset={preset}"]
    command += [f"--data_dir={data_dir}", f"--workdir={folder}"]
    command += [f"--config.seed={seed}"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".log").open("a") as log:
        environment = os.environ | ONE_CORE
        subprocess.run(command, stdout=log, stderr=log, env=environment, check=True)


def rows(runs: pathlib.Path, seeds: Sequence[int]) -> Iterator[dict[str, object]]:
    """Yields the numbers of the finished runs."""
    for preset, seed in itertools.product(SMALL, seeds):
        path = runs / preset / str(seed) / "result.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        scores, cost = result["scores"], result["cost"]
        yield {
            "preset": preset,
            "seed": seed,
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
    seeds = range(1, FLAGS.seeds + 1)
    with futures.ThreadPoolExecutor(FLAGS.jobs) as pool:
        trained = [
            pool.submit(train, data_dir, runs / preset / str(seed), preset, seed)
            for seed, preset in itertools.product(seeds, SMALL)
        ]
    for each in trained:
        each.result()
    found = list(rows(runs, seeds))
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(told(found))


if __name__ == "__main__":
    app.run(main)
