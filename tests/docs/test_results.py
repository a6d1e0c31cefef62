"""Numbers that two places have are the same: tables and the pages that they link to."""

import csv
import re
from pathlib import Path

import pytest

from configs import papers
from docs import draw_results, tables
from tests import ROOT

DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
# What the front pages claim, each cell with a link to the page that measured it.
FRONT = [ROOT / "README.md", DOCS / "which_layer.md", DOCS / "index.md"]
PAGES = sorted(RESULTS.glob("*.md"))
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def linked(text, folder):
    """Returns the files of ours that a text links to."""
    paths = (
        (folder / link).resolve() for link in LINK.findall(text) if "://" not in link
    )
    return [path for path in paths if path.suffix in (".csv", ".md")]


def text_of(source):
    text = source.read_text()
    if source.suffix == ".csv":  # whose commas are none of thousands
        return text.replace(",", "\n")
    return without_links(text)


def without_links(text):
    return re.sub(r"\]\([^)]*\)", "]", text)


def unsupported(claimed, sources):
    """Returns the numbers of a text that no source has, in as many digits or in more."""
    known = tables.numbers("\n".join(map(text_of, sources)))
    return [
        number
        for number in tables.numbers(without_links(claimed))
        if not has(known, number)
    ]


def has(known, number):
    decimals = len(number.partition("e")[0].partition(".")[2])
    return number in known or any(
        float(number) == round(float(each), decimals) for each in known if "." in each
    )


def test_the_papers_numbers_are_those_of_the_rows():
    """A line names rows of `configs/papers.py`, and has their numbers and their sizes."""
    named = []
    for what, rows, published, _, ran in tables.rows(RESULTS / "papers.md"):
        names = re.findall("`([^`]+)`", rows)
        own = [papers.ROWS[name] for name in names]
        values = [row.published for row in own if row.published is not None]
        if names:
            assert [float(each) for each in published.split(", ") if each] == values
            sizes = {size for row in own for size in re.findall(r"[\d.]+M", row.what)}
            assert set(re.findall(r"[\d.]+M", what)) == sizes, what
            assert ran
        named += names
    tables_of = ("Bai et al. 2019, Table", "Kuo et al. 2020, Table II")
    expected = [
        name for name, row in papers.ROWS.items() if row.table.startswith(tables_of)
    ]
    assert len(named) == len({*named}) and {*expected} <= {*named}


@pytest.mark.parametrize("page", FRONT, ids=lambda page: page.name)
def test_a_claim_has_the_numbers_of_the_page_behind_it(page):
    for row in tables.rows(page):
        for cell in row:
            sources = [
                path for path in linked(cell, page.parent) if path.parent == RESULTS
            ]
            if sources:
                assert not unsupported(cell, sources), cell


def test_a_number_in_a_link_is_on_the_page_that_it_leads_to():
    everywhere = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    for page in everywhere:
        for text, link in re.findall(
            r"\[([^\[\]]*\d[^\[\]]*)(\]\([^)]+\))", page.read_text()
        ):
            for source in linked(link, page.parent):
                if source.parent == RESULTS:
                    assert not unsupported(text, [source]), (page, text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_has_the_numbers_of_the_notes_behind_it(page):
    text = page.read_text()
    sources = [path for path in linked(text, RESULTS) if path.parent != RESULTS]
    cells = " | ".join(cell for row in tables.rows(page) for cell in row)
    assert not unsupported(cells, sources)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_how_it_was_measured(page):
    if page.name == "index.md":
        return
    text = page.read_text()
    measured = text.partition("## Measured\n")[2]
    assert "```" in measured and re.search(r"\b[0-9a-f]{7}\b", measured)
    assert re.search(r"\b2026-\d\d-\d\d\b", measured)


def prose(page):
    """A page's text on one line."""
    return " ".join((RESULTS / page).read_text().split())


def test_where_a_trellis_network_is_ahead_is_where_the_table_of_lengths_has_it():
    with (DOCS / "benchmarks" / "lengths.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == "outputs"]

    def ratios(contender, channels):
        return {
            int(row["time_steps"]): float(row["ratio_median"])
            for row in rows
            if (row["contender"], row["channels"]) == (contender, str(channels))
        }

    assert {row["batch_size"] for row in rows} == {"2"}
    assert "does so with all outputs too" in prose("index.md")
    assert "ahead of Keras's LSTM, and behind all others" in prose("length.md")
    for channels in (64, 256):
        ours = ratios("trellis", channels)
        assert max(ours.values()) < 1
        for other in ("tcn", "sru", "torch"):
            theirs = ratios(other, channels)
            assert theirs.keys() == ours.keys()
            assert all(ours[steps] > ratio for steps, ratio in theirs.items())


def test_who_has_the_lower_error_of_the_memory_tests():
    _, *rows = tables.rows(RESULTS / "memory.md")
    names, adding, _, copying, _ = zip(*rows, strict=True)
    numbers = [
        [float(re.search(r"0\.\d+", cell)[0]) for cell in column]
        for column in (adding, copying)
    ]
    best = [names[column.index(min(column))] for column in numbers]
    assert best == ["GRU", "TCN"]
    said = "On adding the GRU's error is lower (no significant difference), on copy memory the"
    assert f"{said} TCN's." in prose("index.md")


def test_our_networks_of_text_have_an_eighth_of_the_papers_parameters_or_less():
    sizes = {
        (cells[0].strip("`"), name): int(cells[2].replace(",", ""))
        for cells in tables.rows(DOCS / "notes" / "parameters.md")
        for name in re.findall(r"`(\w+)`", cells[1])
    }
    assert sizes["ptb", "small"] <= sizes["ptb", "paper"] / 8
    assert sizes["ptb_mos", "small"] <= sizes["ptb_mos", "paper"] / 8
    assert sizes["ptb_char", "small"] <= sizes["ptb_char", "paper"] / 20
    assert "text networks have an eighth of the parameters or less" in prose(
        "papers.md"
    )


def test_each_picture_is_drawn_and_shown():
    drawn = {f"{picture.__name__}.png" for picture in draw_results.PICTURES}
    there = {path.name for path in RESULTS.glob("*.png")}
    shown = {
        Path(link).name
        for page in PAGES
        for link in re.findall(r"\]\((\w+\.png)\)", page.read_text())
    }
    assert drawn == there == shown


@pytest.mark.parametrize(
    "picture", draw_results.PICTURES, ids=lambda each: each.__name__
)
def test_the_numbers_of_a_picture_are_there(picture):
    assert picture().axes


def test_another_number_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("| 95.52 | 1,792 |\n[2](3.md)\n")
    assert unsupported("[95.5](page.md), 1,792, 95.4, 3 and 1792", [page]) == [
        "95.4",
        "3",
    ]
