"""Writes the table of docs/reference/backends.md: layer x backend, each with its properties.

    KERAS_BACKEND=jax python -m pytest tests/contract --junitxml=jax.xml
    python -m tests.contract.table tensorflow.xml jax.xml torch.xml

A file belongs to the backend that its name begins with; of several of one backend, such as those of
JAX in float64 and in float32, all count. Without a file, a backend keeps what the table says.
"""

from __future__ import annotations

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator

from tests import ROOT
from tests.contract.registry import REGISTRY

PAGE = ROOT / "docs/reference/backends.md"
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "torch"}
PROPERTIES = {
    "plain form": ["the_fast_form_is_the_plain_one"],
    "graphs": ["eager_and_", "streaming_eagerly"],
    "chunks": ["chunks", "states"],
    "states": ["a_state_handed_on"],
    "masks": ["masks", "padding_"],
    "rows": ["rows"],
    "causal": ["causal"],
    "gradients": ["gradients"],
    "number formats": ["number_formats", "bfloat16"],
    "files": ["configuration_is", "a_fresh_process_loads_it", "a_copy_learns", "file"],
}
"""The title of a property -> how the names of its tests, or of promises, begin."""
LETTERS = dict(zip("abcdefghij", PROPERTIES, strict=True))
"""What the table has for a property: ten columns are too wide for a phone."""

_MARKED = re.compile("(?<=<!-- table -->\n).*(?=<!-- /table -->)", re.DOTALL)

Table = dict[tuple[str, str], set[str]]
"""(layer, property) -> the backends on which all its tests passed."""


def passed(path: pathlib.Path) -> Iterator[tuple[str, str, bool]]:
    """Yields layer, property and success of each test that ran."""
    for case in ElementTree.parse(path).iter("testcase"):
        name, _, parameters = case.get("name", "").partition("[")
        if "tests.contract" not in case.get("classname", ""):
            continue
        outcomes = {child.tag for child in case}
        layers = [
            layer
            for layer in REGISTRY
            if re.search(rf"(^|-){re.escape(layer)}(-|\]|$)", parameters)
        ]
        if "skipped" in outcomes or not layers:
            continue
        name = name.removeprefix("test_")
        if name == "a_promise_is_kept":
            name = parameters.strip("]").rpartition("-")[2]
        for title, beginnings in PROPERTIES.items():
            if name.startswith(tuple(beginnings)):
                yield max(layers, key=len), title, not outcomes & {"failure", "error"}


def read(page: str) -> Table:
    """Returns the table of a page."""
    (text,) = _MARKED.findall(page)
    table: Table = {}
    for line in text.splitlines()[2:]:
        layer, *cells = [part.strip() for part in line.strip("|").split("|")]
        columns = dict(zip(BACKENDS.values(), cells, strict=True))
        for letter, title in LETTERS.items():
            table[layer.strip("`"), title] = {
                backend for backend, cell in columns.items() if letter in cell
            }
    return table


def updated(table: Table, paths: Iterable[pathlib.Path]) -> Table:
    """Returns a table in which the backends with files say what these say."""
    ran: dict[tuple[str, str, str], bool] = {}
    for path in paths:
        (backend,) = (
            title for name, title in BACKENDS.items() if path.stem.startswith(name)
        )
        for layer, title, success in passed(path):
            place = layer, title, backend
            ran[place] = ran.get(place, True) and success
    measured = {backend for *_, backend in ran}
    places = [(layer, title) for layer in REGISTRY for title in PROPERTIES]
    return {
        place: {
            backend
            for backend in BACKENDS.values()
            if (
                ran.get((*place, backend), False)
                if backend in measured
                else backend in table.get(place, set())
            )
        }
        for place in places
    }


def written(page: str, table: Table) -> str:
    """Returns a page with a table."""
    titles = BACKENDS.values()
    lines = [f"| | {' | '.join(titles)} |", "|---|" + "---|" * len(titles)]
    for layer in REGISTRY:
        cells = (
            "".join(
                letter for letter, t in LETTERS.items() if backend in table[layer, t]
            )
            for backend in titles
        )
        lines.append(f"| `{layer}` | {' | '.join(cells)} |")
    return _MARKED.sub(lambda _: "\n".join([*lines, ""]), page)


def main() -> None:
    """Writes the table of the files that the command line names."""
    page = PAGE.read_text(encoding="utf-8")
    table = updated(read(page), map(pathlib.Path, sys.argv[1:]))
    PAGE.write_text(written(page, table), encoding="utf-8")


if __name__ == "__main__":
    main()
