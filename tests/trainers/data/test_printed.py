"""Texts with the spaces of print."""

import re

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from keras_trellis.export import Standardizer
from keras_trellis.formats.tokenizer import Tokenizer
from trainers.tasks import registry

WORDS = st.sampled_from(
    r"""the f x's built-in n't 's ' " "" ''' . , ; : :: = ( [ { ) ] } )) * ** / - -- @ @-@ @,@ @.@
    $ us$ N % __init__ >>> ... \ | # <unk> … — 中 \x1f""".split()
)
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from keras_trellis.serving.server.answers import Printed  # noqa: E402

LINES = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=3).map("\n".join)


@pytest.mark.parametrize("name", registry.trained_by("trainers.lm"))
@hypothesis.given(text=LINES)
def test_no_character_changes_but_spaces(name, text):
    told = registry.get(name).in_print(text)
    expected = text
    if name.startswith("wikitext"):  # its marks of signs within words
        expected = re.sub(r"(?<!\S)@([-,.])@(?!\S)", r"\1", text)
    assert told.replace(" ", "") == expected.replace(" ", "")
    assert "  " not in told.strip(" ") or "  " in text
    if printed := registry.get(name).printed:
        in_graph = Standardizer(*printed.operations)
        assert in_graph(tf.constant([text])).numpy()[0].decode() == told
    # A text that is written word by word only grows.
    begun = registry.get(name).in_print(text.rpartition(" ")[0])
    assert told.startswith(begun)


NAMES = [
    name for name in registry.trained_by("trainers.lm") if registry.get(name).printed
]


def tokenizer_of(name):
    task = registry.get(name)
    entries = {
        "kind": "characters" if task.characters else "words",
        "tokens": ["<eos>", "<unk>"],
        "end_of_line": "<eos>",
        "unknown": "<unk>",
        "standardize": [],
        "detokenize": task.printed.portable(),
    }
    return Tokenizer(entries)


def pieces_of(name, text):
    """Returns what each token adds to a text."""
    words = r"." if registry.get(name).characters else r"\n|(?: |(?<=\n)|^)[^ \n]+"
    return re.findall(words, text, re.DOTALL)


@pytest.mark.parametrize("name", NAMES)
@hypothesis.given(text=LINES, data=st.data())
def test_a_text_in_print_grows_by_its_tokens(name, text, data):
    tokenizer, pieces = tokenizer_of(name), pieces_of(name, text)
    assert "".join(pieces) == text
    whole = tokenizer.in_print(text)
    printed = tokenizer.printed(pieces)
    assert len(printed) == len(pieces)
    if tokenizer.separator:
        assert "".join(printed) == whole
        marked = name.startswith("wikitext")  # @-@ reads -
        for each, piece in zip(printed, pieces, strict=True):
            assert each.strip(" ") == piece.strip(" ") or marked
    given = data.draw(st.integers(0, len(pieces)))
    line = "".join(pieces[:given]).rpartition("\n")[2]
    growing, begin = Printed(tokenizer, line), len(tokenizer.in_print(line))
    parts = [growing.add(piece, is_last=False) for piece in pieces[given:]]
    parts.append(growing.add("", is_last=True))
    # A word is settled at once; characters may go on with the last one.
    assert not (tokenizer.separator and parts[-1])
    after = line + "".join(pieces[given:])
    assert "".join(parts) == tokenizer.in_print(after)[begin:]


@pytest.mark.parametrize(
    "name, text, expected",
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
    assert registry.get(name).in_print(text) == expected
