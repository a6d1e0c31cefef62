"""What results are told in."""

import math

import pytest

from trainers.kinds import measures
from trainers.tasks import registry


def test_words_have_perplexity_and_characters_bits():
    for task in ("ptb", "wikitext2", "wikitext103", "text", "pydoc"):
        assert registry.get(task).measure.from_nats(math.log(50.0)) == pytest.approx(
            50.0
        )
    characters = registry.get("ptb_char").measure
    assert characters.from_nats(math.log(2.0) * 1.158) == pytest.approx(1.158)
    assert (characters.name, characters.counted) == ("bpc", "characters")
    assert characters.format_score(1.158, 1234) == "1.158 (1,234 characters)"


def test_perplexity_beyond_a_float_is_infinite():
    assert measures.perplexity(1e4) == math.inf
