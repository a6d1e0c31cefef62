"""Serves a model from the wheel, in an empty environment, by the commands of docs/howto/serve.md.

    python -m tests.serving.from_wheel DIST

DIST holds the wheel. The model is a small one of `tests.serving.models`, and must have its place.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright import sync_api

from tests import ROOT
from tools import browser

PORT = 8000
_PATIENCE = 30  # seconds for the server to start


def blocks():
    """Returns the commands: to install, to serve and to ask; and the program that asks."""
    page = (ROOT / "docs" / "howto" / "serve.md").read_text()
    begin, end = "<!-- from the wheel -->", "<!-- /from the wheel -->"
    part = page[page.index(begin) : page.index(end)]
    found = re.findall(r"^```(\w+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    assert [language for language, _ in found] == ["sh", "sh", "sh", "python3"], found
    return [text for _, text in found]


def run(commands, folder):
    """Runs shell commands; an error ends them."""
    subprocess.run(["bash", "-euxc", commands], cwd=folder, check=True)


def main(dist):
    install, serve, ask, program = blocks()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(dist, folder / "dist")
        command = [sys.executable, "-m", "tests.serving.models", folder, "tied"]
        subprocess.run(command, cwd=ROOT, check=True)
        (folder / "models").mkdir()
        (folder / "tied").rename(folder / "models" / "pydoc")
        run(install, folder)
        # Keras, which has no backend there, could not be imported.
        absent = "import importlib.util as u; assert not any(map(u.find_spec, "
        absent += "('tensorflow', 'jax', 'torch')))"
        subprocess.run([folder / "served/bin/python", "-c", absent], check=True)
        run("served/bin/pip install openai", folder)
        server = subprocess.Popen(["bash", "-euc", f"exec {serve}"], cwd=folder)
        try:
            wait()
            look()
            run(ask, folder)
            python = folder / "served" / "bin" / "python"
            subprocess.run([python, "-c", program], cwd=folder, check=True)
        finally:
            server.terminate()
            status = server.wait(60)
        assert status == 0, status


def look():
    """Opens the page, which must read its example."""
    with browser.open_page(f"http://127.0.0.1:{PORT}/") as page:
        status = page.locator("#status").get_by_text("Perplexity")
        sync_api.expect(status).to_be_visible(timeout=1000 * _PATIENCE)


def wait():
    """Waits until the server takes requests."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz"):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
