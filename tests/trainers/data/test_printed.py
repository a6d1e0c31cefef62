"""Texts with the spaces of print."""

import re

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from trainers.tasks import registry
from trainers.tasks.task import LanguageTask

WORDS = st.sampled_from(
    r"""the f x's built-in n't 's ' " "" ''' . , ; : :: = ( [ { ) ] } )) * ** / - -- @ @-@ @,@ @.@
    $ us$ N % __init__ >>> ... \ | # <unk> … — 中 \x1f""".split()
)
LINES = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=3).map("\n".join)


@pytest.mark.parametrize("name", registry.by_kind(LanguageTask))
@hypothesis.given(text=LINES)
def test_no_character_changes_but_spaces(name, text):
    told = registry.language(name).in_print(text)
    expected = text
    if name.startswith("wikitext"):  # its marks of signs within words
        expected = re.sub(r"(?<!\S)@([-,.])@(?!\S)", r"\1", text)
    assert told.replace(" ", "") == expected.replace(" ", "")
    assert "  " not in told.strip(" ") or "  " in text
    if printed := registry.language(name).printed:
        assert printed(tf.constant([text])).numpy()[0].decode() == told
    # A text that is written word by word only grows.
    begun = registry.language(name).in_print(text.rpartition(" ")[0])
    assert told.startswith(begun)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "pydoc",
            'when " obj . __len__ ( ) " is called , * n * is the result ( see " x [ i : j ] " ) .',
            'when "obj.__len__()" is called, *n* is the result (see "x[i: j]").',
        ),
        (
            "pydoc",
            "* a bullet : it's N / N\nnext :: = item",
            "* a bullet: it's N/N\nnext ::= item",
        ),
        (
            "pydoc",
            "the method object . __init__ ( self ) does",
            "the method object.__init__(self) does",
        ),
        (
            "ptb",
            "the company 's shares do n't yield N % or $ N\nyears ' u.s. & c$ N",
            "the company's shares don't yield N% or $N\nyears' u.s. & c$N",
        ),
        ("ptb_char", "it 's n't", "it'sn't"),
        (
            "wikitext2",
            '= Title =\nThe " well @-@ known " game sold 1 @,@ 000 ( or 2 @.@ 5 % ) ; it doesn \'t',
            '= Title =\nThe "well-known" game sold 1,000 (or 2.5%); it doesn\'t',
        ),
        ("text", "as , it is", "as , it is"),
    ],
)
def test_text_as_in_print(name, text, expected):
    assert registry.language(name).in_print(text) == expected
