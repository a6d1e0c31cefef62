"""The page that the server shows: files, which fetch nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

FILES: Mapping[str, tuple[str, str]] = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    **{
        f"/page/{name}.js": (f"{name}.js", "text/javascript")
        for name in ("commands", "page", "server", "tokens", "view")
    },
}
"""The file and the type of each path."""

HEADERS = {
    # Nothing but the page's own files; and no script may write HTML.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
"""What is sent with each file."""

_CARD = Path("assets.extra", "model_card.md")
# Of a card's table, whose cells have \\| for a bar.
_ROW = re.compile(r"^\| (.+?) \| (.*) \|$", re.MULTILINE)


def path_of(name: str) -> Path:
    """Returns where a file of the page is."""
    return Path(__file__).with_name(name)


def facts(folder: Path) -> dict[str, str]:
    """Returns the rows of the first table of a version's model card; none if it has no card."""
    try:
        text = (folder / _CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    table = text[text.find("\n|") :].partition("\n\n")[0]
    rows = ([cell.replace("\\|", "|") for cell in row] for row in _ROW.findall(table))
    return dict(rows)
