"""Writes the tables of formats in docs/reference/formats.md, one backend at a time.

python -m tests.formats.table                      # every cell of TensorFlow: some ten minutes
KERAS_BACKEND=jax python -m tests.formats.table    # every cell of JAX
python -m tests.formats.table '`SRU`'              # the rows that are named, the others as they are
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable

from tests import ROOT
from tests.formats.cells import LENGTHS, cell
from tests.formats.layers import ROWS
from tests.formats.runtimes import BACKEND, FORMATS, PACKAGES, backends, version

PAGE = ROOT / "docs/reference/formats.md"
_MARKED = re.compile("(?<=<!-- table -->\n).*(?=<!-- /table -->)", re.DOTALL)
_VERSIONS = re.compile(r"^By (.*)\.$", re.MULTILINE)
_DIFFERS = " with known T, else "

Answers = dict[str, str]
"""What one cell says: length -> answer."""
Table = dict[tuple[str, str, str], Answers]
"""(format, layer, backend) -> what the cell says."""


def read(page: str) -> Table:
    """Returns the tables of a page."""
    (text,) = _MARKED.findall(page)
    table: Table = {}
    for line in text.splitlines():
        if line.startswith("### "):
            form = line.removeprefix("### ")
        if line.startswith("| `"):
            layer, *texts = [part.strip() for part in line.strip("|").split("|")]
            for backend, told in zip(backends(form), texts, strict=True):
                table[form, layer, backend] = _answers(told)
    return table


def _answers(text: str) -> Answers:
    known, _, unknown = text.partition(_DIFFERS)
    return dict(zip(LENGTHS, (known, unknown or known), strict=True))


def _text(answers: Answers) -> str:
    known, unknown = answers.values()
    return known if known == unknown else f"{known}{_DIFFERS}{unknown}"


def written(page: str, table: Table) -> str:
    """Returns a page with these tables and the versions that are installed."""
    (before,) = _MARKED.findall(page)
    lines = []
    for form in FORMATS:
        titles = backends(form)
        lines += [f"### {form}", "", f"| | {' | '.join(titles)} |"]
        lines.append("|---|" + "---|" * len(titles))
        for layer in ROWS:
            texts = [_text(table[form, layer, backend]) for backend in titles]
            lines.append(f"| {layer} | {' | '.join(texts)} |")
        lines.append("")
    told = _VERSIONS.findall(before)
    lines += [f"By {_versions(told[0] if told else '')}.", ""]
    return _MARKED.sub(lambda _: "\n".join(lines), page)


def _versions(before: str) -> str:
    """Returns all packages with their versions; of one that is not installed, what stood there."""
    old = dict(part.split(" ") for part in before.split(", ") if part)
    by_form = [names for kind in PACKAGES.values() for names in kind.values()]
    packages = dict.fromkeys(["keras", "tensorflow", "jax", "torch", *sum(by_form, [])])
    told = {name: version(name) or old.get(name) for name in packages}
    return ", ".join(f"{name} {number}" for name, number in told.items() if number)


def measured(layer: str, tell: Callable[[str], object] = print) -> Table:
    """Runs a layer in each format of this backend and length, without and with a mask."""
    table: Table = {}
    for form in FORMATS:
        if BACKEND not in backends(form):
            continue
        answers = {
            length: cell(layer, form, length, masks=(False, True)) for length in LENGTHS
        }
        table[form, layer, BACKEND] = answers
        tell(f"{layer}: {form}: {_text(answers)}")
    return table


def main() -> None:
    """Measures the rows that the command line names, or all, and writes them."""
    # The converters say much; what counts is an exception.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    page = PAGE.read_text(encoding="utf-8")
    table = read(page)
    for layer in sys.argv[1:] or ROWS:
        table |= measured(layer)
    PAGE.write_text(written(page, table), encoding="utf-8")


if __name__ == "__main__":
    main()
