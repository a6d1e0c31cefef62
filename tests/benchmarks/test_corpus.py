"""The corpus of WikiText-103's size, made small."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import corpus
from tests.benchmarks.commands import run
from trainers.tasks import corpora


def test_has_the_tokens_and_words_asked_for(tmp_path):
    done = run("corpus", f"--output={tmp_path}", "--tokens=30000", "--words=900")
    assert done.returncode == 0, done.stderr
    loaded = corpora.load("wikitext103", tmp_path, tmp_path / "cache", order="frequency")
    assert loaded.vocabulary.size == 900
    lengths = len(loaded.train), len(loaded.validation), len(loaded.test)
    assert lengths == (30_000, 217_646, 245_569)
    assert loaded.vocabulary.eos_id < 10


def test_too_few_tokens_for_the_words(tmp_path):
    done = run("corpus", f"--output={tmp_path}", "--tokens=1000", "--words=900")
    assert done.returncode != 0
    assert "at least 2 * --words = 1800" in done.stderr
    assert "Received: --tokens=1000" in done.stderr


@example(words=5, more=11, seed=1, block=10)  # the last block has but the line break
@given(
    words=st.integers(4, 60),
    more=st.integers(0, 100),
    seed=st.integers(0, 99),
    block=st.integers(3, 70),
)
def test_every_word_occurs_whatever_the_blocks(words, more, seed, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_BLOCK", block)
        drawn = list(corpus.draw(2 * words + more, words, seed, every_word=True))
        again = list(corpus.draw(2 * words + more, words, seed, every_word=True))
    ranks = np.concatenate(drawn)
    np.testing.assert_array_equal(ranks, np.concatenate(again))
    assert len(ranks) == 2 * words + more
    assert set(ranks) == set(range(words))
    assert ranks[-1] == corpus._LINE_BREAK


def test_frequency_falls_as_zipf_says():
    ranks = next(corpus.draw(400_000, 5000, 1, every_word=False))
    counts = np.bincount(ranks)[:100]
    slope = np.polyfit(np.log(np.arange(1, 101) + corpus._SHIFT), np.log(counts), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)


def test_words_are_distinct():
    words = corpus.vocabulary(20_000)
    assert len(set(words)) == len(words)
    assert [word for word in words if word.isspace()] == ["\n"]
