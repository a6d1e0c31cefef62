"""Texts in the graph against what the tasks do to them in Python."""

import hypothesis
import hypothesis.strategies as st
import pytest
import tensorflow as tf

from keras_trellis.export.tokenizer import Tokenizer
from trainers.data import corpora
from trainers.data.vocabulary import split_characters, split_tokens
from trainers.tasks import standardize

TASKS = ("ptb", "ptb_char", "pydoc")
PIECES = st.sampled_from(
    ["N", "the", "The", "A's", "do", "n't", "12", "+3.5", "4,000.", "7th", "$5", "x2", "N's"]
    + [
        "é",
        "ÉTÉ",
        "...",
        "!!",
        "?!",
        "(",
        "_a",
        "a-b",
        "“so”",
        "’tis",
        "—",
        "\\",
        "[",
        "^",
        "1.2.3",
    ]
    + [" ", "  ", "\t", "\n", "\n\n", " \n "]
    + ["\xa0", "\u2009", "\x1d", "——", "²", "\0\0"]
    + ["\0", "A\0B", "\0The 3", "\x01", "\x7f", "\ufeff", "\ufffd", "e\u0301", "½"]
)


def tokens(task, text):
    """The tokens of a text as a server has them."""
    ready = standardize.of_task(task)(tf.constant([text])).numpy()[0].decode()
    return (split_characters if task == "ptb_char" else split_tokens)(ready)


@pytest.mark.parametrize("task", TASKS)
@hypothesis.given(pieces=st.lists(PIECES, max_size=12))
@hypothesis.settings(max_examples=150, deadline=None)
def test_the_graph_does_what_python_does(task, pieces):
    text = "".join(pieces)
    assert tokens(task, text) == corpora.tokens_of(task, text)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    tokens, folder = ["<eos>", "<unk>", "the", "N"], tmp_path_factory.mktemp("vocabularies")
    made = {}
    for task in TASKS:
        (folder / task).mkdir()
        vocabulary = [*tokens, " "] if task == "ptb_char" else tokens
        made[task] = Tokenizer(vocabulary, folder / task, standardize.of_task(task))
    return made


@pytest.mark.parametrize("task", TASKS)
@hypothesis.given(
    texts=st.lists(
        st.binary(max_size=12) | st.lists(PIECES, max_size=5).map(lambda p: "".join(p).encode())
    )
)
@hypothesis.settings(max_examples=40, deadline=None)
def test_whatever_bytes_a_client_sends(tokenizers, task, texts):
    encoded = tokenizers[task].encode(tf.constant(texts, tf.string))
    for row, text in enumerate(texts):
        words = corpora.tokens_of(task, text.decode(errors="replace"))
        assert encoded.lengths[row] == len(words)
        told = encoded.words[row, : len(words)].numpy()
        assert [word.decode() for word in told] == words
        known = {"<eos>", "<unk>", "the", "N", *([" "] if task == "ptb_char" else [])}
        assert encoded.unknown[row] == sum(word not in known for word in words)


@pytest.mark.parametrize("task", TASKS)
def test_rows_of_a_batch_stand_for_themselves(task):
    texts = ["The 3 N", "", "x\n"]
    together = standardize.of_task(task)(tf.constant(texts)).numpy()
    alone = [standardize.of_task(task)(tf.constant([text])).numpy()[0] for text in texts]
    assert list(together) == alone


def test_other_tasks_take_texts_as_they_are():
    assert standardize.of_task("wikitext2") is None and standardize.of_task("text") is None
