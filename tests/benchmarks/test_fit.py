"""The benchmark of Keras's `fit`, at a tiny size."""

import keras

from benchmarks import fit


def test_a_layer_is_trained_and_timed():
    case = fit.Case(2, 3, 1, False, {})
    row = fit.measure(case, lambda **arguments: keras.layers.LSTM(2, **arguments), 2, 3)
    assert row.pop("parameters") == 4 * 2 * (1 + 2 + 1)
    assert float(row.pop("first_epoch_s")) > 0
    fastest, median, slowest = map(float, row.values())
    assert 0 < fastest <= median <= slowest


def test_all_layers_can_be_made():
    for case in fit.CASES.values():
        for title, make in case.layers.items():
            assert title.startswith(f"Keras's {type(make()).__name__}") or (
                title.startswith(type(make()).__name__)
            )
