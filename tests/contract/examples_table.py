"""Writes what Keras's backend makes of the examples into the table of docs/howto/drop_in.md.

KERAS_BACKEND=torch python -m tests.contract.examples_table                   # all examples
KERAS_BACKEND=torch python -m tests.contract.examples_table stateful_example  # some of them

What the table has of the other backend, and of other examples, stays.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings

import keras

from tests import ROOT
from tests.contract.keras_examples import EXAMPLES, LAYERS, cell

PAGE = ROOT / "docs/howto/drop_in.md"
BACKENDS = {"tensorflow": "TensorFlow", "torch": "torch"}
_MARKED = re.compile("(?<=<!-- examples -->\n).*(?=<!-- /examples -->)", re.DOTALL)
_UNKNOWN = "?"

Table = dict[tuple[str, str], dict[str, str]]
"""(example, layer) -> backend -> what the table says."""


def read(page: str) -> Table:
    """Returns the table of a page."""
    (text,) = _MARKED.findall(page)
    unknown = dict.fromkeys(BACKENDS.values(), _UNKNOWN)
    table: Table = {
        (example, layer): dict(unknown) for example in EXAMPLES for layer in LAYERS
    }
    for line in text.splitlines()[2:]:
        example, *texts = [part.strip() for part in line.strip("|").split("|")]
        for layer, said in zip(LAYERS, texts, strict=True):
            table[example.strip("`"), layer] = _by_backend(said)
    return table


def _by_backend(said: str) -> dict[str, str]:
    titles = BACKENDS.values()
    parts = re.fullmatch(", ".join(f"{title}: (.+)" for title in titles), said)
    texts = parts.groups() if parts else [said] * len(titles)
    return dict(zip(titles, texts, strict=True))


def _text(said: dict[str, str]) -> str:
    if len({*said.values()}) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{title}: {text}" for title, text in said.items())


def written(page: str, table: Table) -> str:
    """Returns a page with a table."""
    lines = [f"| | {' | '.join(LAYERS)} |", "|---|" + "---|" * len(LAYERS)]
    for example in EXAMPLES:
        texts = [_text(table[example, layer]) for layer in LAYERS]
        lines.append(f"| `{example}` | {' | '.join(texts)} |")
    return _MARKED.sub(lambda _: "\n".join([*lines, ""]), page)


def main() -> None:
    """Runs the examples that the command line names, or all, and writes what they say."""
    # TensorFlow says how often it traces; what counts is an exception.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    backend = BACKENDS[keras.backend.backend()]
    table = read(PAGE.read_text(encoding="utf-8"))
    for example in sys.argv[1:] or EXAMPLES:
        for layer in LAYERS:
            keras.utils.clear_session()  # else the graphs of all cells stay in memory
            said = cell(example, layer)
            print(f"{backend}: {example}: {layer}: {said}", flush=True)
            table[example, layer][backend] = said
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written(page, table), encoding="utf-8")


if __name__ == "__main__":
    main()
