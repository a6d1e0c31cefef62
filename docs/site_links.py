"""A hook of mkdocs: links out of docs/ lead to the repository's files, where an address is set.

Without `repo_url`, which mkdocs.yml takes from KERAS_TRELLIS_URL, they stay relative paths: they
lead to the files of the clone that the site was built in.
"""

import posixpath
import re
from typing import Any
from urllib.parse import urlsplit

_LINK = re.compile(r"(?<=\]\()(\.\.?/[^)\s]+)(?=\))")


def address(link: str, page: str, url: str) -> str:
    """Returns where a relative link of a page leads.

    Args:
        link: as the page has it.
        page: the page's path in docs/.
        url: the repository's address, without a slash at its end.
    """
    parts = urlsplit(link)
    folder = posixpath.dirname(f"docs/{page}")
    path = posixpath.normpath(posixpath.join(folder, parts.path))
    if path.startswith("docs/"):
        return link
    return f"{url}/blob/main/{path}" + (f"#{parts.fragment}" if parts.fragment else "")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replaces the links of a page; mkdocs calls it."""
    if not config.repo_url:
        return markdown
    url, path = config.repo_url.rstrip("/"), page.file.src_uri
    return _LINK.sub(lambda match: address(match[0], path, url), markdown)
