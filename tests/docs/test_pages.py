"""The documentation: its examples run, and its reference has every public name."""

import re

import keras
import pytest

import keras_trellis
from keras_trellis import convert, heads, recurrent, testing
from tests import ROOT

DOCS = ROOT / "docs"
# What has no wheel for every Python.
NEEDS = {
    "howto/device.md": ("ai_edge_litert",),
    "howto/onnx.md": ("onnxruntime", "openvino", "tf2onnx"),
}


def program(text):
    """Returns a page's ```python blocks as one program, each line at its number in the page."""
    lines, inside = [], False
    for line in text.splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = line == "```python" if fence else inside
    return "\n".join(lines)


PROGRAMS = {
    path.relative_to(DOCS).as_posix(): program(path.read_text())
    for path in sorted(DOCS.rglob("*.md"))
    if path.parent != DOCS / "notes"  # whose programs measure for minutes
}


@pytest.mark.parametrize(
    "page", [page for page, text in PROGRAMS.items() if text.strip()]
)
@pytest.mark.usefixtures("quiet_library")
def test_the_examples_run(page, tmp_path, monkeypatch):
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module)
    monkeypatch.setenv("CI", "true")  # else OpenVINO tells its makers
    monkeypatch.chdir(tmp_path)
    keras.utils.set_random_seed(0)
    exec(compile(PROGRAMS[page], DOCS / page, "exec"), {})


def test_a_program_keeps_its_lines():
    page = "Text\n```\nshell\n```\n```python\na = 1\n```\n```python\n\nb = a\n```\n"
    assert program(page).split("\n") == [
        "",
        "",
        "",
        "",
        "",
        "a = 1",
        "",
        "",
        "",
        "b = a",
        "",
    ]


@pytest.mark.parametrize("module", [keras_trellis, heads, convert, recurrent, testing])
def test_the_reference_has_every_public_name(module):
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    entries = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    names = {entry.rpartition(".")[2] for entry in entries}
    assert set(module.__all__) <= names
