r"""Trains the small forms of the gated recurrent layers, for docs/notes/recurrent.md.

    python -m docs.studies.gated DATA_DIR RUNS --seeds=3 --jobs=2

It trains each row of `ROWS` with each seed on the Penn Treebank, by `trainers.lm` on one core, all
rows with seed 1 first. A row is a preset, or one in the form of the authors' code: PRESET-released.
The same command goes on where it stopped. Then it prints a table of the finished runs, and writes
their numbers to docs/studies/gated.csv. A run that stands there is not trained again, even if its
folder is gone; delete its line to train it.

RUNS/PRESET/SEED may also be the folder of a finished run of `trainers.reproduce` on an accelerator.

With --speed it measures the training steps of all presets instead, in one process on one core of
this machine, and writes docs/studies/gated_speed.csv.
"""

import functools
import itertools
import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from absl import flags
from etils import epath

from configs import ptb_recurrent
from docs.studies import running
from trainers.studies import budget, experiments
from trainers.tasks import config as configs

FLAGS = flags.FLAGS
flags.DEFINE_bool("speed", False, "Whether to measure steps, and to train nothing.")

SMALL = [name for name in ptb_recurrent.PRESETS if name.startswith("small_")]
# Where Table II has the IRC ahead and the printed equations do not; `small_gru` has no other form.
RELEASED = ("small_irc_gru", "small_fast_grnn", "small_irc_fast_grnn")
ROWS = [*SMALL, *(f"{preset}-released" for preset in RELEASED)]
TABLE = pathlib.Path(__file__).with_suffix(".csv")
SPEED = TABLE.with_stem("gated_speed")
_ROUNDS = 3
_SCORES = ("validation", "test")


def train(data_dir: str, folder: pathlib.Path, row: str, seed: int) -> None:
    """Trains a run to its end, or goes on with it."""
    preset, _, variant = row.partition("-")
    arguments = ["trainers.lm", "--task=ptb", f"--preset={preset}"]
    arguments += [f"--data_dir={data_dir}", f"--config.seed={seed}"]
    if variant:
        # XLA makes these steps a fifth to a third faster, and rounds otherwise.
        arguments += [
            f"--config.model.variant={variant}",
            "--config.training.jit_compile=True",
        ]
    running.train(folder, arguments)


def finished(runs: pathlib.Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Returns the numbers of the runs in the table and in a folder, by row and seed."""
    folders = (path for row in ROWS for path in (runs / row).glob("[0-9]*"))
    rows = filter(None, (_numbers(path) for path in folders if path.is_dir()))
    results = running.with_table(TABLE, rows, ("preset", "seed"))
    places = sorted(results, key=lambda place: (ROWS.index(place[0]), place[1]))
    return {place: results[place] for place in places}


def _numbers(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns the row of a finished run; None if it is not finished."""
    row = {"preset": folder.parent.name, "seed": int(folder.name)}
    if not (folder / "result.json").exists():
        return None
    result = json.loads((folder / "result.json").read_text())
    scores, cost = result["scores"], result["cost"]
    by = "trainers.reproduce" if (folder / "card.md").exists() else "trainers.lm"
    return row | {
        "trained_by": by,
        "parameters": result["parameters"],
        "validation": scores["validation"]["exact"]["perplexity"],
        "test": scores["test"]["exact"]["perplexity"],
        "seconds": cost["seconds"],
    }


def measure(data_dir: str) -> None:
    """Writes how many tokens each preset trains in a processor second of one core."""
    budget.fix_threads(1)
    seconds: dict[str, list[float]] = {preset: [] for preset in SMALL}
    tokens = {}
    for _, preset in itertools.product(range(_ROUNDS), SMALL):
        config = configs.load("ptb", preset)
        experiment = experiments.load(config, data_dir, epath.Path(data_dir))
        seconds[preset].append(budget.processor_seconds_a_step(experiment, config))
        tokens[preset] = config.data.batch_size * config.data.window
        print(preset, f"{tokens[preset] / seconds[preset][-1]:,.0f}", flush=True)
    rows = [
        {
            "preset": preset,
            "tokens_a_second": tokens[preset] / statistics.median(times),
            "least": tokens[preset] / max(times),
            "most": tokens[preset] / min(times),
        }
        for preset, times in seconds.items()
    ]
    running.write_table(SPEED, rows)


def format_rows(results: Sequence[dict], speeds: dict[str, float]) -> str:
    """Returns the lines of a table: a row with the mean and the deviation of its seeds."""
    lines = [
        "| preset | parameters | validation perplexity | test perplexity | runs | tokens/s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for preset, group in itertools.groupby(results, lambda row: row["preset"]):
        preset_results = list(group)
        scores = [_spread([row[name] for row in preset_results]) for name in _SCORES]
        speed = f"{speeds[preset]:,.0f}" if preset in speeds else ""
        lines.append(
            f"| `{preset}` | {preset_results[0]['parameters']:,} | {' | '.join(scores)} | "
            f"{len(preset_results)} | {speed} |"
        )
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def _speeds() -> dict[str, float]:
    if not SPEED.exists():
        return {}
    rows = running.with_table(SPEED, (), ("preset",)).values()
    return {row["preset"]: row["tokens_a_second"] for row in rows}


def main(argv: Sequence[str]) -> None:
    """Trains what is not finished, and prints the table."""
    _, data_dir, folder = argv
    if FLAGS.speed:
        measure(data_dir)
        return
    runs = pathlib.Path(folder)
    there = finished(runs)
    calls = []
    for seed, row in itertools.product(running.seeds(), ROWS):
        if (row, seed) not in there:
            place = runs / row / str(seed)
            calls.append(functools.partial(train, data_dir, place, row, seed))
    running.train_all(calls)
    results = list(finished(runs).values())
    running.write_table(TABLE, results)
    print(format_rows(results, _speeds()))


if __name__ == "__main__":
    running.main(main)
