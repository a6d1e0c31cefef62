"""The constructors of 0.1, and configs that it saved."""

import numpy as np
import pytest

from keras_trellis import TrellisClassifier, TrellisLayer, TrellisLM

IDS = np.arange(8).reshape(2, 4)


def test_a_language_model_takes_the_arguments_of_its_layer_for_one_release():
    layer = "4, depth=2, seed=1, recurrent_dropout=0.1, output_units=3"
    written = rf"TrellisLM\(9, TrellisLayer\({layer}\)"
    with pytest.warns(DeprecationWarning, match=written) as warned:
        old = TrellisLM(9, 4, depth=2, embedding_units=3, recurrent_dropout=0.1, seed=1)
    assert warned[0].filename == __file__
    layer = TrellisLayer(
        4, depth=2, recurrent_dropout=0.1, output_units=3, seed=1, name="trellis"
    )
    new = TrellisLM(9, layer, embedding_units=3, seed=1)
    assert old.get_config() | {"name": ""} == new.get_config() | {"name": ""}


@pytest.mark.parametrize(
    "arguments",
    [((9, 4, 2), {}), ((9,), {"units": 4, "depth": 2}), ((9, 4), {"depth": 2})],
)
def test_a_classifier_takes_the_arguments_of_its_layer_for_one_release(arguments):
    positional, named = arguments
    with pytest.warns(DeprecationWarning, match="TrellisClassifier"):
        model = TrellisClassifier(*positional, **named, output_units=3, dropout=0.2)
    assert (model.trellis.units, model.trellis.depth, model.trellis.output_units) == (
        4,
        2,
        3,
    )
    # It drops elements of the input.
    assert (model.dropout, model.trellis.dropout) == (0.2, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sizes_that_follow_others_and_errors_of_the_old_call():
    assert TrellisLM(9, 4, 2, embedding_units=3).trellis.output_units == 3
    assert TrellisClassifier(4, 6, 2).trellis.output_units == 4
    for arguments, message in (
        ({"embedding_units": 0}, "`embedding_units`.*0"),
        ({"output_units": 2}, "output_units=2, embedding_units=3"),
        ({"dropout": 1.2}, "`dropout`.*1.2"),
        (
            {"return_state": False},
            "`return_state` is an argument of TrellisLayer that a model",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            TrellisLM(9, 4, 2, **{"embedding_units": 3, **arguments})


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
