"""What the page asks of an exported model, against the model's own answers."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from trainers.serving.exported import ExportedModel
from trainers.serving.page import served
from trainers.serving.page.served import ServedModel, scored
from trainers.serving.writing import Sampling, generate

SAMPLING = Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=3, max_length=20)


@pytest.fixture(scope="module")
def model(exports):
    return ServedModel(str(exports["page"].parent))


@pytest.fixture(scope="module")
def characters(exports):
    return ServedModel(str(exports["page_characters"].parent))


def test_a_score_is_the_signature_s(model):
    scores = scored(model, "the cat\nsat")
    expected = model("score", text=["the cat\nsat"])
    assert scores["words"] == ["the", "cat", "<eos>", "sat"]
    assert scores["known"] == [True] * 4
    assert scores["blanks"] == ["", " ", "", ""]
    np.testing.assert_array_equal(np.float32(scores["nll"]), expected["nll"][0])


def test_an_empty_text_has_no_tokens(model):
    assert scored(model, "") == {"words": [], "known": [], "nll": [], "blanks": []}


def test_words_that_are_unknown_are_the_text_s_own(characters):
    scores = scored(characters, "aéb<")
    assert (scores["words"], scores["known"]) == ([*"aéb<"], [True, False, True, False])


def test_the_example_is_one_that_the_model_knows(model):
    def knows(known):
        def ask(signature, text):
            assert signature == "tokenize"
            words = text[0].split()
            return {
                "lengths": [len(words)],
                "unknown": [sum(w not in known for w in words)],
            }

        return ask

    for text in served._EXAMPLES:
        assert served.example(knows({*text.split()})) == text
        most = {*text.split()[1:]}
        assert served.example(knows(most)) == text
    own = served.example(model)  # which knows none of these texts
    assert own and {*own.split()} <= {*models.PAGE_WORDS}
    assert served.example(model) == own


def test_characters_stand_beside_each_other(characters):
    scores = scored(characters, "a b\n")
    assert (scores["words"], scores["blanks"]) == (["a", " ", "b", "<eos>"], [""] * 4)
    assert len("".join(generate(characters, "a ", SAMPLING))) == 20


@pytest.mark.parametrize("prompt", ["", "the cat", "the cat\n"])
def test_pieces_are_the_text_of_one_call(model, prompt):
    pieces = [*generate(model, prompt, SAMPLING)]
    assert len(pieces) == 3  # of 8, 8 and 4 tokens
    words = prompt.replace("\n", " <eos>").split()
    ids = [[0, *map(models.PAGE_WORDS.index, words)]]
    cache = model("prefill", ids=np.zeros([1, 0]), lengths=[0])
    del cache["log_probs"]
    settings = {name: [value] for name, value in SAMPLING._asdict().items()}
    settings |= {"stop_id": [-1], "forbidden_ids": [[-1]]}
    whole = model("generate", ids=ids, lengths=[len(ids[0])], **settings, **cache)
    assert "".join(pieces) == whole["text"][0]


@pytest.mark.parametrize("name", ["pieces", "tied", "adaptive"])
def test_parts_are_the_text_of_all_tokens(exports, name):
    """Characters that pieces share, and the spaces of print, are those of the whole text."""
    model = ExportedModel(str(exports[name]), ["generate", "detokenize"])
    prompt = "the cat\n日" if name == "pieces" else "a b c"
    for seed in range(3):
        sampling = SAMPLING._replace(seed=seed, max_length=40)
        parts = [*generate(model, prompt, sampling, chunk=3)]
        assert len(parts) == 14 and [*generate(model, prompt, sampling, 40)] == [
            "".join(parts)
        ]
        begun = model("tokenize", text=[f"\n{prompt}"])["ids"]
        cache = model("prefill", ids=begun, lengths=[begun.shape[1] - 1])
        del cache["log_probs"]
        settings = {name: [value] for name, value in sampling._asdict().items()}
        settings |= {"stop_id": [-1], "forbidden_ids": [[-1]]}
        last = {"ids": begun[:, -1:], "lengths": [1]}
        added = model("generate", **last, **settings, **cache)["ids"]
        ids = np.hstack([begun, added])
        whole = model("detokenize", ids=ids, lengths=[ids.shape[1]])["text"][0]
        given = model("detokenize", ids=begun, lengths=[begun.shape[1]])["text"][0]
        assert given + "".join(parts) == whole


def test_the_sampling_reaches_the_model(model):
    def text(**changed):
        return "".join(generate(model, "the", SAMPLING._replace(**changed)))

    greedy = text(temperature=0.0)
    assert text(top_k=1) == text(top_p=1e-6) == greedy != text()
    assert text(seed=4) != text() == text(seed=3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda model: scored(model, "the dög's€\\x"),
            "`text` must be made of symbols of the vocabulary, which has no <unk>",
        ),
        (
            lambda model: next(generate(model, "the dog", SAMPLING)),
            "`text` must be made of symbols of the vocabulary, which has no <unk>",
        ),
        (
            lambda model: next(
                generate(model, "", SAMPLING._replace(temperature=-1.0))
            ),
            "`temperature` must be a number of at least 0. Received: -1",
        ),
    ],
)
def test_a_refusal_is_told_in_a_line(model, ask, message):
    with pytest.raises(ValueError) as error:
        ask(model)
    assert str(error.value) == message


def test_probabilities_that_are_no_numbers_are_told(model):
    def damaged(signature, **inputs):
        answer = model(signature, **inputs)
        return (
            {**answer, "nll": np.array([[1.0, np.nan]])}
            if signature == "score"
            else answer
        )

    with pytest.raises(ValueError, match="not finite"):
        scored(damaged, "the cat")


def test_the_newest_version_is_the_greatest_number(exports, model, tmp_path):
    (tmp_path / "9").mkdir()  # no model: it would not load
    no_card = shutil.ignore_patterns("model_card.md")
    shutil.copytree(exports["page"], tmp_path / "10", ignore=no_card)
    (tmp_path / ".exporting-11").mkdir()
    newest = ServedModel(f"{tmp_path}/")
    assert newest.name == f"{tmp_path.name}, version 10"
    assert newest.card == {} != model.card


def test_what_is_no_language_model_is_refused(exports, tmp_path):
    with pytest.raises(ValueError, match="which has none"):
        ServedModel(str(tmp_path))
    with pytest.raises(ValueError, match="which is a SavedModel itself"):
        ServedModel(str(exports["page"]))
    (tmp_path / "1").mkdir()
    with pytest.raises(
        ValueError, match="1 cannot be loaded: SavedModel file does not exist"
    ):
        ServedModel(str(tmp_path))
    module = tf.Module()
    module.double = tf.function(
        lambda x: 2 * x, input_signature=[tf.TensorSpec([], tf.float32)]
    )
    tf.saved_model.save(module, str(tmp_path / "2"), signatures=module.double)
    with pytest.raises(
        ValueError, match="no language model: .*, and has serving_default"
    ):
        ServedModel(str(tmp_path))
    names = ("tokenize", "score", "prefill", "generate")
    tf.saved_model.save(
        module, str(tmp_path / "3"), dict.fromkeys(names, module.double)
    )
    with pytest.raises(
        ValueError, match="3 is of a version that tells no unknown words: export"
    ):
        ServedModel(str(tmp_path))
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "saved_model.pb").write_bytes(b"no protocol buffer")
    with pytest.raises(ValueError, match="4 cannot be loaded: "):
        ServedModel(str(tmp_path))
