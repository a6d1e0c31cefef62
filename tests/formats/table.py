"""Writes the table of formats in docs/reference/formats.md.

python -m tests.formats.table            # every cell: some ten minutes
python -m tests.formats.table '`SRU`'    # the rows that are named, the others as they are
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
from tests.formats.runtimes import FORMATS, versions

PAGE = ROOT / "docs/reference/formats.md"
_MARKED = re.compile("(?<=<!-- table -->\n).*(?=<!-- /table -->)", re.DOTALL)
_DIFFERS = " with known T, else "

Answers = dict[str, str]
"""What one cell says: length -> answer."""


def read(page: str) -> dict[str, dict[str, Answers]]:
    """Returns the table of a page: layer -> format -> answers."""
    (text,) = _MARKED.findall(page)
    rows = {}
    for line in text.splitlines()[2:]:
        if not line.startswith("|"):
            break
        layer, *texts = [each.strip() for each in line.strip("|").split("|")]
        answers = map(_answers, texts)
        rows[layer] = dict(zip(FORMATS, answers, strict=True))
    return rows


def _answers(text: str) -> Answers:
    known, _, unknown = text.partition(_DIFFERS)
    return dict(zip(LENGTHS, (known, unknown or known), strict=True))


def _text(answers: Answers) -> str:
    known, unknown = answers.values()
    return known if known == unknown else f"{known}{_DIFFERS}{unknown}"


def written(page: str, rows: dict[str, dict[str, Answers]]) -> str:
    """Returns a page with these rows and the versions that are installed."""
    lines = [f"| | {' | '.join(FORMATS)} |", "|---|" + "---|" * len(FORMATS)]
    for layer in ROWS:
        texts = map(_text, rows[layer].values())
        lines.append(f"| {layer} | {' | '.join(texts)} |")
    table = "\n".join([*lines, "", f"By {versions()}.", ""])
    return _MARKED.sub(lambda _: table, page)


def measured(layer: str, tell: Callable[[str], object] = print) -> dict[str, Answers]:
    """Runs a layer in each format and length, without and with a mask."""
    found: dict[str, Answers] = {}
    for form in FORMATS:
        found[form] = {}
        for length in LENGTHS:
            found[form][length] = cell(layer, form, length, masks=(False, True))
        tell(f"{layer}: {form}: {_text(found[form])}")
    return found


def main() -> None:
    """Measures the rows that the command line names, or all, and writes them."""
    # The converters say much; what counts is an exception.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    page = PAGE.read_text(encoding="utf-8")
    rows = read(page)
    for layer in sys.argv[1:] or ROWS:
        rows[layer] = measured(layer)
    PAGE.write_text(written(page, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
