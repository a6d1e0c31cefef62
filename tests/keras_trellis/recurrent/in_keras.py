"""What every gated layer does in Keras: it is read both ways, saved, and goes on."""

import keras
import numpy as np


def check_bidirectional_and_saved(layer, sequences, mask, path):
    """Compares a bidirectional layer with its halves, and with itself once it was saved."""
    inputs = keras.Input((None, sequences.shape[-1]), dtype="float64")
    both = keras.layers.Bidirectional(layer, dtype="float64")
    model = keras.Model(inputs, both(keras.layers.Masking(dtype="float64")(inputs)))
    padded = np.where(mask[..., None], sequences, 0)
    outputs = np.asarray(model(padded))
    backward = np.asarray(both.backward_layer(padded, mask=mask))[:, ::-1]
    np.testing.assert_array_equal(outputs[..., layer.units :], backward)
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_array_equal(again(padded), outputs)
    config = both.forward_layer.get_config()
    assert again.layers[-1].forward_layer.get_config() == config


def check_stateful(make, assert_close):
    """Compares three parts of a batch with the whole, and with itself after a reset.

    Args:
        make: takes the layer's arguments, and returns it and its sequences of five steps.
        assert_close: compares nests.
    """
    layer, sequences = make(stateful=True)
    whole = make()[0](sequences)
    pieces = [layer(part)[0] for part in np.split(sequences, [2, 3], axis=1)]
    assert_close(keras.ops.concatenate(pieces, 1), whole[0])
    layer.reset_state()
    assert_close(layer(sequences), whole)
