"""A hook of mkdocs: links out of the site lead to the repository's files.

Out of the site are the files out of docs/ and the logs in docs/notes. Where an address is set, as
`repo_url`, which mkdocs.yml takes from KERAS_TRELLIS_URL, links lead there; else to the files of
the clone that the site was built in, which has the site beside docs/.
"""

import posixpath
import re
from typing import Any
from urllib.parse import urlsplit

_LINK = re.compile(r"(?<=\]\()((?:\.\.?|notes)/[^)\s]+)(?=\))")


def address(link: str, page: str, url: str) -> str:
    """Returns where a relative link of a page leads.

    Args:
        link: as the page has it.
        page: the page's path in docs/.
        url: the repository's address, without a slash at its end; empty: none.
    """
    parts = urlsplit(link)
    folder = posixpath.dirname(page)
    path = posixpath.normpath(posixpath.join("docs", folder, parts.path))
    if path.startswith("docs/") and not path.startswith("docs/notes/"):
        return link
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    if url:
        return f"{url}/blob/main/{path}{fragment}"
    return posixpath.relpath(path, posixpath.join("site", folder)) + fragment


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replaces the links of a page; mkdocs calls it."""
    url, path = (config.repo_url or "").rstrip("/"), page.file.src_uri
    return _LINK.sub(lambda match: address(match[0], path, url), markdown)
