"""The program of README.md shows the layer ahead of the one that it replaces."""

import re

from tests import ROOT

PAGE = (ROOT / "README.md").read_text()
# As in `.ci/run`, which runs it beside the wheel alone.
PROGRAM = re.search(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
SETTINGS = "seed, seconds = 1, 15 "
SCORE = re.compile(r"^(\w+?)(?:_layer)?, ([\d,]+) parameters: ([\d.]+)%$", re.MULTILINE)


def test_the_trellis_layer_is_ahead_of_the_lstm(forks):
    """Of the seed of the page; `docs.studies.long_series` measures others."""
    shorter = PROGRAM.replace(SETTINGS, "seed, seconds = 1, 8 ")
    assert shorter != PROGRAM
    done = forks.run("-c", shorter, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    scores = {name: float(score) for name, _, score in SCORE.findall(done.stdout)}
    assert set(scores) == {"trellis", "lstm"}, done.stdout
    assert scores["trellis"] > scores["lstm"] + 10
    sizes = [int(size.replace(",", "")) for _, size, _ in SCORE.findall(done.stdout)]
    assert max(sizes) < 1.1 * min(sizes)


def test_the_notebook_has_the_series_of_this_program():
    notebook = (ROOT / "docs/learn/first_layer.py").read_text()

    def series(text):
        body = text[text.index("def vibrations") : text.index("[..., None], fault")]
        return re.sub(r"  #.*", "", body)

    assert series(notebook) == series(PROGRAM)


def test_the_study_measures_this_program():
    series = PROGRAM[PROGRAM.index("def ") : PROGRAM.index(SETTINGS)]
    assert series in (ROOT / "docs" / "studies" / "long_series.py").read_text()
