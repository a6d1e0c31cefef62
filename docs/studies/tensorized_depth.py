"""How many examples two algorithms take by depth, for docs/notes/tensorized.md.

    python -m docs.studies.tensorized_depth RUNS --seeds=3 --jobs=2

Each run ends when 100 of 100 validation answers are right. It trains each row of `ROWS` with each
seed by `trainers.pixels` on one core, all rows with seed 1 first. The same command goes on where it
stopped; with `--notrain` it takes the runs as they are. Then it prints a table of the finished
runs, writes their numbers to docs/studies/tensorized_depth.csv, and draws
docs/tensorized_depth.png. A run that stands in the file is not trained again, even if its folder is
gone; delete its line to train it.
"""

import functools
import itertools
import json
import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib import figure

from docs.studies import running

TABLE = pathlib.Path(__file__).with_suffix(".csv")
PICTURE = pathlib.Path(__file__).parents[1] / "tensorized_depth.png"
TASKS = ("memorization", "addition")
DEPTHS = (1, 4, 7)
_KEYS = ("task", "layer", "depth", "seed")
_SIZE = "--config.model.tensorized.size={}"
_WITHOUT = "--config.model.tensorized.memory_convolution=False"
# A layer's flags; {} is the depth L, which is the size of the state with a kernel of 2 or 3.
LAYERS = {
    "line, memory convolution": ("--preset=small_tensorized", _SIZE),
    "line": ("--preset=small_tensorized", _SIZE, _WITHOUT),
    "stacked LSTM": ("--preset=small_stacked_lstm", _SIZE),
    "Grid LSTM": ("--preset=small_grid_lstm", "--config.model.layers={}"),
    "square, memory convolution": ("--preset=small_tensorized_3d", _SIZE),
}
_DEPTHS = {"square, memory convolution": (4,)}  # a square of 7 x 7 takes an hour
_END = (
    "--config.schedule.stop_at=1",
    "--config.data.validation=100",
    "--config.data.test=100",
)
_COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7")


class Row(NamedTuple):
    """A row of the table."""

    task: str
    layer: str
    depth: int


def _rows() -> Iterator[Row]:
    for task, layer in itertools.product(TASKS, LAYERS):
        for depth in _DEPTHS.get(layer, DEPTHS):
            yield Row(task, layer, depth)


ROWS = list(_rows())


def run_folder(runs: pathlib.Path, row: Row, seed: int) -> pathlib.Path:
    """Returns the folder of a run."""
    name = row.layer.replace(", ", "-").replace(" ", "_")
    return runs / row.task / name / str(row.depth) / str(seed)


def train(folder: pathlib.Path, row: Row, seed: int) -> None:
    """Trains a run to its end, or goes on with it."""
    flags = [flag.format(row.depth) for flag in LAYERS[row.layer]]
    task = ("trainers.pixels", f"--task={row.task}")
    running.train(folder, [*task, *flags, *_END, f"--config.seed={seed}"])


def read(runs: pathlib.Path, row: Row, seed: int) -> dict[str, Any] | None:
    """Returns the numbers of a run, or None if it has not finished."""
    folder = run_folder(runs, row, seed)
    if not (folder / "result.json").exists():
        return None
    result = json.loads((folder / "result.json").read_text())
    data = json.loads((folder / "config.json").read_text())["data"]
    return row._asdict() | {
        "seed": seed,
        "parameters": result["parameters"],
        "solved": int(bool(result.get("solved"))),
        "examples": result["epochs"] * data["train"],
        "right_answers": round(result["scores"]["test"]["exact"]["right_answers"], 1),
        "processor_seconds": round(running.processor_seconds(folder), 1),
    }


def table(results: Sequence[dict[str, Any]]) -> str:
    """Returns a table: for each row the mean of the examples that its solved runs took."""
    lines = [
        "| task | layer | L | parameters | examples until 100 of 100 answers are right | solved |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in ROWS:
        own = [result for result in results if _row(result) == row]
        if not own:
            continue
        seen = [result["examples"] for result in own if result["solved"]]
        examples = "-"
        if seen:
            examples = f"{statistics.mean(seen):,.0f} ({min(seen):,} to {max(seen):,})"
        lines.append(
            f"| `{row.task}` | {row.layer} | {row.depth} | {own[0]['parameters']:,} "
            f"| {examples} | {len(seen)} of {len(own)} |"
        )
    return "\n".join(lines)


def draw(results: Sequence[dict[str, Any]]) -> figure.Figure:
    """Draws the examples that runs took over the depth, a panel for each task.

    A run that was not solved is an open circle at its last example.
    """
    picture = figure.Figure(figsize=(11, 4.2), layout="constrained")
    axes = picture.subplots(1, len(TASKS))
    for panel, task in zip(axes, TASKS, strict=True):
        for number, layer in enumerate(LAYERS):
            own = [
                result
                for result in results
                if (result["task"], result["layer"]) == (task, layer)
            ]
            _draw_layer(panel, own, layer, number)
        panel.set(title=task, xlabel="L", ylabel="examples", xticks=DEPTHS)
        panel.margins(y=0.08)
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter("{x:,.0f}")
        panel.grid(alpha=0.25)
    axes[0].plot([], [], "o", color="grey", fillstyle="none", label="not solved")
    labels = axes[0].get_legend_handles_labels()
    picture.legend(*labels, loc="outside right center", fontsize="small")
    return picture


def _draw_layer(
    panel: Any, results: Sequence[dict[str, Any]], layer: str, number: int
) -> None:
    """Draws a line through the means of the depths, and a dot for each run, beside each other."""
    colour = _COLOURS[number]
    beside = 0.12 * (number - len(LAYERS) // 2)
    depths = sorted({result["depth"] for result in results})
    means = [
        statistics.mean(run["examples"] for run in results if run["depth"] == depth)
        for depth in depths
    ]
    places = [depth + beside for depth in depths]
    panel.plot(places, means, color=colour, label=layer)
    for run in results:
        filled = "full" if run["solved"] else "none"
        place = (run["depth"] + beside, run["examples"])
        panel.plot(*place, "o", color=colour, markersize=5, fillstyle=filled)


def _row(result: dict[str, Any]) -> Row:
    return Row(*(result[name] for name in Row._fields))


def main(argv: Sequence[str]) -> None:
    """Trains what is not finished, and prints the table."""
    _, folder = argv
    runs = pathlib.Path(folder)
    pairs = [(row, seed) for seed, row in itertools.product(running.seeds(), ROWS)]
    there = running.with_table(TABLE, (), _KEYS)
    running.train_all(
        [
            functools.partial(train, run_folder(runs, row, seed), row, seed)
            for row, seed in pairs
            if (*row, seed) not in there
        ]
    )
    rows = [result for row, seed in pairs if (result := read(runs, row, seed))]
    numbers = list(running.with_table(TABLE, rows, _KEYS).values())
    running.write_table(TABLE, numbers)
    print(table(numbers))
    draw(numbers).savefig(PICTURE, dpi=90)


if __name__ == "__main__":
    running.main(main)
