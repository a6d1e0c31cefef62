"""What words leave out of a text: the parts that they stand for, and what these cost."""

import math

import hypothesis
import hypothesis.strategies as st
import pytest

from trainers.data import plain, tokens
from trainers.tasks import registry

TEXT = (
    """The Parser reads 3.11 tokens, then "__init__()" is called.
  the parser's  tokens are READ\tby zebras; it isn't 12 of them…
"""
    * 4
)
TEXTS = st.lists(
    st.sampled_from(["The", " ", "  ", "it's", "3.5", "\n", "\t", "…", "ÉTÉ", '"x"']),
    max_size=12,
).map("".join)


@pytest.mark.parametrize(
    "task, cut", [("text", plain.split), ("pydoc", tokens.pydoc_parts)]
)
@hypothesis.given(text=TEXTS)
@hypothesis.settings(max_examples=40)
def test_parts_are_all_of_a_text_and_stand_for_its_words(task, cut, text):
    text = f"{text}\n"
    parts = cut(text)
    assert "".join(part.blank + part.text for part in parts) == text
    words = registry.get(task).list_tokens(text)
    assert [part.word for part in parts] == words


def test_probabilities_sum_to_one():
    counts, contexts = plain.Counts(), [(), ("b",), ("a", "b")]
    for symbol, others in (("x", contexts), ("x", contexts[:2]), ("y", contexts[:1])):
        counts.add(symbol, others)
    for known in (contexts, contexts[:1], [(), ("never",)], []):
        given = math.log(1 / 4)
        logs = [counts.log_probability(symbol, known, given) for symbol in "wxyz"]
        assert math.fsum(map(math.exp, logs)) == pytest.approx(1)
    # The equation, by hand: 3 symbols of 2 kinds, then 2 of 1, then 1 of 1.
    p = (2 + 2 / 4) / (3 + 2)
    p = (2 + p) / (2 + 1)
    p = (1 + p) / (1 + 1)
    found = counts.log_probability("x", contexts, math.log(1 / 4))
    assert found == pytest.approx(math.log(p))


def test_of_what_nothing_is_known_each_byte_and_each_end_is_one_of_257():
    unread = plain.Remainder([], ())
    part = plain.Part(" ", "é", "<unk>")
    assert unread.nats([part]) == pytest.approx(math.log(4) + 5 * math.log(257))


def test_what_a_word_does_not_say_costs_what_it_tells():
    parts = tokens.pydoc_parts(TEXT)
    remainder = plain.Remainder(parts, {part.word for part in parts} - {"zebras"})

    def bits(text):
        """Returns what the last part of a text costs."""
        parts = tokens.pydoc_parts(text)
        nats = remainder.nats(parts) - remainder.nats(parts[:-1])
        return nats / math.log(2)

    # What is always so costs next to nothing, what never was costs its spelling.
    assert 0 < bits("The Parser") < 1 < 3 < bits("The PARSER") < bits("The pARSER")
    assert 2 * bits("11 Tokens") < bits("11 tOkens")
    assert bits("the parser's  tokens") < 1 < bits("the parser's   tokens")
    assert bits("by zebras") < 1 < 2 * len("quokka") < bits("by quokkas")
    assert max(bits("reads 3.11"), bits("reads 12")) < 2 < bits("reads 4.75")
    assert bits("then") < bits("then quokka") < bits("then quokka-quokka")
