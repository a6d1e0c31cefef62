"""Prints how many parameters each preset of each task has, beside the paper's numbers.

    python -m trainers.parameters

The sizes of the vocabularies are those of the published texts, so that no text is needed.
"""

import gc
import importlib
from collections.abc import Iterator

import keras
import ml_collections

from trainers.cli import command
from trainers.data import wikitext
from trainers.language import modeling
from trainers.sequences import models
from trainers.tasks import config as configs
from trainers.training import runs

# Of the published images, so that none is needed: steps and channels.
IMAGE_SHAPES = {"seq_mnist": (784, 1), "permuted_mnist": (784, 1), "seq_cifar10": (1024, 3)}
VOCABULARY_SIZES = {
    "ptb": 10_000,
    "ptb_mos": 10_000,
    "ptb_char": 50,
    **{task: edition.words for task, edition in wikitext.EDITIONS.items()},
}
# Section 5.2 and Table 5; the ablations are said to be of one size.
PAPER = {
    ("ptb", "paper"): "24M",
    ("ptb", "paper_larger"): "33M",
    ("ptb_mos", "paper"): "25M",
    ("ptb_mos", "paper_larger"): "34M",
    ("ptb_char", "paper"): "13.4M",
    ("wikitext103", "paper"): "180M",
    **{(task, preset): "8M" for task in IMAGE_SHAPES for preset in ("paper", "paper_larger")},
}
_ABLATIONS = "24.1M"


def counts() -> Iterator[tuple[str, str, int, str]]:
    """Yields task, preset, number of parameters and what the paper says, or nothing."""
    for task in (*VOCABULARY_SIZES, *IMAGE_SHAPES):
        for preset in importlib.import_module(f"configs.{task}").PRESETS:
            model = _model(configs.load(task, preset))
            ablation = _ABLATIONS if preset.startswith("paper_") else ""
            yield task, preset, runs.parameters(model), PAPER.get((task, preset), ablation)
            del model
            gc.collect()  # one model at a time: the largest is of a gigabyte


def _model(config: ml_collections.ConfigDict) -> keras.Model:
    if config.task in VOCABULARY_SIZES:
        return modeling.build(config, VOCABULARY_SIZES[config.task])
    return models.classifier(config, IMAGE_SHAPES[config.task], classes=10)


def main(argv: list[str]) -> int:
    """Prints the table, in Markdown; returns the exit status."""
    return command.exit_status(argv, _print)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line for `command.start`; exits with one line where it is not valid."""
    return command.parse(argv, lambda argv: None)


def _print() -> None:
    print("| task | preset | parameters | paper |\n| --- | --- | ---: | ---: |")
    for task, preset, count, paper in counts():
        print(f"| `{task}` | `{preset}` | {count:,} | {paper} |", flush=True)


if __name__ == "__main__":
    command.start(main, parse_flags)
