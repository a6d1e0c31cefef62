"""Texts in the graph against what the definitions say, written out in Python."""

import json
import re

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from keras_trellis.export import Standardizer
from keras_trellis.export.tokenizer import WordTokenizer
from keras_trellis.formats import tokenizer as serving_tokenizer
from trainers.tasks import registry

TASKS = ("ptb", "ptb_char", "pydoc")
NUMBER = re.compile(r"[+-]?\d[\d.,]*")
TOKEN = re.compile(
    r"[^\W\d]\w*(?:['-][a-z]+)*|(?P<number>\d+(?:\.\d+)*\w*)|([^\w\s])\2*"
)
PLAIN_QUOTES = str.maketrans("‘’“”", "''\"\"")
PIECES = st.sampled_from(
    [
        "N",
        "the",
        "The",
        "A's",
        "do",
        "n't",
        "12",
        "+3.5",
        "4,000.",
        "7th",
        "$5",
        "x2",
        "N's",
    ]
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


def penn_treebank(line):
    return ["N" if w == "N" or NUMBER.fullmatch(w) else w.lower() for w in line.split()]


def pydoc(line):
    matches = TOKEN.finditer(line.translate(PLAIN_QUOTES).lower())
    return ["N" if match["number"] else match.group() for match in matches]


def written_out(task, text):
    """The tokens of a text, in Python."""
    words = {"pydoc": pydoc, "text": str.split}.get(task, penn_treebank)
    lines = [words(line) for line in text.split("\n")]
    if task == "ptb_char":
        characters = "\n".join(" ".join(line) for line in lines)
        return ["<eos>" if each == "\n" else each for each in characters]
    return lines[0] + [token for line in lines[1:] for token in ("<eos>", *line)]


@pytest.mark.parametrize("task", [*TASKS, "text"])
@given(pieces=st.lists(PIECES, max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_graph_does_what_python_does(task, pieces):
    text = "".join(pieces)
    assert registry.get(task).list_tokens(text) == written_out(task, text)


def in_graph(task):
    return Standardizer(*registry.get(task).standardize.operations)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    tokens = ["<eos>", "<unk>", "the", "N"]
    folder = tmp_path_factory.mktemp("vocabularies")
    made = {}
    for task in TASKS:
        (folder / task).mkdir()
        vocabulary = [*tokens, " "] if task == "ptb_char" else tokens
        made[task] = WordTokenizer(vocabulary, folder / task, in_graph(task))
    return made


@pytest.fixture(scope="module")
def python_tokenizers(tokenizers):
    """Those that read a text without TensorFlow."""
    return {
        task: serving_tokenizer.Tokenizer(json.loads(made.describe()))
        for task, made in tokenizers.items()
    }


@pytest.mark.parametrize("task", TASKS)
@given(
    texts=st.lists(
        st.binary(max_size=12)
        | st.lists(PIECES, max_size=5).map(lambda p: "".join(p).encode())
    )
)
@settings(max_examples=40, deadline=None)
def test_whatever_bytes_a_client_sends(tokenizers, python_tokenizers, task, texts):
    encoded = tokenizers[task].encode(tf.constant(texts, tf.string))
    alike = python_tokenizers[task].encode(
        text.decode(errors="replace") for text in texts
    )
    assert_array_equal(alike.ids, encoded.ids)
    assert_array_equal(alike.lengths, encoded.lengths)
    assert_array_equal(alike.unknown, encoded.unknown)
    for row, text in enumerate(texts):
        words = written_out(task, text.decode(errors="replace"))
        assert encoded.lengths[row] == len(words)
        told = encoded.words[row, : len(words)].numpy()
        assert [word.decode() for word in told] == words == alike.words[row]
        known = {"<eos>", "<unk>", "the", "N", *([" "] if task == "ptb_char" else [])}
        assert encoded.unknown[row] == sum(word not in known for word in words)


@pytest.mark.parametrize("task", TASKS)
def test_rows_of_a_batch_stand_for_themselves(task):
    texts = ["The 3 N", "", "x\n"]
    standardize = in_graph(task)
    together = standardize(tf.constant(texts)).numpy()
    alone = [standardize(tf.constant([text])).numpy()[0] for text in texts]
    assert list(together) == alone


def test_other_tasks_take_texts_as_they_are():
    for task in ("wikitext2", "text"):
        assert registry.get(task).standardize is None
