"""What no client should send gets an error that says what is wrong, or a right answer."""

import re

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tests.serving import models
from tests.serving.served import ragged, rows_of, sampling

LOW, HIGH = np.iinfo(np.int32).min, np.iinfo(np.int32).max
NAN, INF = float("nan"), float("inf")
TEXT = ("serving_default", "serve", "tokenize", "score_v2")
IDS = ("score_ids_v2", "prefill_v2")


@pytest.fixture(scope="module")
def words(load):
    return load("tied")


@pytest.fixture(scope="module")
def characters(load):
    return load("adaptive")


@pytest.fixture(scope="module")
def sequences(load):
    return load("sequences")


@pytest.fixture(scope="module")
def good(words):
    """A request of two rows to each signature that takes more than text."""
    cache = words.no_text(2)
    ids = ragged([[1, 2], [3]])
    return {
        "score_ids_v2": {**ids, "alternatives": np.array([0, 2])},
        "prefill_v2": ids,
        "step_v2": {"ids": np.array([1, 2]), **cache},
        "generate_v2": {**ids, **sampling(2), **cache},
    }


def refused(model, signature, request, *parts):
    """Asserts that a request is an invalid argument, and that the message has these parts."""
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        model(signature, request)
    for part in parts:
        assert part in str(error.value)


def test_no_rows(words, characters, sequences, good):
    for model in (words, characters):
        for signature in TEXT:
            answer = model(signature, {"text": np.array([], object)})
            assert {len(value) for value in answer.values()} == {0}
    for signature, request in good.items():
        answer = words(signature, rows_of(request, slice(0)))
        assert {len(value) for value in answer.values()} == {0}
        assert words.inputs(signature).keys() == request.keys()
    answer = sequences(
        "serve", {"sequences": np.zeros([0, 4, 2]), "lengths": np.zeros([0])}
    )
    assert {len(value) for value in answer.values()} == {0}


@pytest.mark.parametrize("text", ["", " ", "\t \r\x0b\u3000"])
def test_text_without_tokens(words, text):
    answer = words("serving_default", {"text": [text]})
    assert answer["perplexity"] == 1
    first = words("prefill_v2", ragged([[models.WORDS.index("<eos>")]]))["log_probs"][0]
    assert_allclose(
        answer["next_probabilities"][0], np.sort(np.exp(first))[::-1][:10], rtol=1e-5
    )
    answer = words("score_v2", {"text": [text]})
    assert (
        answer["nll"].shape == (1, 0) and answer["total"] == 0 and answer["count"] == 0
    )


@pytest.mark.parametrize(
    "text", [b"\xff\xfe", b"a\xc3", b"\x80", b"zz", b"\x00", b"a\x00b"]
)
def test_unknown_tokens(words, characters, text):
    answer = words("score_v2", {"text": [text, b"a zz b"]})
    told = text.decode(errors="replace").encode()
    assert answer["words"].tolist() == [[told, b"", b""], [b"a", b"zz", b"b"]]
    assert answer["unknown"].tolist() == [1, 1]
    answer = words("tokenize", {"text": [text, b"a zz b"]})
    unknown = models.WORDS.index("<unk>")
    assert answer["ids"].tolist() == [[unknown, 0, 0], [0, unknown, 1]]
    assert answer["lengths"].tolist() == [1, 3]
    # Without <unk> it is an error.
    for signature in TEXT:
        refused(
            characters,
            signature,
            {"text": [b"ab", text]},
            "`text`",
            "symbols of the vocabulary",
        )


@pytest.mark.parametrize("signature", IDS)
@pytest.mark.parametrize("bad", [-1, len(models.WORDS), LOW, HIGH])
def test_ids_and_lengths_out_of_range(words, signature, bad):
    refused(words, signature, ragged([[1], [2, bad]]), "`ids`", "[0, 12)", f"[{bad}]")
    lengths = {"ids": np.ones([2, 2]), "lengths": [1, bad]}
    refused(
        words,
        signature,
        lengths,
        "`lengths`",
        "from 0 to the number of columns",
        f"[{bad}]",
    )


def test_ids_after_a_rows_end_are_not_read(words):
    for signature in IDS:
        one = words(signature, {"ids": [[1, 2, HIGH]], "lengths": [2]})
        other = words(signature, {"ids": [[1, 2, 3]], "lengths": [2]})
        for name, value in one.items():
            assert_array_equal(value, other[name])


@pytest.mark.parametrize(
    "name, bad, expected",
    [
        ("ids", -1, "in [0, 12)"),
        ("ids", 12, "in [0, 12)"),
        ("lengths", 0, "from 1 to the number of columns"),
        ("lengths", 3, "from 1 to the number of columns"),
        ("lengths", LOW, "from 1 to the number of columns"),
        *(
            ("temperature", bad, "a number of at least 0")
            for bad in (-1, NAN, INF, -INF)
        ),
        *(("top_k", bad, "at least 0") for bad in (-1, LOW)),
        *(("top_p", bad, "in (0, 1]") for bad in (0, -1, 1.5, NAN, INF)),
        *(("max_length", bad, "from 1 to 65536") for bad in (0, -1, LOW, 65537, HIGH)),
        *(("stop_ids", bad, "-1 (none) or in [0, 12)") for bad in (-2, 12, LOW, HIGH)),
        *(
            ("forbidden_ids", bad, "-1 (<unk>), -2 (nothing) or in [0, 12)")
            for bad in (-3, 12, LOW, HIGH)
        ),
        *(
            ("cache_steps", bad, "from 0 to 1073741824")
            for bad in (-1, 2**30 + 1, HIGH)
        ),
        ("cache_levels_0", NAN, "less than 1e18"),
        ("cache_levels_1", INF, "less than 1e18"),
        ("cache_levels_0", -1e19, "less than 1e18"),
        ("cache_inputs", 3e38, "less than 1e18"),
    ],
)
def test_a_bad_value_of_generate(words, good, name, bad, expected):
    request = {**good["generate_v2"], name: np.array(good["generate_v2"][name], float)}
    request[name][1:] = bad
    refused(words, "generate_v2", request, f"`{name}`", expected, "Received")
    if name in good["step_v2"] and not (name == "ids" and bad == 12):
        step = {**good["step_v2"], name: np.array(good["step_v2"][name], float)}
        step[name][1:] = bad
        refused(words, "step_v2", step, f"`{name}`", expected, "Received")


