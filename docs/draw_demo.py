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
PROMPT = "the company said"
WAIT = 120_000  # milliseconds


def fill(page: sync_api.Page) -> None:
    """Asks for the surprise of a text, and for a text."""
    page.get_by_label("A text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Show the surprise").click()
    page.locator("#tokens [role=listitem]").get_by_text("violin").hover(timeout=WAIT)
    page.get_by_label("The text to go on from").fill(PROMPT)
    page.get_by_label("Seed").fill("1")
    page.get_by_label("Length in tokens").fill("60")
    page.get_by_role("button", name="Write").click()
    done = page.locator("#generate-status").get_by_text("Done")
    sync_api.expect(done).to_be_visible(timeout=WAIT)
    page.locator("#tokens [role=listitem]").get_by_text("violin").hover()


def draw(address: str, folder: Path) -> None:
    """Opens the page, uses it, and writes its pictures."""
    with browser.open_page(address, viewport={"width": 900, "height": 1100}) as page:
        fill(page)
        page.emulate_media(color_scheme="light")
        page.screenshot(path=folder / "demo.png", full_page=True)
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=folder / "demo_dark.png", full_page=True)


if __name__ == "__main__":
    draw(sys.argv[1], Path(__file__).parent)
