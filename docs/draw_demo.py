"""Draws docs/demo.png and docs/demo_dark.png: `python -m docs.draw_demo ADDRESS`.

ADDRESS is what `python -m trainers.demo` printed, for a model of the Penn Treebank.
"""

import sys
from pathlib import Path

from playwright import sync_api

from tools import browser

TEXT = (
    "the company said it expects to report a loss for the third quarter\n"
    "analysts had expected the bank to raise its dividend\n"
    "the violin player sold his shares in a podcast startup"
)
WAIT = 120_000  # milliseconds


def fill(page: sync_api.Page) -> None:
    """Lets the model read a text and go on from it, and chooses a token."""
    page.locator("#text").fill(TEXT)
    page.get_by_label("Seed").fill("1")
    page.get_by_label("Length in tokens").fill("60")
    page.get_by_role("button", name="Write on").click()
    done = page.locator("#status").get_by_text("Done")
    sync_api.expect(done).to_be_visible(timeout=WAIT)
    page.get_by_role("option").get_by_text("violin").click()


def draw(address: str, folder: Path) -> None:
    """Opens the page, uses it, and writes its pictures."""
    with browser.open_page(address, viewport={"width": 1280, "height": 800}) as page:
        fill(page)
        page.emulate_media(color_scheme="light")
        page.screenshot(path=folder / "demo.png", full_page=True)
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=folder / "demo_dark.png", full_page=True)


if __name__ == "__main__":
    draw(sys.argv[1], Path(__file__).parent)
