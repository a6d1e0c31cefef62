"""Tests of Python's reference text as a corpus."""

import builtins

import pytest

from trainers.data import pydoc

TOPICS = {
    "one": "Title\n*****\n\nIt's the “First”   built-in\nof 3.11, e.g. x == 1.\n\nShared text.\n",
    "two": "Shared text.\n\nOwn text...\n",
}


def test_words(monkeypatch):
    monkeypatch.setattr("pydoc_data.topics.topics", TOPICS)
    texts = pydoc.texts()
    assert texts["train"] == (
        'own text ...\ntitle\nit\'s the " first " built-in of N , e . g . x == N .\n'
        "shared text .\n"
    )
    assert texts["validation"] == texts["test"] == ""


def test_splits_of_the_installed_text():
    texts = pydoc.texts()
    sizes = {split: len(text) for split, text in texts.items()}
    total = sum(sizes.values())
    assert total > 200_000
    for split in ("validation", "test"):
        assert 0.05 * total < sizes[split] <= 0.1 * total
    assert texts == pydoc.texts()


def test_a_split_may_be_filled_to_the_last_character(monkeypatch):
    topics = {letter: 9 * letter for letter in "abcdefghij"}
    monkeypatch.setattr("pydoc_data.topics.topics", topics)
    sizes = {split: len(text) for split, text in pydoc.texts().items()}
    assert sizes == {"train": 80, "validation": 10, "test": 10}


def test_no_paragraph_stands_twice():
    lines = [line for text in pydoc.texts().values() for line in text.splitlines()]
    assert len(lines) == len(set(lines))


def test_python_without_the_text(monkeypatch):
    real = builtins.__import__

    def fake(name, *args, **kwargs):
        if name.startswith("pydoc_data"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fake)
    with pytest.raises(OSError, match="comes without it.*--task=text"):
        pydoc.texts()
