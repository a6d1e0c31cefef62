"""The scores of documents, which do not depend on their neighbours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.scoring.scorer import Scorer, Scores
from trainers.serving.exported import ExportedModel

WORDS = ["a", "b", "c", "é", "zebra", "\n"]


@pytest.fixture(scope="module")
def version(exports):
    return str(exports["words"])


@pytest.fixture(scope="module")
def scorer(version):
    return Scorer(version)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


texts = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)


@settings(max_examples=40)
@given(st.lists(texts, max_size=40), st.integers(0, 700))
def test_a_score_does_not_depend_on_the_neighbours(scorer, corpus, long):
    corpus = [*corpus, "a b zebra " * long]
    for text, found in zip(corpus, scorer(corpus), strict=True):
        close(found, scorer([text])[0])


def test_scores_are_those_of_the_model(scorer, version):
    lengths = [0, 1, 2, 127, 128, 129, 300]  # a chunk has 128 tokens
    corpus = [" ".join((WORDS * 60)[:length]) for length in lengths]
    corpus.append("a\n\nzebra b\n")
    answer = ExportedModel(version, ["score"])("score", text=corpus)
    for place, found in enumerate(scorer(corpus)):
        nats, tokens = (float(answer[name][place]) for name in ("total", "count"))
        unknown = float(answer["unknown"][place])
        each = max(tokens, 1)
        close(found, Scores(tokens, nats, np.exp(nats / each), unknown / each))
    assert found.tokens == 6 and found.unknown_share == 1 / 6


def test_a_text_that_the_model_refuses_does_not_stop_the_others(exports):
    scorer = Scorer(str(exports["adaptive"]))  # of characters, without <unk>
    good, bad, after = scorer(["ab", "xyz", "cd"])
    assert (good.tokens, after.tokens) == (2, 2)
    assert "made of symbols of the vocabulary" in str(bad)
    close(good, scorer(["ab"])[0])


def test_a_score_that_is_not_finite_is_an_error(scorer, monkeypatch):
    class Broken:
        def __call__(self, signature, **inputs):
            answer = model(signature, **inputs)
            if signature == "score_ids":
                answer["total"] = np.array([np.nan, *answer["total"][1:]], np.float32)
            return answer

    model = scorer._model
    monkeypatch.setattr(scorer, "_model", Broken())
    bad, good = scorer(["a", "b"])
    assert str(bad) == "its score is not finite: nan nats"
    assert isinstance(good, Scores)
