"""Pieces of words: learned, and cut alike by TensorFlow, by Python and by `tokenizers`."""

import io
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from keras_trellis.export.pieces import PieceTokenizer
from keras_trellis.export.tokenizer import check_vocabulary
from keras_trellis.formats import tokenizer as serving_tokenizer
from keras_trellis.formats.pieces import CHARACTERS
from tests.refusals import refuses
from trainers.data import encoding, pieces, text

TEXT = 3 * (
    'The cat\'s   café (2019) says "naïve" — 日本語 日本 and ---------- __init__(self).\n'
    "\tthe the the THE cats 2019 20 2\n\n  the café\r 日本語 the cat <eos> <unk> e\u0301\n"
)
SIZE = 320
PARTS = st.sampled_from(re.findall(r"\W+|\w+", TEXT) + [*"é日\n\0 -"])
TEXTS = (
    st.lists(PARTS, max_size=12).map(lambda parts: "".join(parts).encode())
    | st.binary(max_size=20)
    | st.text(max_size=20).map(str.encode)
)


def lines():
    yield from TEXT.splitlines(keepends=True)


@pytest.fixture(scope="module")
def vocabulary():
    return pieces.learn(lines, SIZE)


@pytest.fixture(scope="module")
def cutters(vocabulary):
    """What cuts texts in the graph, traced and not, in Python, and by `tokenizers`."""
    in_graph = PieceTokenizer(vocabulary.tokens)
    in_python = serving_tokenizer.Tokenizer(json.loads(in_graph.describe()))
    specs = [tf.TensorSpec([None], tf.string)]
    encode = tf.function(in_graph.encode, input_signature=specs, autograph=False)
    return in_graph, encode, in_python, pieces.cutter(vocabulary)


@given(texts=st.lists(TEXTS, max_size=4))
@settings(max_examples=150)
def test_three_cut_alike_and_give_the_text_back(cutters, texts):
    in_graph, encode, in_python, cut = cutters
    encoded = encode(tf.constant(texts, tf.string))
    readable = [each.decode(errors="replace") for each in texts]
    alike = in_python.encode(readable)
    assert_array_equal(alike.ids, encoded.ids)
    assert_array_equal(alike.lengths, encoded.lengths)
    assert not encoded.unknown.numpy().any() and not alike.unknown.any()
    within = np.arange(alike.ids.shape[1]) < alike.lengths[:, None]
    back = in_graph.detokenize(tf.where(within, encoded.ids, -1)).numpy()
    for row, content in enumerate(readable):
        ids = alike.ids[row, : alike.lengths[row]]
        assert_array_equal(cut(content), ids)
        words = [word.decode() for word in encoded.words[row, : len(ids)].numpy()]
        assert words == alike.words[row]
        breaks = ids == in_python.eos_id
        assert {"<eos>"} >= {*np.array(words)[breaks]}
        shown = np.where(breaks, "\n", np.array(words, object))
        assert "".join(shown) == content == back[row].decode()
        assert in_python.detokenize(in_python.eos_id, ids.tolist()) == content


@given(ids=st.lists(st.integers(-2, SIZE + 9), max_size=8))
@settings(max_examples=40)
def test_whatever_a_model_writes_is_text(cutters, ids):
    """Pieces that are no UTF-8 together read U+FFFD; other numbers add nothing."""
    in_graph, _, in_python, _ = cutters
    known = [index if index < SIZE else -1 for index in ids]
    rows = tf.constant([ids, [-1] * len(ids)], tf.int32)
    texts = [each.decode() for each in in_graph.detokenize(rows).numpy()]
    assert texts == [in_python.detokenize(0, known), ""]
    names = in_graph.tokens(rows).numpy()[0]
    tokens = [*in_python.tokens, ""]
    assert [name.decode() for name in names] == [
        tokens[max(index, -1)] for index in known
    ]


# What a byte is: a piece ends where its neighbour is of another kind, but for spaces before it.
KINDS = (rb"[A-Za-z_\x80-\xff]", rb"[0-9]", rb"[^ \n0-9A-Za-z_\x80-\xff]")
PIECE = re.compile(rb" *(?:" + rb"|".join(kind + rb"+" for kind in KINDS) + rb")| +|\n")


def test_a_vocabulary_has_the_frequent_first_and_no_border_within(vocabulary):
    assert pieces.learn(lines, SIZE).tokens == vocabulary.tokens
    assert vocabulary.size == SIZE and vocabulary.unknown_id is None
    counts = np.bincount(pieces.cutter(vocabulary)(TEXT), minlength=SIZE)
    assert (np.diff(counts) <= 0).all() and (counts == 0).any()
    shown = {piece.decode(errors="replace") for piece in vocabulary.pieces}
    assert {" the", " 日本"} <= shown
    assert all(map(PIECE.fullmatch, vocabulary.pieces))
    ids = vocabulary.read(TEXT)
    assert_array_equal(pieces.cutter(vocabulary)(TEXT), ids)
    assert vocabulary.decode(ids) == TEXT
    with refuses("`ids` must be from 0 to 319. Received: 320"):
        vocabulary.decode([SIZE])


def test_ids_are_the_same_whatever_the_block(tmp_path, monkeypatch):
    texts = {"train": TEXT, "validation": TEXT[:-1], "test": "one  two   three " * 9}
    source = encoding.Source(
        "corpus",
        labels={split: f"{split}.txt" for split in texts},
        checksums=texts,
        open=lambda split: io.BytesIO(texts[split].encode()),
        pieces=SIZE,
    )
    vocabulary, ids = encoding.encoded(source, tmp_path / "whole")
    for split, content in texts.items():
        ended = content if content.endswith("\n") else f"{content}\n"
        assert vocabulary.decode(ids[split]) == ended
        assert_array_equal(ids[split], vocabulary.read(ended))
    monkeypatch.setattr(text, "_BLOCK_BYTES", 7)
    again, by_blocks = encoding.encoded(source, tmp_path / "blocks")
    assert again.tokens == vocabulary.tokens
    for split, expected in ids.items():
        assert_array_equal(by_blocks[split], expected)
    texts["train"] = " \t\n"
    blank = encoding.Source(**{**vars(source), "checksums": {"train": "blank"}})
    with refuses("train.txt holds no words; expected the"):
        encoding.encoded(blank, tmp_path)


NAMES = [*CHARACTERS.values()]
BREAK = NAMES.index("Ċ")
GOOD = [*NAMES[:BREAK], "<eos>", *NAMES[BREAK + 1 :]]


@pytest.mark.parametrize(
    "names, message",
    [
        (["<eos>", "a", "b"], "a name for each of the 256 bytes.*Received: 3 names"),
        ([*GOOD[1:], "a b"], r"characters that stand for bytes.*\[255\]='a b'"),
        ([*GOOD, "aĊ"], r"but the line break. Received: vocabulary\[256\]='aĊ'"),
        (NAMES, "must have '<eos>'"),
    ],
)
def test_a_vocabulary_that_does_not_know_every_text(names, message):
    with refuses(message) as error:
        check_vocabulary(names, len(names), pieces=True)
    assert "\n" not in str(error.value)
    assert check_vocabulary(GOOD, 256, pieces=True) == GOOD
