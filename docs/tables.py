"""The tables and the numbers of the documentation's pages."""

import re
from collections.abc import Iterator
from pathlib import Path

NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")


def rows(path: Path) -> Iterator[list[str]]:
    """Yields the cells of each row of each table of a page."""
    for line in path.read_text().splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def numbers(text: str) -> list[str]:
    """Returns the numbers of a text, without the commas of thousands."""
    return [each.replace(",", "") for each in NUMBER.findall(text)]
