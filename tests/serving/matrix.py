"""Which models `keras_trellis.serving.runtime` runs: the table of docs/notes/serving.md.

    python -m tests.serving.matrix          # every cell, a minute of processor time, and writes it
    python -m tests.serving.matrix sru      # the rows that are named, the others as they are

A row is a layer of `config.model.layer`, with variants where one has several kinds of graphs, or a
head. A cell writes the model as ONNX, and compares what ONNX Runtime makes of it with the model.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_trellis.export import inference_model, lowering
from keras_trellis.export.caches import CacheFormat
from keras_trellis.export.classifier import ClassifierEndpoints
from tests import ROOT
from trainers.data.names import flatten
from trainers.language import models as language_models
from trainers.models.heads import HEADS
from trainers.models.layers import LAYERS
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs

PAGE = ROOT / "docs/notes/serving.md"
COLUMNS = ("language model", "classifier")
RIGHT = "yes"
NO = "no"
NONE = "-"
_MARKED = re.compile("(?<=<!-- models -->\n).*(?=<!-- /models -->)", re.DOTALL)
_WORDS = 30
# Fields of `config.model`, for layers and heads alike; the others are those of `ptb`.
_SIZES = {
    "units": 8,
    "embedding_units": 8,
    "output_units": 8,
    "depth": 3,
    "kernel_size": 2,
    "dilation_rate": (1,),
    "groups": 1,
    "inject_groups": False,
    "layers": 2,
    "adaptive.cutoffs": (10, 20),
    "transformer.heads": 2,
    "transformer.context": 5,
    "tensorized.size": 2,
}
_STACK = {"layer": "equilibrium", "groups": 2, "inject_groups": True}

ROWS: dict[str, Mapping[str, Any]] = {
    **{layer: {"layer": layer} for layer in LAYERS},
    "trellis, 20 levels of two dilations": {
        "layer": "trellis",
        "depth": 20,
        "dilation_rate": (1, 2),
    },
    "trellis, gate gru, groups": {
        "layer": "trellis",
        "gate": "gru",
        "groups": 2,
        "inject_groups": True,
        "unit_forget_bias": False,
    },
    "equilibrium, a stack of groups": _STACK,
    **{f"head {head}": {**_STACK, "head": head} for head in HEADS},
}


def model(row: str, column: str) -> keras.Model:
    """Returns the model of a cell, with random weights."""
    keras.utils.set_random_seed(0)
    is_language = column == "language model"
    task = "ptb" if is_language else "seq_mnist"
    config = configs.load(task, "small").copy_and_resolve_references()
    values = {"dtype": "float32", "head": "tied", "dropout": 0.0}
    wanted = {f"model.{k}": v for k, v in {**values, **_SIZES, **ROWS[row]}.items()}
    known = flatten(config.to_dict())
    with config.unlocked():
        for name in wanted.keys() & known:
            group, _, field = name.rpartition(".")
            functools.reduce(operator.getitem, group.split("."), config)[field] = (
                wanted[name]
            )
    if is_language:
        built = language_models.build(config, _WORDS)
    else:
        built = sequence_models.classifier(config, (9, 8), 4)
    random = np.random.default_rng(0)
    for variable in built.trainable_variables:
        variable.assign(0.4 * random.normal(size=variable.shape))
    return inference_model(built)


def functions(built: keras.Model, column: str) -> Mapping[str, lowering.Function]:
    """Returns what a model is written by."""
    if column == "classifier":
        endpoints = ClassifierEndpoints(built, ["a", "b", "c", "d"], None, lambda x: x)
        return lowering.classifier(endpoints)
    return lowering.language_model(built, CacheFormat(built.get_initial_cache(1)))


def cell(row: str, column: str) -> str:
    """Returns what a cell says: `RIGHT`; `NO`; or `NONE`, as classifiers have no head."""
    if column == "classifier" and row.startswith("head "):
        return NONE
    built = model(row, column)
    with tempfile.TemporaryDirectory() as folder:
        try:
            lowering.write(functions(built, column), Path(folder))
        except lowering.LoweringError as error:
            print(f"{row}, {column}: {error}", file=sys.stderr)
            return NO
    return RIGHT


def read(page: str) -> dict[str, dict[str, str]]:
    """Returns the table of a page: row -> column -> what the cell says."""
    (text,) = _MARKED.findall(page)
    rows = {}
    for line in text.splitlines()[2:]:
        row, *answers = [each.strip() for each in line.strip("|").split("|")]
        rows[row.strip("`")] = dict(zip(COLUMNS, answers, strict=True))
    return rows


def written(page: str, rows: Mapping[str, Mapping[str, str]]) -> str:
    """Returns a page with these rows."""
    lines = [f"| | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for row in ROWS:
        lines.append(f"| `{row}` | {' | '.join(rows[row][c] for c in COLUMNS)} |")
    return _MARKED.sub(lambda _: "\n".join([*lines, ""]), page)


def main(tell: Callable[..., object] = print) -> None:
    """Measures the rows that the command line names, or all, and writes them."""
    page = PAGE.read_text(encoding="utf-8")
    rows = read(page)
    for row in sys.argv[1:] or ROWS:
        rows[row] = {column: cell(row, column) for column in COLUMNS}
        tell(row, *rows[row].values())
    PAGE.write_text(written(page, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
