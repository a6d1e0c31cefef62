"""Chromium without a window."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

from playwright import sync_api

_NAMES = ("chromium", "google-chrome")
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def path() -> str | None:
    """Returns where Chromium is on this machine, None where it is not."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextlib.contextmanager
def open_page(address: str, **options: Any) -> Iterator[sync_api.Page]:
    """Opens a page in a browser of its own, which is closed at the end.

    Args:
        address: the page's.
        **options: of `playwright.sync_api.Browser.new_page`.
    """
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path(), args=_ARGUMENTS)
        try:
            page = browser.new_page(**options)
            page.goto(address)
            yield page
        finally:
            browser.close()
