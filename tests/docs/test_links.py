"""The links between the repository's Markdown files, and from them to other files.

What is on the network is not asked for. The site's own links are checked as `make docs` builds it.
"""

import functools
import html.parser
import re
import types
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


def test_the_logs_that_programs_name_exist():
    named = {
        (path.relative_to(ROOT).as_posix(), log)
        for folder in ("benchmarks", "configs", "docs", "tests", "trainers")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "test_links.py"  # its own examples
        for log in re.findall(r"docs/notes/\w+\.md", path.read_text())
    }
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / name[1]).is_file()]


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
    "link, page, at_url, in_clone",
    [
        ("../trainers/lm.py", "a.md", "trainers/lm.py", "../trainers/lm.py"),
        ("../../README.md#a", "howto/b.md", "README.md#a", "../../README.md#a"),
        ("notes/c.md#a", "a.md", "docs/notes/c.md#a", "../docs/notes/c.md#a"),
        ("../notes/c.md", "howto/b.md", "docs/notes/c.md", "../../docs/notes/c.md"),
    ],
)
def test_a_link_out_of_the_site_leads_to_the_repository(link, page, at_url, in_clone):
    url = "https://a.invalid"
    assert site_links.address(link, page, url) == f"{url}/blob/main/{at_url}"
    assert site_links.address(link, page, "") == in_clone


@pytest.mark.parametrize("url", ["https://a.invalid", ""])
def test_a_link_within_the_site_stays(url):
    assert site_links.address("../theory.md#a", "howto/b.md", url) == "../theory.md#a"


@pytest.mark.parametrize("page", ["faq.md", "howto/stores.md"])
def test_every_link_to_a_note_leaves_the_site(page):
    text = (ROOT / "docs" / page).read_text()
    file = types.SimpleNamespace(src_uri=page)
    built = site_links.on_page_markdown(
        text,
        page=types.SimpleNamespace(file=file),
        config=types.SimpleNamespace(repo_url=None),
    )
    assert text.count("notes/") == built.count("docs/notes/") > 0
