"""The program of README.md shows the layer ahead of the one that it replaces."""

import csv
import re

from tests import ROOT

PAGE = (ROOT / "README.md").read_text()
# As in `.ci/run`, which runs it beside the wheel alone.
PROGRAM = re.search(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
SEEDS = "for seed in 1, 2, 3:"
SCORE = re.compile(r"^seed (\d), (\w+): ([\d.]+)%$", re.MULTILINE)
# What the page says that it prints.
RANGES = re.search(
    r"(\d+) to (\d+) % for the trellis\s+network and (\d+) to (\d+) % for\s+the LSTM",
    PAGE,
)


def test_the_trellis_layer_is_ahead_of_the_lstm(forks):
    """By one seed of the page; `docs.studies.long_series` measures all."""
    shorter = PROGRAM.replace(SEEDS, "for seed in [1]:")
    assert shorter != PROGRAM
    done = forks.run("-c", shorter, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert " time steps: " not in done.stderr, "a layer does not see its series"
    scores = {name: float(score) for _, name, score in SCORE.findall(done.stdout)}
    assert set(scores) == {"TrellisLayer", "LSTM"}, done.stdout
    assert scores["TrellisLayer"] > scores["LSTM"] + 20


def test_the_page_has_the_range_of_what_was_measured():
    """The results name the machines and the commits."""
    results = (ROOT / "docs/results/long_series.md").read_text()
    (printed,) = re.findall(
        r"README's program printed (.*?) % for .*? and (.*?) %", results
    )
    with (ROOT / "docs/studies/long_series.csv").open() as file:
        measured = [row for row in csv.DictReader(file) if row["seconds"] == "8.0"]
    ranges = [float(end) for end in RANGES.groups()]
    for (least, most), numbers, layer, rate in zip(
        [ranges[:2], ranges[2:]],
        printed,
        ("trellis", "lstm"),
        ("0.01", "0.001"),
        strict=True,
    ):
        scores = [float(number) for number in numbers.split(", ")]
        scores += [
            100 * float(row["test"])
            for row in measured
            if (row["layer"], row["rate"]) == (layer, rate)
        ]
        assert len(scores) == 6
        assert least <= min(scores) and max(scores) <= most
        assert most - least < 20, "a range that says something"


def test_the_notebook_has_the_series_of_this_program():
    notebook = (ROOT / "docs/learn/first_layer.py").read_text()

    def series(text):
        body = text[text.index("def vibrations") : text.index("[..., None], part")]
        return re.sub(r"  #.*", "", body)

    assert series(notebook) == series(PROGRAM)


def test_the_study_measures_this_program():
    series = PROGRAM[PROGRAM.index("def ") : PROGRAM.index(SEEDS)]
    assert series in (ROOT / "docs" / "studies" / "long_series.py").read_text()
