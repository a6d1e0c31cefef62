"""The corpus of WikiText-103's size, made small."""

import numpy as np
import pytest

from benchmarks import corpus
from tests.benchmarks.commands import run
from trainers.language import corpora


def test_has_the_tokens_and_words_asked_for(tmp_path, forks):
    done = run(forks, "corpus", f"--output={tmp_path}", "--tokens=30000", "--words=900")
    assert done.returncode == 0, done.stderr
    loaded = corpora.load(
        "wikitext103", tmp_path, tmp_path / "cache", order="frequency"
    )
    assert loaded.vocabulary.size == 900
    lengths = len(loaded.train), len(loaded.validation), len(loaded.test)
    assert lengths == (30_000, 217_646, 245_569)
    assert loaded.vocabulary.eos_id < 10


def test_too_few_tokens_for_the_words(tmp_path, forks):
    done = run(forks, "corpus", f"--output={tmp_path}", "--tokens=900", "--words=900")
    assert done.returncode != 0
    assert "more than --words = 900" in done.stderr
    assert "Received: --tokens=900" in done.stderr


def test_blocks_add_up_to_the_text():
    drawn = [len(ranks) for ranks in corpus.draw(2**21 + 5, 7, 1)]
    assert drawn == [2**20, 2**20, 5]


def test_frequency_falls_as_zipf_says():
    ranks = next(corpus.draw(400_000, 5000, 1))
    counts = np.bincount(ranks)[:100]
    slope = np.polyfit(np.log(np.arange(1, 101) + corpus._SHIFT), np.log(counts), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)


def test_words_are_distinct():
    words = corpus.vocabulary(20_000)
    assert len(set(words)) == len(words)
    assert [word for word in words if word.isspace()] == ["\n"]
