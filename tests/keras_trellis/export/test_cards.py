"""The model card of an export that says little of itself."""

import keras_trellis
from keras_trellis.export import cards


def rows(card):
    return card.split("\n\n")[1].splitlines()


def test_what_is_not_said_is_not_stated():
    model = keras_trellis.TrellisLM(3, 4, 2, embedding_units=4)
    card = cards.card("It", {}, model, {})
    assert "| Trained on | not stated |" in rows(card)
    assert "| Licence of the data | not stated |" in rows(card)
    facts = {"Trained on": "a | b\nc", "Hidden channels": "many"}
    card = cards.card("It", facts, model, {})
    assert r"| Trained on | a \| b c |" in rows(card)  # a cell is one line, and ends at a bar
    assert "| Hidden channels | many |" in rows(card)
    assert len(rows(card)) == len({row.split(" | ")[0] for row in rows(card)})
