"""Trains DRAW on binarised MNIST with two decoders, for docs/results/drawing.md.

    python -m docs.studies.drawing DATA_DIR RUNS --seeds=3 --jobs=2

It trains each row of `ROWS` by `trainers.draw` on one core: the small form with each seed, the
larger one with the first seed alone. The same command goes on where it stopped; with `--notrain`
it takes the runs as they are. Then it prints a table of the finished runs, writes their numbers to
docs/studies/drawing.csv, and copies the last drawings of the larger form to
docs/studies/drawing_DECODER.png, out of which `docs.draw_results` makes a picture. A run that
stands in the table is not trained again, even if its folder is gone; delete its line to train it.
"""

import functools
import itertools
import json
import pathlib
import shutil
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from docs.studies import running

DECODERS = ("lstm", "ihc_lstm")
TABLE = pathlib.Path(__file__).with_suffix(".csv")
STUDIES = TABLE.parent


class Form(NamedTuple):
    """A size of the model and a length of its training.

    Attributes:
        name: its name.
        flags: flags of `trainers.draw`.
        every_seed: whether each seed is trained; else the first one alone.
    """

    name: str
    flags: tuple[str, ...]
    every_seed: bool


SMALL = Form("small", (), every_seed=True)
# About an hour of one core.
HOUR = Form(
    "hour",
    (
        "--config.model.steps=20",
        "--config.model.units=256",
        "--config.model.latent_units=50",
        "--config.training.steps=15000",
        "--config.training.epochs=30",
    ),
    every_seed=False,
)
FORMS = (SMALL, HOUR)


def places(runs: pathlib.Path) -> Iterator[tuple[Form, str, int, pathlib.Path]]:
    """Yields the form, the decoder, the seed and the folder of each run."""
    for form in FORMS:
        seeds = running.seeds() if form.every_seed else running.seeds()[:1]
        for seed, decoder in itertools.product(seeds, DECODERS):
            yield form, decoder, seed, runs / form.name / decoder / str(seed)


def train(
    data_dir: str, folder: pathlib.Path, form: Form, decoder: str, seed: int
) -> None:
    """Trains a run to its end, or goes on with it."""
    arguments = ["trainers.draw", "--task=mnist", "--preset=small", *form.flags]
    arguments += [f"--data_dir={data_dir}", f"--config.model.decoder={decoder}"]
    running.train(folder, [*arguments, f"--config.seed={seed}"])


def finished(runs: pathlib.Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Returns the numbers of the runs in the table and in a folder, by form, decoder and seed."""
    rows = (
        _numbers(form, decoder, seed, folder)
        for form, decoder, seed, folder in places(runs)
        if (folder / "result.json").exists()
    )
    return running.with_table(TABLE, rows, ("form", "decoder", "seed"))


def _numbers(
    form: Form, decoder: str, seed: int, folder: pathlib.Path
) -> dict[str, Any]:
    result = json.loads((folder / "result.json").read_text())
    scores = result["scores"]["test"]["exact"]
    return {
        "form": form.name,
        "decoder": decoder,
        "seed": seed,
        "parameters": result["parameters"],
        "test_nats": scores["nats"],
        "reconstruction": scores["reconstruction"],
        "kl": scores["kl"],
        "processor_seconds": round(running.processor_seconds(folder), 1),
    }


def table(results: Sequence[dict[str, Any]]) -> str:
    """Returns a table: for each form and decoder the mean and the deviation over its seeds."""
    lines = [
        "| form | decoder | parameters | bound on the test images, nats "
        "| reconstruction | kl | runs | processor minutes a run |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for form, decoder in itertools.product(FORMS, DECODERS):
        row = (form.name, decoder)
        row_results = [
            result for result in results if (result["form"], result["decoder"]) == row
        ]
        if row_results:
            lines.append(_line(form, decoder, row_results))
    return "\n".join(lines)


def _line(form: Form, decoder: str, results: Sequence[dict[str, Any]]) -> str:
    def mean(name: str) -> float:
        return statistics.mean(result[name] for result in results)

    nats = [result["test_nats"] for result in results]
    spread = f" ± {statistics.stdev(nats):.2f}" if len(nats) > 1 else ""
    return (
        f"| {form.name} | `{decoder}` | {results[0]['parameters']:,} "
        f"| {mean('test_nats'):.2f}{spread} | {mean('reconstruction'):.2f} "
        f"| {mean('kl'):.2f} | {len(results)} | {mean('processor_seconds') / 60:.0f} |"
    )


def show(runs: pathlib.Path) -> None:
    """Copies the last drawings of the larger form, where its folders are there."""
    for decoder in DECODERS:
        folder = runs / HOUR.name / decoder / "1"
        if (folder / "result.json").exists():
            last = max((folder / "drawings").iterdir())
            shutil.copyfile(last, STUDIES / f"drawing_{decoder}.png")


def main(argv: Sequence[str]) -> None:
    """Trains what is not finished, and prints the table."""
    _, data_dir, folder = argv
    runs = pathlib.Path(folder)
    there = finished(runs)
    calls = [
        functools.partial(train, data_dir, place, form, decoder, seed)
        for form, decoder, seed, place in places(runs)
        if (form.name, decoder, seed) not in there
    ]
    running.train_all(calls)
    results = list(finished(runs).values())
    running.write_table(TABLE, results)
    show(runs)
    print(table(results))


if __name__ == "__main__":
    running.main(main)
