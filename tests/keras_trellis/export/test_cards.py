"""The model card of an export that says little of itself."""

import keras

from keras_trellis import TrellisLayer, TrellisLM
from keras_trellis.export import cards


def rows(card):
    return card.split("\n\n")[1].splitlines()


def test_what_is_not_said_is_not_stated():
    model = TrellisLM(3, TrellisLayer(4, 2, output_units=4), embedding_units=4)
    card = cards.card("It", {}, model, {}, {})
    assert "| Trained on | not stated |" in rows(card)
    assert "| Licence of the data | not stated |" in rows(card)
    facts = {"Trained on": "a | b\nc", "Hidden channels": "many"}
    card = cards.card("It", facts, model, {}, {})
    # A cell is one line, and ends at a bar.
    assert r"| Trained on | a \| b c |" in rows(card)
    assert "| Hidden channels | many |" in rows(card)
    assert len(rows(card)) == len({row.split(" | ")[0] for row in rows(card)})
    assert "| Levels | 2 |" in rows(card) and "| Receptive field | 3 steps |" in rows(
        card
    )


def test_a_layer_of_keras_has_no_levels():
    model = TrellisLM(3, [keras.layers.GRU(5), keras.layers.LSTM(4)], embedding_units=4)
    card = cards.card("It", {}, model, {}, {})
    assert "| Layer | RecurrentLayer |" in rows(card)
    assert "| Receptive field | all steps before |" in rows(card)
    assert "Levels" not in card and "Kernel" not in card
