"""Tables of reports, in Markdown and in CSV."""

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from typing import Any


def markdown(
    titles: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[int] = (0, 1)
) -> str:
    """Returns a table in Markdown.

    Args:
        titles: of the columns.
        rows: a text for each column.
        left: the places of the columns that are left-aligned.
    """
    marks = ["---" if place in left else "---:" for place in range(len(titles))]
    return "\n".join(
        "| " + " | ".join(cells) + " |" for cells in (titles, marks, *rows)
    )


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Returns rows in CSV; the first has the titles."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