def test_all_tokens_forbidden(words, characters, good):
    everything = [-1, *(index for index in range(12) if models.WORDS[index] != "<unk>")]
    forbidden = {**sampling(2, forbidden_ids=[[-2] * 12, everything])}
    request = {**good["generate_v2"], **forbidden}
    refused(words, "generate_v2", request, "`forbidden_ids`", "less than all 12 tokens")
    forbidden["forbidden_ids"] = forbidden["forbidden_ids"][:, 1:]  # all but <unk>
    request = {**good["generate_v2"], **forbidden}
    assert {*words("generate_v2", request)["ids"][1]} == {models.WORDS.index("<unk>")}
    size = len(models.CHARACTERS)
    settings = sampling(1, forbidden_ids=range(size))
    request = {**ragged([[1]]), **settings, **characters.no_text(1)}
    refused(
        characters,
        "generate_v2",
        request,
        "`forbidden_ids`",
        f"less than all {size} tokens",
    )


@pytest.mark.parametrize("bad", [0, 1e-45, 1e-38, 1e-30])
def test_a_temperature_of_almost_nothing_is_none(words, good, bad):
    request = {**good["generate_v2"], **sampling(2, temperature=bad, seed=[4, 5])}
    greedy = words("generate_v2", {**good["generate_v2"], **sampling(2, temperature=0)})
    assert_array_equal(words("generate_v2", request)["ids"], greedy["ids"])


def test_a_top_k_beyond_the_vocabulary_is_all_of_it(words, good):
    request = {**good["generate_v2"], **sampling(2, top_k=HIGH)}
    everything = words("generate_v2", good["generate_v2"])
    assert_array_equal(words("generate_v2", request)["ids"], everything["ids"])


def test_rows_that_do_not_agree(words, good):
    for signature, request in good.items():
        for name in request:
            bad = {**request, name: request[name][:1]}
            sizes = [1 if each == name else 2 for each in words.inputs(signature)]
            with pytest.raises(
                tf.errors.InvalidArgumentError, match="one row each"
            ) as error:
                words(signature, bad)
            names, received = re.search(
                r"\[([^[]*) must have .*:\] \[(.*?)\]", str(error.value)
            ).groups()
            told = dict(zip(names.split(", "), map(int, received.split()), strict=True))
            assert told == dict(zip(words.inputs(signature), sizes, strict=True))


def test_a_wrong_shape(words, characters, sequences, good):
    for model in (words, characters):
        for signature in TEXT:
            for text in ("a", [["a"]]):
                refused(
                    model,
                    signature,
                    {"text": text},
                    "tensor text",
                    "expected shape [?]",
                )
    for signature, request in good.items():
        for name, spec in words.inputs(signature).items():
            for bad in (request[name][..., None], request[name].flat[0]):
                expected = (
                    f"expected shape {str(spec.shape.as_list()).replace('None', '?')}"
                )
                refused(
                    words,
                    signature,
                    {**request, name: bad},
                    name,
                    expected.replace(", ", ","),
                )
    for name in (
        "cache_inputs",
        "cache_levels_0",
        "cache_levels_1",
    ):  # those of another model
        bad = np.concatenate([good["step_v2"][name]] * 2, axis=1)
        refused(
            words, "step_v2", {**good["step_v2"], name: bad}, name, "expected shape"
        )
    bad = {"sequences": np.zeros([1, 4, 3]), "lengths": [4]}
    refused(sequences, "serve", bad, "sequences", "expected shape [?,?,2]")


@pytest.mark.parametrize("bad", [NAN, INF, -INF, 3e38])
def test_numbers_that_are_none_in_sequences(sequences, bad):
    request = {"sequences": np.ones([2, 4, 2]), "lengths": np.array([4, 2])}
    expected = sequences("serve", request)
    request["sequences"][1, 2:] = bad  # padding
    answer = sequences("serve", request)
    assert_array_equal(answer["probabilities"], expected["probabilities"])
    request["sequences"][1, 1, 0] = bad
    refused(sequences, "serve", request, "`sequences`", "less than 1e18", "Received")


@pytest.mark.parametrize("bad", [0, -1, 5, LOW, HIGH])
def test_lengths_of_sequences(sequences, bad):
    request = {"sequences": np.ones([2, 4, 2]), "lengths": [4, bad]}
    refused(
        sequences,
        "serve",
        request,
        "`lengths`",
        "from 1 to the number of steps",
        f"[{bad}]",
    )


def test_a_long_text(words):
    text = "a b c d e f g h i j " * 10_000
    answer = words("score_v2", {"text": [text]})
    assert answer["count"] == 100_000 and np.isfinite(answer["nll"]).all()
    assert_allclose(answer["total"], answer["nll"].astype("float64").sum(), rtol=1e-6)
    # After its memory has filled with it, a text that repeats is worth the same each time.
    again = answer["nll"].reshape(-1, 10)[10:]
    assert_allclose(again, np.broadcast_to(again[:1], again.shape), atol=1e-5)
