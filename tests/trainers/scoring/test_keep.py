"""The conditions of `--keep`."""

import pytest

from trainers.scoring import keep
from trainers.scoring.scorer import Scores

SCORES = Scores(tokens=10, nats=20.0, perplexity=7.4, unknown_share=0.2)


@pytest.mark.parametrize(
    "text, holds",
    [
        ("perplexity<7.5", True),
        ("perplexity < 7.4", False),
        ("perplexity<=7.4", True),
        ("tokens>9", True),
        (" tokens > 10 ", False),
        ("tokens>=1e1", True),
        ("unknown_share<.1", False),
        ("nats>-3", True),
    ],
)
def test_conditions(text, holds):
    assert keep.parse(text).holds(SCORES) is holds


@pytest.mark.parametrize("text", ["perplexity<2", "tokens<2", "nats>=0"])
def test_no_condition_holds_for_an_empty_document(text):
    assert not keep.parse(text).holds(Scores(0, 0.0, None, None))


@pytest.mark.parametrize(
    "text",
    [
        *("", "perplexity", "perplexity<", "<200", "perplexity<nan", "perplexity<inf"),
        *("perplexity=200", "perplexity==200", "length<2", "perplexity<2 or tokens>3"),
        *("perplexity<2\nx", "__class__<1", "perplexity<tokens", "perplexity<1_0x"),
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="--keep must be FIELD<NUMBER") as caught:
        keep.parse(text)
    assert str(caught.value).endswith(f"Received: --keep={text}")
