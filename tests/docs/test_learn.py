"""The programs of `docs/learn`, which are notebooks: they run, and are short."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

PROGRAM = ROOT / "docs/learn/watch.py"


def test_from_data_to_device_in_one_program(forks):
    """The program compares the stream and LiteRT with the whole pass."""
    pytest.importorskip("ai_edge_litert")
    small = os.environ | {"SECONDS": "0.1"}
    done = forks.run("-m", "docs.learn.watch", cwd=ROOT, env=small)
    assert done.returncode == 0, done.stderr[-3000:]
    assert " time steps: " not in done.stderr, "a layer does not see its series"
    sizes = re.findall(r"(\w+): 7\d,\d{3} parameters, \d+ training", done.stdout)
    assert sizes == ["trellis_layer", "gru"]
    assert done.stdout.count("of 320 windows of the test people") == 2
    paths = re.findall(r"(\S+\.tflite): [\d,]+ bytes of cache", done.stdout)
    assert [Path(path).stem for path in paths] == ["trellis", "lstm"]
    folder = Path(paths[0]).parent
    assert (folder / "watch.png").stat().st_size > 10_000
    shutil.rmtree(folder)


def test_a_notebook_that_fails_fails_the_site(tmp_path):
    """With the settings of mkdocs.yml."""
    pytest.importorskip("mkdocs_jupyter")
    settings = (ROOT / "mkdocs.yml").read_text()
    begin = settings.index("  - mkdocs-jupyter:")
    plugin = settings[begin : settings.index("  - mkdocstrings:")]
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: x\nuse_directory_urls: false\nplugins:\n{plugin}"
    )
    notebook = tmp_path / "docs/learn/notebook.py"
    notebook.parent.mkdir(parents=True)
    (tmp_path / "docs/index.md").write_text("# Home\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    for cell, status in (("print('is', 6 / 0)", 1), ("print('is', 6 * 7)", 0)):
        notebook.write_text(f"# %% [markdown]\n# # A title\n\n# %%\n{cell}\n")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        assert ("ZeroDivisionError" in done.stderr) == bool(status)
    pages = (tmp_path / "site/learn").rglob("*.html")
    assert any("is 42" in page.read_text() for page in pages)


NOTEBOOKS = sorted((ROOT / "docs/learn").glob("[a-z]*.py"))


def test_every_notebook_is_on_the_site():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert NOTEBOOKS and all(f"learn/{path.name}" in settings for path in NOTEBOOKS)


def test_the_program_is_short():
    lines = filter(None, PROGRAM.read_text().splitlines())
    assert sum(not line.startswith("# %%") for line in lines) <= 80
