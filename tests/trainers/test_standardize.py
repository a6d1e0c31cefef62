"""Texts in the graph against what the tasks do to them in Python."""

import hypothesis
import hypothesis.strategies as st
import pytest
import tensorflow as tf

from trainers import standardize
from trainers.data import corpora
from trainers.data.vocabulary import split_characters, split_tokens

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


@pytest.mark.parametrize("task", TASKS)
def test_rows_of_a_batch_stand_for_themselves(task):
    texts = ["The 3 N", "", "x\n"]
    together = standardize.of_task(task)(tf.constant(texts)).numpy()
    alone = [standardize.of_task(task)(tf.constant([text])).numpy()[0] for text in texts]
    assert list(together) == alone


def test_other_tasks_take_texts_as_they_are():
    assert standardize.of_task("wikitext2") is None and standardize.of_task("text") is None
