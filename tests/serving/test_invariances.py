"""What must not change an answer of a language model's signatures, and which answers are equal."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.serving import models
from tests.serving.served import (
    SIGNATURES,
    assert_row,
    cache_of,
    ragged,
    rows_of,
    sampling,
)

V = len(models.WORDS)
EOS = models.WORDS.index("<eos>")
TEXTS = ["a b zz c\nd", "", "j i h g f e d c b a j", "b"]
PROMPTS = [[3, 1, 2], [EOS], [0, 7, 5, 4, 9], [6, 6]]


@pytest.fixture(scope="module")
def model(load):
    return load("tied")


@pytest.fixture(scope="module", params=["tied", "recurrent"])
def of_a_layer(request, load, keras_models):
    """A served model over each kind of layer, and the Keras model."""
    return load(request.param), keras_models[request.param]


@pytest.fixture(scope="module")
def characters(load):
    return load("adaptive")


@pytest.fixture(scope="module")
def batches(model):
    """A batch of four rows to each signature; those of `generate` differ in all settings."""
    prompts, read = ragged(PROMPTS), ragged([prompt[:-1] for prompt in PROMPTS])
    settings = sampling(
        4,
        temperature=[1, 0, 0.5, 2],
        top_k=[0, 0, 4, 2],
        top_p=[1, 0.5, 0.9, 1],
        seed=[1, 2, 3, -4],
        max_length=[9, 1, 4, 6],
        stop_ids=[[-1], [3], [-1], [5]],
        forbidden_ids=[[-1, -2], [0, 3], [-2, -2], [7, 7]],
    )
    step = {
        "ids": [each[-1] for each in PROMPTS],
        **cache_of(model("prefill_v2", read)),
    }
    return {
        "serving_default": {"text": TEXTS},
        "tokenize": {"text": TEXTS},
        "detokenize": prompts,
        "score_v2": {"text": TEXTS},
        "score_ids_v2": prompts,
        "prefill_v2": prompts,
        "step_v2": step,
        "generate_v2": {**prompts, **settings, **model.no_text(4)},
    }


def assert_same(actual, expected):
    """Asserts that answers to the same rows are the same but for padding."""
    assert {len(value) for value in actual.values()} == {
        len(value) for value in expected.values()
    }
    for row in range(len(next(iter(expected.values())))):
        assert_row(rows_of(actual, row), rows_of(expected, row))


@pytest.mark.parametrize("signature", SIGNATURES)
def test_neighbours_and_order_change_nothing(model, batches, signature):
    batch = {name: np.asarray(value) for name, value in batches[signature].items()}
    together = model(signature, batch)
    for rows in ([0], [1], [2], [3], [2, 0], [3, 2, 1, 0], [1, 1, 2, 1]):
        assert_same(model(signature, rows_of(batch, rows)), rows_of(together, rows))


@pytest.mark.parametrize("signature", ["score_ids_v2", "prefill_v2", "generate_v2"])
def test_padding_changes_nothing(model, batches, signature):
    batch = batches[signature]
    for width in (6, 127, 128, 129, 300):
        wide = {**batch, **ragged(PROMPTS, width)}
        assert_same(model(signature, wide), model(signature, batch))


@pytest.fixture(scope="module")
def long_rows():
    """Ids whose lengths stand around the edges of the chunks that are read at once."""
    random = np.random.default_rng(0)
    return [
        random.integers(V, size=size).tolist()
        for size in (1, 127, 128, 129, 256, 257, 400)
    ]


def test_a_score_is_that_of_one_pass(of_a_layer, long_rows):
    model, keras_model = of_a_layer
    answer = model("score_ids_v2", ragged(long_rows))
    for index, row in enumerate(long_rows):
        ids = np.array([row])
        nll = keras_model.score(ids[:, :-1], ids[:, 1:])[0] if len(row) > 1 else [[]]
        expected = np.concatenate([[0], nll[0]])
        assert_allclose(answer["nll"][index, : len(row)], expected, atol=1e-5)
        assert not answer["nll"][index, len(row) :].any()
        assert_allclose(answer["total"][index], expected.sum(), rtol=1e-5)
        assert answer["count"][index] == len(row) - 1


def test_text_is_scored_as_its_ids_after_a_line_break(model, batches):
    ids = model("tokenize", {"text": [f"\n{text}" for text in TEXTS]})
    by_ids, by_text = model("score_ids_v2", ids), model("score_v2", batches["score_v2"])
    assert_allclose(by_text["nll"], by_ids["nll"][:, 1:], atol=2e-6)
    assert_array_equal(by_text["count"], by_ids["count"])
    described = model("serving_default", batches["serving_default"])
    mean = by_text["total"] / np.maximum(by_text["count"], 1)
    assert_allclose(described["perplexity"], np.exp(mean), rtol=1e-5)
    log_probs = model("prefill_v2", ids)["log_probs"]
    best = np.argsort(-log_probs, axis=1)[:, :10]
    tokens = np.array(models.WORDS)[best]
    assert [
        [each.decode() for each in row] for row in described["next_tokens"]
    ] == tokens.tolist()
    probabilities = np.exp(np.take_along_axis(log_probs, best, axis=1))
    assert_allclose(described["next_probabilities"], probabilities, rtol=1e-5)


@hypothesis.given(
    row=st.lists(st.integers(0, V - 1), min_size=3, max_size=12), read=st.integers(0, 2)
)
@hypothesis.settings(max_examples=8)
def test_prefill_and_steps_are_a_longer_prefill(model, row, read):
    state = model("prefill_v2", ragged([row[:read]]))
    nll = 0.0
    for index, token in enumerate(row[read:], read):
        nll -= state["log_probs"][0, token] if index else 0
        state = model("step_v2", {"ids": [token], **cache_of(state)})
    assert_same(state, model("prefill_v2", ragged([row])))
    first = model("score_ids_v2", ragged([row[:read]]))["total"][0]
    assert_allclose(
        first + nll, model("score_ids_v2", ragged([row]))["total"][0], rtol=1e-5
    )


def test_one_call_of_generate_is_two(of_a_layer):
    model, _ = of_a_layer
    settings = sampling(2, temperature=[1, 0], seed=[7, 8])
    first = {**ragged(PROMPTS[1:3]), **settings, **model.no_text(2)}
    whole = model(
        "generate_v2", {**first, **sampling(2, **{**settings, "max_length": 7})}
    )
    for size in (1, 3):
        begun = model("generate_v2", {**first, "max_length": [size, size]})
        last = {"ids": begun["ids"][:, -1:], "lengths": [1, 1]}
        rest = {**last, **settings, "max_length": [7 - size] * 2, **cache_of(begun)}
        ended = model("generate_v2", rest)
        both = np.concatenate([begun["ids"], ended["ids"]], axis=1)
        assert_array_equal(both, whole["ids"])
        assert (begun["text"] + ended["text"] == whole["text"]).all()
        assert_same(cache_of(ended), cache_of(whole))


def test_generation_ends_at_the_stop_symbol(model):
    rows = 6
    free = {
        **ragged([[3, 1]] * rows),
        **sampling(rows, seed=range(rows), max_length=12),
    }
    free |= model.no_text(rows)
    endless = model("generate_v2", free)
    stops = endless["ids"][:, 5]
    ended = model("generate_v2", {**free, "stop_ids": stops[:, None]})
    for row, stop in enumerate(stops):
        size = endless["ids"][row].tolist().index(stop) + 1
        assert ended["lengths"][row] == size
        assert_array_equal(ended["ids"][row, :size], endless["ids"][row, :size])
        assert (ended["ids"][row, size:] == -1).all()
        # Its cache is that after all but the stop symbol, whatever the others did meanwhile.
        read = model("prefill_v2", ragged([[3, 1, *ended["ids"][row, : size - 1]]]))
        assert_same(rows_of(cache_of(ended), [row]), cache_of(read))


def test_what_is_forbidden_is_not_written(model):
    rows, unknown = 6, models.WORDS.index("<unk>")

    def written(*forbidden):
        request = {**ragged([[3, 1]] * rows), **model.no_text(rows)}
        settings = sampling(
            rows, seed=range(rows), max_length=30, forbidden_ids=forbidden
        )
        return model("generate_v2", {**request, **settings})["ids"]

    free = written(-2)
    assert unknown in free
    assert unknown not in written(-1)
    assert_array_equal(written(-1), written(unknown))
    allowed = [3, 5]
    assert {*written(*{*range(V)} - {*allowed}).flat} == {*allowed}
    assert_array_equal(written(), free)  # no column at all


def test_characters_have_no_unknown_word_to_forbid(characters):
    request = {**ragged([[3]]), **sampling(1, max_length=20), **characters.no_text(1)}
    forbidden = {**request, **sampling(1, max_length=20, forbidden_ids=-1)}
    free = characters("generate_v2", request)["ids"]
    assert_array_equal(characters("generate_v2", forbidden)["ids"], free)


def test_words_that_the_vocabulary_lacks_are_counted_and_told(model, characters):
    texts = ["a qwfp b\nzxcv", "<unk> a", "", "A qwfp qwfp"]
    answer = model("score_v2", {"text": texts})
    assert answer["unknown"].tolist() == [2, 0, 0, 3]
    for row, text in enumerate(texts):
        words = text.replace("\n", " <eos> ").encode().split()
        read = [word if word.decode() in models.WORDS else b"<unk>" for word in words]
        assert answer["words"][row].tolist() == words + [b""] * (5 - len(words))
        assert answer["tokens"][row].tolist() == read + [b""] * (5 - len(read))
    for signature in ("serving_default", "serve", "tokenize"):
        assert model(signature, {"text": texts})["unknown"].tolist() == [2, 0, 0, 3]
    answer = characters("score_v2", {"text": ["a é\n日"]})
    assert answer["unknown"] == 0
    assert answer["words"].tolist() == answer["tokens"].tolist()


UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SPACED = st.text(
    st.sampled_from("ab\n\r\t \x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u3000\u200b")
)


@hypothesis.given(texts=st.lists(UNICODE | SPACED, max_size=4))
@hypothesis.settings(max_examples=60)
def test_words_are_those_of_python(model, texts):
    answer = model(
        "tokenize", {"text": np.array([text.encode() for text in texts], object)}
    )
    unknown = models.WORDS.index("<unk>")
    for index, text in enumerate(texts):
        words = text.replace("\n", " <eos> ").split()
        ids = [
            models.WORDS.index(word) if word in models.WORDS else unknown
            for word in words
        ]
        assert answer["lengths"][index] == len(ids)
        assert answer["ids"][index, : len(ids)].tolist() == ids


@hypothesis.given(texts=st.lists(st.text("abcd é日\n", max_size=20), max_size=4))
@hypothesis.settings(max_examples=20)
def test_characters_are_those_of_python(characters, texts):
    answer = characters(
        "tokenize", {"text": np.array([text.encode() for text in texts], object)}
    )
    for index, text in enumerate(texts):
        ids = [
            models.CHARACTERS.index("<eos>" if each == "\n" else each) for each in text
        ]
        assert answer["ids"][index, : answer["lengths"][index]].tolist() == ids
