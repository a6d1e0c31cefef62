"""The prose: how much there is, how long a sentence is, retired words, narrow tables."""

import re

import pytest
import yaml

from tests import ROOT

DOCS = ROOT / "docs"
WORDS = 21_000
"""The words of the site without its API pages, tables and code: some two hours of reading."""

HOW_TO_WORDS = 600
SENTENCE_WORDS = 45
COLUMNS = {"results": 5}
"""The widest table of a page, by its folder."""
ROWS = 6
"""The longest table of a page of results. Longer ones are a CSV file or a note beside the site."""

LONG_TABLES = {"results/index.md", "results/papers.md"}
"""What has a row for each page of results, or for each number of the papers."""

# Each pattern, and what to write instead.
RETIRED = {
    r"\bcom(?:es?|ing) to (?:a|an|the|\d)": "reach",
    r"\bcame to\b": "reached",
    r"\bformer(?:ly)?\b": "the note's place, or nothing",
    r"\bas it was\b": "nothing: the page says what is",
    r"\bis not kept\b": "nothing: a number whose program is gone goes, too",
    r"\bin the place of\b": "instead of, or replaces",
    r"\bwhole runs?\b": "runs to their end",
    r"\bas many parameters\b": "the same number of parameters",
    r"\bprocessor seconds?\b": "CPU seconds",
    r"\b(?:goes|go|going|went) on (?:from|with)\b": "resume",
    r"\bstands? (?:beside|there)\b": "is compared with, or is listed",
}


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags only mkdocs knows."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def leaves(entries):
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else leaves(value)


def navigation():
    return list(leaves(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]))


PAGES = [page for page in navigation() if not page.startswith("reference/")]
READ = [ROOT / "README.md", *(DOCS / page for page in PAGES)]


def markdown(path):
    """Returns a page's text, or that of the notebook's cells of text."""
    text = path.read_text()
    if path.suffix == ".py":
        cells = re.findall(r"^# %% \[markdown\]\n((?:^#.*\n)+)", text, re.MULTILINE)
        return "\n".join(
            re.sub(r"^# ?", "", cell, flags=re.MULTILINE) for cell in cells
        )
    return text


def prose(text):
    """Returns a text without its code, tables, pictures, equations and addresses."""
    text = re.sub(r"^(```|~~~).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4,}|\t)\S.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "code", text)


def count(text):
    return len(re.findall(r"\w[\w'’-]*", prose(text)))


def sentences(text):
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*] |\d+\. |#)", prose(text)):
        yield from re.split(r"(?<=[.:;?!])\s+", " ".join(paragraph.split()))


def tables(text):
    """Yields the number of columns and of rows of each table."""
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        lines = [line for line in table.splitlines() if line]
        yield len(re.findall(r"(?<!\\)\|", lines[0])) - 1, len(lines) - 2


def test_the_site_can_be_read_in_an_evening():
    counts = {page: count(markdown(DOCS / page)) for page in PAGES}
    assert sum(counts.values()) <= WORDS, sorted(
        counts.items(), key=lambda item: -item[1]
    )


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("howto/")])
def test_a_how_to_is_short(page):
    assert count(markdown(DOCS / page)) <= HOW_TO_WORDS


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.startswith("results/")]
)
def test_tables_fit_their_column(page):
    wide = [
        size for size in tables(markdown(DOCS / page)) if size[0] > COLUMNS["results"]
    ]
    long = [size for size in tables(markdown(DOCS / page)) if size[1] > ROWS]
    assert not wide
    assert page in LONG_TABLES or not long


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_words_and_sentences(path):
    text = markdown(path)
    found = [
        f"{match.group()!r}: write {instead}"
        for pattern, instead in RETIRED.items()
        for match in re.finditer(pattern, prose(text), re.IGNORECASE)
    ]
    found += [
        sentence for sentence in sentences(text) if count(sentence) > SENTENCE_WORDS
    ]
    assert not found


def test_what_is_counted():
    page = (
        "# A heading\n\nOne [link](to/a/page.md) and `code`.\n\n```\nno words here\n```\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n    indented code\n"
    )
    assert count(page) == 6
    assert list(tables(page)) == [(2, 1)]
    assert [s for s in sentences(page) if s] == ["# A heading", "One link and code."]
