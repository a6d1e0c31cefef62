"""What a run of a language model shows to a person."""

import dataclasses
import re
import types
from pathlib import Path

import numpy as np
import pytest

from trainers import generate
from trainers.data.vocabulary import Vocabulary
from trainers.language import writing
from trainers.tasks import config as configs
from trainers.tasks import registry

RESULTS = Path(__file__).parents[3] / "docs/notes/runs.md"


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Returns the text of a model that writes the given tokens."""

    def written(task, text, prompt=""):
        tokens = registry.get(task).list_tokens(text)
        vocabulary = Vocabulary(dict.fromkeys([*tokens, "<eos>"]))

        def generate(ids, max_length, **_):
            return np.array([[*ids[0], *vocabulary.encode(tokens)[len(ids[0]) :]]])

        model = types.SimpleNamespace(generate=generate)
        trained = (model, vocabulary, configs.load(task, "small"))
        monkeypatch.setattr(writing, "load_trained", lambda path: trained)
        return writing.generate(tmp_path, prompt, len(tokens))

    return written


def test_characters_end_with_a_whole_word(written):
    assert written("ptb_char", "it 's n't th", "it") == "it'sn't"
    assert written("ptb_char", "a company\nth", "a ") == "a company"
    assert written("ptb_char", "the compa", "the com") == "the compa"


def test_words_have_the_spaces_of_print(written):
    text = 'the method " close ( ) " is called .\nand so on'
    assert written("pydoc", text, "the") == 'the method "close()" is called.\nand so on'


def test_a_terminal_breaks_no_word(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    text = "well-known words " * 9 + "\n\n" + 30 * "x" + " ends"
    lines = generate._wrapped(text).split("\n")
    assert " ".join(lines).split() == text.split() and "" in lines
    assert max(len(line) for line in lines if "x" not in line) <= 20
    assert generate._wrapped("\x1b[2J é") == r"\x1b[2J é"


def test_measured_results_are_those_of_the_page():
    rows = re.findall(
        r"^\| `(\w+)`.*`(small_lstm)` \| ([\d, to]+) \| ([\d.]+) ± ([\d.]+) ",
        RESULTS.read_text(),
        re.MULTILINE,
    )
    found = {}
    for task, preset, seeds, value, deviation in rows:
        first, last = re.findall(r"\d+", seeds)[:: len(re.findall(r"\d+", seeds)) - 1]
        found[task] = (
            preset,
            float(value),
            float(deviation),
            int(last) - int(first) + 1,
        )
    every = {name: registry.get(name) for name in registry.trained_by("trainers.lm")}
    kept = {
        name: dataclasses.astuple(each)[:4]
        for name, task in every.items()
        for each in task.measured
    }
    assert kept == found and len(found) == 3


def test_a_result_is_of_the_text_that_was_measured():
    (measured,) = registry.get("pydoc").measured
    own = {**measured.sha256, "validation": "another"}
    assert measured.matches(own, measured.tokens)
    assert not measured.matches(own, measured.tokens + 1)
    assert not measured.matches({**own, "train": "another"}, measured.tokens)
