"""Keras's examples with another layer: the table of docs/howto/drop_in.md says what is so."""

import keras
import pytest

from tests.contract import examples_table, keras_examples
from tests.contract.keras_examples import EXAMPLES, LAYERS, LIMITS, RIGHT

PAGE = examples_table.PAGE.read_text(encoding="utf-8")
TABLE = examples_table.read(PAGE)
# Little is as quick as what breaks. `python -m tests.contract.examples_table` runs every cell.
QUICK = [
    ("ctc_asr", "StackedLSTM"),
    ("ctc_asr", "TLSTM"),
    ("handwriting_masked_ctc", "LSTM"),
    ("lstm_seq2seq", "TrellisLayer"),
    ("rnn_guide_subclass_cell", "groups"),
    ("traffic_forecasting", "IHCLSTM"),
    ("traffic_forecasting", "groups"),
]


@pytest.mark.skipif(
    keras.backend.backend() not in examples_table.BACKENDS,
    reason="the table has no column for this backend",
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("example", "layer"), QUICK)
def test_a_cell_of_the_table(example, layer):
    backend = examples_table.BACKENDS[keras.backend.backend()]
    assert keras_examples.cell(example, layer) == TABLE[example, layer][backend]


def test_the_page_has_every_example_and_says_what_its_cells_mean():
    assert [*TABLE] == [(example, layer) for example in EXAMPLES for layer in LAYERS]
    assert examples_table.written(PAGE, TABLE) == PAGE
    said = {text for texts in TABLE.values() for text in texts.values()}
    assert said - {RIGHT} == {*LIMITS}
    for text in LIMITS:
        assert f"| **{text}** | " in PAGE


def test_one_backend_leaves_the_other_as_it_is():
    place = ("addition_rnn", "TLSTM")
    table = {key: dict(said) for key, said in TABLE.items()}
    table[place]["torch"] = "no cell"
    page = examples_table.written(PAGE, table)
    assert "TensorFlow: yes, torch: no cell" in page
    assert examples_table.read(page) == table
