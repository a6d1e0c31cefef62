"""Configs that 0.1 saved, whose models held no layer."""

import numpy as np
import pytest

from keras_trellis import TrellisClassifier, TrellisLM
from tests.refusals import refuses

IDS = np.arange(8).reshape(2, 4)


def test_the_constructors_of_0_1_are_refused():
    with refuses("`trellis` must be a sequence layer.*=4"):
        TrellisLM(9, 4, embedding_units=3)
    with refuses("depth"):
        TrellisClassifier(9, 4, depth=2)


def test_dilations_that_no_level_uses_are_left_out_of_a_config_of_0_1():
    config = {
        "classes": 3,
        "units": 4,
        "depth": 2,
        "dilation_rate": [1, 3, 9],
        "output_units": None,
    }
    with pytest.warns(UserWarning, match="dilation_rate"):
        model = TrellisClassifier.from_config(config)
    assert model.receptive_field == 5
    assert model.trellis.get_config()["dilation_rate"] == [1, 3]


def test_a_config_of_0_1_makes_the_same_model_without_a_warning(recwarn):
    config = {
        "name": "mine",
        "dtype": "float32",
        "vocabulary_size": 9,
        "units": 4,
        "depth": 2,
        "dilation_rate": [1, 2],
        "gate": "lstm",
        "embedding_units": 3,
        "output_units": None,
        "seed": 3,
    }
    model = TrellisLM.from_config(config)
    assert model.trellis.get_config()["dilation_rate"] == [1, 2]
    assert model.trellis.name == "trellis" and model.trellis.seed == 3
    assert model(IDS).shape == (2, 4, 9)
    assert not [each for each in recwarn if each.category is DeprecationWarning]
