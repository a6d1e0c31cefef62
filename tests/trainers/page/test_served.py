"""What the page asks of an exported model, against the model's own answers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainers import exported
from trainers.page.served import ServedModel, score
from trainers.writing import Sampling, generate

SAMPLING = Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=3, max_length=20)


@pytest.fixture(scope="module")
def model():
    return ServedModel(str(exported.folder()))


def test_a_score_is_the_signature_s(model):
    scores = score(model, "the cat\nsat")
    expected = model("score", text=["the cat\nsat"])
    assert scores.tokens == ["the", "cat", "<eos>", "sat"]
    assert scores.separator == " "
    np.testing.assert_array_equal(np.float32(scores.nll), expected["nll"][0])


def test_an_empty_text_has_no_tokens(model):
    assert score(model, "") == ([], [], " ")


def test_characters_stand_beside_each_other():
    model = ServedModel(str(exported.folder_of_characters()))
    scores = score(model, "a b\n")
    assert (scores.tokens, scores.separator) == (["a", " ", "b", "<eos>"], "")
    assert len("".join(generate(model, "a ", SAMPLING))) == 20


@pytest.mark.parametrize("prompt", ["", "the cat", "the cat\n"])
def test_pieces_are_the_text_of_one_call(model, prompt):
    pieces = [*generate(model, prompt, SAMPLING)]
    assert len(pieces) == 3  # of 8, 8 and 4 tokens
    words = prompt.replace("\n", " <eos>").split()
    ids = [[0, *map(exported.WORDS.index, words)]]
    cache = model("prefill", ids=np.zeros([1, 0]), lengths=[0])
    del cache["log_probs"]
    settings = {name: [value] for name, value in SAMPLING._asdict().items()}
    settings |= {"stop_id": [-1], "forbidden_ids": [[-1]]}
    whole = model("generate", ids=ids, lengths=[len(ids[0])], **settings, **cache)
    assert "".join(pieces) == whole["text"][0]


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
            lambda model: score(model, "the dög's€\\x"),
            "`text` must be made of symbols of the vocabulary, which has no <unk>",
        ),
        (
            lambda model: next(generate(model, "the dog", SAMPLING)),
            "`text` must be made of symbols of the vocabulary, which has no <unk>",
        ),
        (
            lambda model: next(generate(model, "", SAMPLING._replace(temperature=-1.0))),
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
        return {**answer, "nll": np.array([[1.0, np.nan]])} if signature == "score" else answer

    with pytest.raises(ValueError, match="not finite"):
        score(damaged, "the cat")


def test_the_newest_version_is_the_greatest_number(tmp_path):
    (tmp_path / "9").mkdir()  # no model: it would not load
    (tmp_path / "10").symlink_to(exported.folder() / "1")
    (tmp_path / ".exporting-11").mkdir()
    assert ServedModel(f"{tmp_path}/").name == f"{tmp_path.name}, version 10"


def test_what_is_no_language_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="which has none"):
        ServedModel(str(tmp_path))
    with pytest.raises(ValueError, match="which is a SavedModel itself"):
        ServedModel(str(exported.folder() / "1"))
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match="1 cannot be loaded: SavedModel file does not exist"):
        ServedModel(str(tmp_path))
    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([], tf.float32)])
    tf.saved_model.save(module, str(tmp_path / "2"), signatures=module.double)
    with pytest.raises(ValueError, match="no language model: .*, and has serving_default"):
        ServedModel(str(tmp_path))
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"no protocol buffer")
    with pytest.raises(ValueError, match="3 cannot be loaded: "):
        ServedModel(str(tmp_path))
