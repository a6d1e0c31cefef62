"""Tests of the vocabulary."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.refusals import refuses
from trainers.data.vocabulary import (
    UnknownTokenError,
    Vocabulary,
)

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1)


def split_tokens(text):
    return text.replace("\n", " <eos> ").split()


def split_characters(text):
    return ["<eos>" if character == "\n" else character for character in text]


def _vocabulary(*lines, split=split_tokens, **settings):
    tokens = itertools.chain.from_iterable(map(split, lines))
    return Vocabulary.from_counts(collections.Counter(tokens), **settings)


def test_order_is_first_appearance():
    vocabulary = _vocabulary("the cat <unk>\n", "a cat\n")
    assert vocabulary.tokens == ("the", "cat", "<unk>", "<eos>", "a")
    assert vocabulary.size == 5
    assert (vocabulary.unknown_id, vocabulary.eos_id) == (2, 3)


def test_unknown_is_appended_where_the_text_lacks_it():
    vocabulary = _vocabulary("a b\n")
    assert vocabulary.tokens == ("a", "b", "<eos>", "<unk>")
    assert_array_equal(vocabulary.encode(["b", "never"]), [1, 3])


def test_minimum_count_turns_rare_words_to_unknown():
    vocabulary = _vocabulary("a b a\n", minimum_count=2)
    assert vocabulary.tokens == ("a", "<eos>", "<unk>")


@given(words=st.lists(st.sampled_from("abcdefgh"), min_size=1))
def test_order_of_frequency(words):
    """Written out: by falling counts, and what is equal as it appeared."""
    first = list(dict.fromkeys(words))
    expected = sorted(first, key=lambda word: (-words.count(word), first.index(word)))
    vocabulary = _vocabulary(" ".join(words), order="frequency")
    assert vocabulary.tokens == (*expected, "<eos>", "<unk>")


def test_order_that_is_unknown():
    with refuses("`order` must be one of .*Received: order='random'"):
        _vocabulary("a\n", order="random")


def test_without_unknown():
    vocabulary = _vocabulary("a b\n", unknown=False)
    assert vocabulary.tokens == ("a", "b", "<eos>")
    assert vocabulary.unknown_id is None
    with refuses("has no <unk>. Received: 'c'", UnknownTokenError) as caught:
        vocabulary.encode(["a", "c", "d"])
    assert caught.value.token == "c"


@given(text=st.text("ab \n"))
def test_characters_are_joined_as_they_stood(text):
    vocabulary = _vocabulary("a b\n", split=split_characters, unknown=False)
    assert vocabulary.tokens == ("a", " ", "b", "<eos>")
    assert vocabulary.decode(vocabulary.encode(split_characters(text))) == text


def test_encode_and_decode():
    vocabulary = _vocabulary("a b\n")
    ids = vocabulary.encode(split_tokens("b  a\n\nb what"))
    assert ids.dtype == np.int32
    assert_array_equal(ids, [1, 0, 2, 2, 1, 3])
    assert vocabulary.decode(ids) == "b a\n\nb <unk>"
    assert vocabulary.decode([]) == ""
    assert vocabulary.encode([]).dtype == np.int32


@given(lines=st.lists(st.lists(WORDS, max_size=5), max_size=5))
def test_decode_undoes_encode(lines):
    text = "\n".join(" ".join(line) for line in lines)
    vocabulary = _vocabulary(text)
    words = split_tokens(text)
    assert split_tokens(vocabulary.decode(vocabulary.encode(words))) == words


@given(words=st.lists(WORDS))
def test_save_and_load(words, tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary = Vocabulary.from_counts(collections.Counter(words))
    vocabulary.save(path)
    assert Vocabulary.load(path).tokens == vocabulary.tokens
    assert [file.name for file in path.parent.iterdir()] == ["vocabulary.txt"]


def test_failed_save_leaves_the_former_file(tmp_path, monkeypatch):
    path = tmp_path / "vocabulary.txt"
    _vocabulary("a\n").save(path)

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr(type(_epath(path)), "replace", fail)
    with refuses("full", OSError):
        _vocabulary("b\n").save(path)
    assert Vocabulary.load(path).tokens[0] == "a"


def _epath(path):
    from etils import epath

    return epath.Path(path)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\n<unk>\n<eos>\na\n", "'a' a second time"),
        (b"a\n\n<unk>\n<eos>\n", "'' as token 1"),
        (b"a\n<unk>\n", "'<eos>' must be a token"),
        (b"", "it is empty"),
        (b"\n", "'' as token 0"),
        (b"a\n<eos>\nwor", "its last line is cut off"),
        (b"\xef\xbb\xbfa\n<eos>\n", "byte-order mark"),
        (b"a\r\n<eos>\r\n", "carriage returns"),
        (b"\xff\n", "byte 0xff in line 1, at offset 0"),
    ],
)
def test_load_refuses_what_is_no_vocabulary(tmp_path, content, message):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with refuses(f"(?s)vocabulary.txt.*{message}"):
        Vocabulary.load(path)


@pytest.mark.parametrize("ids", [[4], [-1], np.array([0, 9])], ids=str)
def test_decode_refuses_ids_out_of_range(ids):
    with refuses(f"`ids` must be from 0 to 3. Received: {ids[-1]}"):
        _vocabulary("a b\n").decode(ids)


def test_encode_refuses_text():
    with refuses("not a text"):
        _vocabulary("a b\n").encode("a b")
