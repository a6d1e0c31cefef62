"""The scores of documents, which do not depend on their neighbours."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.scoring.scorer import ModelError, Scorer, Scores
from trainers.serving.exported import ExportedModel

WORDS = ["a", "b", "c", "é", "zebra", "\n"]


@pytest.fixture(scope="module")
def version(exports):
    return str(exports["words"])


@pytest.fixture(scope="module")
def scorer(version):
    return Scorer(version)


def close(found, expected):
    ours, theirs = (np.array(each, np.float64) for each in (found, expected))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)  # None is NaN


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
    answer = ExportedModel(version, ["score_v2"])(
        "score_v2", text=corpus, alternatives=[0] * len(corpus)
    )
    for place, found in enumerate(scorer(corpus)):
        nats, tokens = (float(answer[name][place]) for name in ("total", "count"))
        unknown = float(answer["unknown"][place])
        if not tokens:
            assert found == Scores(0, 0.0, None, None) and found.is_empty
            continue
        close(found, Scores(tokens, nats, np.exp(nats / tokens), unknown / tokens))
    assert found.tokens == 6 and found.unknown_share == 1 / 6


def test_a_text_that_the_model_refuses_does_not_stop_the_others(exports):
    scorer = Scorer(str(exports["adaptive"]))  # of characters, without <unk>
    good, bad, after = scorer(["ab", "xyz", "cd"])
    assert (good.tokens, after.tokens) == (2, 2)
    assert "made of symbols of the vocabulary" in str(bad)
    close(good, scorer(["ab"])[0])


class Altered:
    """A model that does something else where the words or ids of a call say so."""

    def __init__(self, model, change):
        self.model, self.change = model, change

    def __call__(self, signature, **inputs):
        self.change(signature, inputs)
        return self.model(signature, **inputs)


@pytest.fixture
def altered(scorer, monkeypatch):
    """Puts a function of a signature and its inputs before each call of the model."""

    def alter(change):
        made = Altered(scorer._model, change)
        monkeypatch.setattr(scorer, "_model", made)

    return alter


# Of the words "a b", as ids with the line break before them.
BAD = "a b"


def raising(error, when):
    def change(signature, inputs):
        if signature == "score_ids_v2" and when(inputs["ids"]):
            raise error

    return change


def test_a_text_that_makes_the_model_fail_does_not_stop_the_others(scorer, altered):
    corpus = [BAD, "c", BAD, "a", "", "zebra"]
    (bad,) = (row.ids for row in scorer._encode([BAD]))
    expected = scorer(["c", "a", "", "zebra"])

    def has_bad(ids):
        return any(np.array_equal(row[: len(bad)], bad) for row in ids)

    error = tf.errors.InternalError(None, None, "in the\nkernel")
    altered(raising(error, has_bad))
    found = scorer(corpus)
    for place in (0, 2):
        assert (
            str(found.pop(place - place // 2)) == "it cannot be scored: in the kernel"
        )
    for one, other in zip(found, expected, strict=True):
        close(one, other)


@pytest.mark.parametrize("texts", [["a"], ["a", "b"]])
def test_a_model_that_fails_whatever_it_reads_stops(scorer, altered, texts):
    error = tf.errors.InternalError(None, None, "no kernel")
    altered(raising(error, lambda ids: True))
    with pytest.raises(ModelError, match="the model fails: no kernel"):
        scorer(texts)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        OSError("no room"),
        tf.errors.ResourceExhaustedError(None, None, "no room"),
    ],
    ids=repr,
)
def test_what_no_text_is_to_blame_for_stops(scorer, altered, error):
    altered(raising(error, lambda ids: True))
    with pytest.raises(type(error), match="no room"):
        scorer(["a", "b"])


def test_a_score_that_is_not_finite_is_an_error(scorer, monkeypatch):
    class Broken:
        def __call__(self, signature, **inputs):
            answer = model(signature, **inputs)
            if signature == "score_ids_v2":
                answer["total"] = np.array([np.nan, *answer["total"][1:]], np.float32)
            return answer

    model = scorer._model
    monkeypatch.setattr(scorer, "_model", Broken())
    bad, good = scorer(["a", "b"])
    assert str(bad) == "its score is not finite: nan nats"
    assert isinstance(good, Scores)
