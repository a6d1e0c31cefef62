"""The program of README.md shows the layer ahead of the one that it replaces."""

import re

from tests import ROOT

PAGE = (ROOT / "README.md").read_text()
# As in `.ci/run`, which runs it beside the wheel alone.
PROGRAM = re.search(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
SEEDS = "for seed in 1, 2, 3:"
SCORE = re.compile(r"^seed (\d), (\w+): ([\d.]+)%$", re.MULTILINE)


def test_the_trellis_layer_is_ahead_of_the_lstm(forks):
    """By one seed of the page; `docs.studies.long_series` measures all."""
    shorter = PROGRAM.replace(SEEDS, "for seed in [1]:")
    assert shorter != PROGRAM
    done = forks.run("-c", shorter, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    scores = {name: float(score) for _, name, score in SCORE.findall(done.stdout)}
    assert set(scores) == {"TrellisLayer", "LSTM"}, done.stdout
    assert scores["TrellisLayer"] > scores["LSTM"] + 20


def test_the_page_has_what_the_results_have():
    """There are the machine and the commit."""
    results = (ROOT / "docs/results/long_series.md").read_text()
    scores = SCORE.findall(PAGE)
    assert [(seed, name) for seed, name, _ in scores] == [
        (seed, name) for seed in "123" for name in ("TrellisLayer", "LSTM")
    ]
    for name in ("TrellisLayer", "LSTM"):
        printed = [score for _, layer, score in scores if layer == name]
        assert ", ".join(printed) in results


def test_the_notebook_has_the_series_of_this_program():
    notebook = (ROOT / "docs/learn/first_layer.py").read_text()

    def series(text):
        body = text[text.index("def vibrations") : text.index("[..., None], part")]
        return re.sub(r"  #.*", "", body)

    assert series(notebook) == series(PROGRAM)


def test_the_study_measures_this_program():
    series = PROGRAM[PROGRAM.index("def ") : PROGRAM.index(SEEDS)]
    assert series in (ROOT / "docs" / "studies" / "long_series.py").read_text()
