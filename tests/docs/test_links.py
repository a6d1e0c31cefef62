"""The links between the repository's Markdown files, and from them to other files.

What is on the network is not asked for. The site's own links are checked as `make docs` builds it.
"""

import functools
import html.parser
from urllib.parse import unquote, urlsplit

import markdown
import pytest

from docs import site_links
from tests import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


class Page(html.parser.HTMLParser):
    """The addresses that a page has links to, and the anchors that links may lead to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(
            markdown.markdown(
                path.read_text(), extensions=["fenced_code", "tables", "toc"]
            )
        )

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value)
            elif name == "id":
                self.anchors.add(value)


parsed = functools.cache(Page)


def of_the_site(path):
    """Returns whether a page is in docs/ or in a folder of it."""
    return "docs" in [parent.name for parent in path.parents[:2]]


def broken(path):
    """Returns the links of a Markdown file that lead to no file, or to no heading of it."""
    found = []
    for link in parsed(path).links:
        address = urlsplit(link)
        target = path.parent / unquote(address.path) if address.path else path
        if address.scheme or address.netloc:
            continue
        # The site has files alone: mkdocs knows no folder.
        if not (target.is_file() or (target.is_dir() and not of_the_site(path))):
            found.append(link)
        elif address.fragment and address.fragment not in parsed(target).anchors:
            found.append(link)
    return found


@pytest.mark.parametrize(
    "path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_links_lead_somewhere(path):
    assert not broken(path)


def test_broken_links_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A heading\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-heading) [b](other.md#none) ![c](none.png) [d](https://none.invalid)\n"
        "[e](#here) [f](#there)\n\n```\n[g](none.md)\n```\n\n# Here\n"
    )
    assert broken(page) == ["other.md#none", "none.png", "#there"]


def test_a_page_of_the_site_links_to_no_folder(tmp_path):
    for folder in ("docs", "code"):
        (tmp_path / folder).mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("[code](../code)\n")
    assert broken(page) == ["../code"]
    elsewhere = tmp_path / "README.md"
    elsewhere.write_text("[code](code)\n")
    assert broken(elsewhere) == []


@pytest.mark.parametrize(
    ("link", "page", "expected"),
    [
        (
            "../trainers/lm.py",
            "theory.md",
            "https://a.invalid/blob/main/trainers/lm.py",
        ),
        ("../../README.md#a", "howto/b.md", "https://a.invalid/blob/main/README.md#a"),
        ("../theory.md#a", "howto/b.md", "../theory.md#a"),
    ],
)
def test_the_site_links_to_the_repository_where_an_address_is_set(link, page, expected):
    assert site_links.address(link, page, "https://a.invalid") == expected
