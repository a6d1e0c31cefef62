"""Text of unknown origin does not command the terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from trainers.data import terminal

# Control characters, surrogates, the ends of lines and paragraphs; of the formats, those that turn
# the direction of writing.
COMMANDS = {"Cc", "Cs", "Zl", "Zp"}
TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
TEXTS = st.text(st.characters(categories=None, max_codepoint=0x24FF), max_size=30)


def commands(value):
    """Returns the characters of a text that do more than stand in a line."""
    return {
        each
        for each in value
        if unicodedata.category(each) in COMMANDS
        or unicodedata.bidirectional(each) in TURNS
    }


@given(TEXTS)
def test_what_is_shown_has_no_command(value):
    assert not commands(terminal.line(value))
    assert commands(terminal.text(value)) <= {"\n", "\t"}
    if not commands(value):
        assert terminal.line(value) == terminal.text(value) == value
