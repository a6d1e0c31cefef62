"""The released language model's training step with every dropout on, by the masks that it drew."""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from keras import ops

from keras_trellis import convert
from keras_trellis.models.losses import LossTerms
from tests.golden import assert_equal, language_model, part


def check_dropped_step(arrays, config):
    """Compares a `dropped_*` file's loss terms, final state and gradients.

    Args:
        arrays: The file's arrays.
        config: Its sizes, its dropout rates and the weights of its loss.
    """
    model = model_of(arrays, config, "param.")
    state = [arrays["initial_hidden"], arrays["initial_cell"]]
    with drawing(masks_of(arrays)), tf.GradientTape() as tape:
        terms, final = model.loss_terms(
            arrays["ids"], arrays["targets"], initial_state=state, training=True
        )
        loss = tf.add_n(terms)
    for name, value in zip(LossTerms._fields, arrays["terms"], strict=True):
        assert_equal(getattr(terms, name), value, name)
    for name, value in zip(("hidden", "cell"), final, strict=True):
        assert_equal(value, arrays[f"final_{name}"], name)
    expected = model_of(arrays, config, "grad.").trainable_variables
    gradients = tape.gradient(loss, model.trainable_variables)
    for gradient, other in zip(gradients, expected, strict=True):
        assert_equal(gradient, other.numpy(), other.path)


def model_of(arrays, config, prefix):
    mixture = {"latent_dropout": config["dropoutl"]} if config["experts"] else {}
    return language_model(
        arrays,
        config,
        prefix,
        embedding_dropout=config["emb_dropout"],
        dropout=config["dropouti"],
        recurrent_dropout=config["dropouth"],
        weight_dropout=config["wdrop"],
        output_dropout=config["dropout"],
        activation_weight=config["alpha"],
        temporal_weight=config["beta"],
        **mixture,
    )


def masks_of(arrays):
    """The masks by the names of our random streams and their numbers of axes."""
    theirs = part(arrays, "mask.")
    weights = {f"weight{i}": theirs.pop(f"weights.{i - 1}") for i in (1, 2)}
    channels = len(weights["weight1"])
    # A layer with a tap fewer has a mask as its kernel, with the gate blocks in our order.
    kernels = convert.layer_from_torch(
        {f"full_conv.{name}": value for name, value in weights.items()}
        | {"full_conv.bias2": np.zeros(channels)},
        depth=1,
        output_units=1,
        dilation_rate=1,
        dtype="float64",
    )
    masks = {
        ("kernel_weights", 3): kernels.kernel.numpy(),
        ("recurrent_weights", 3): kernels.recurrent_kernel.numpy(),
        ("states", 3): np.swapaxes(theirs.pop("states.0"), 1, 2),
    }
    names = {
        "words.0": "words",
        "variational3.0": "inputs",
        "variational3.1": "outputs",
        "variational4.0": "outputs",
        "variational3.2": "latents",
        "variational4.1": "latents",
    }
    return masks | {(names[each], mask.ndim): mask for each, mask in theirs.items()}


@contextlib.contextmanager
def drawing(masks):
    """Has the layers draw these masks, each of them once."""
    left = dict(masks)

    def drawn(seed, name, rate, shape, dtype):
        found = left.pop((name, len(shape)))
        np.testing.assert_array_equal(shape, found.shape)
        np.testing.assert_allclose(found[found != 0], 1 / (1 - rate))
        return ops.convert_to_tensor(found, dtype)

    with (
        mock.patch("keras_trellis.core.dropout.stream_mask", drawn),
        mock.patch("keras_trellis.layers.trellis_base.stream_mask", drawn),
    ):
        yield
    assert not left
