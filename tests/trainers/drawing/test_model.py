"""DRAW: the model in `fit`, its two ways of drawing, its parts, and what it refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.recurrent import IHCLSTMCell
from trainers.drawing import model as drawing
from trainers.drawing.model import DRAW

SHAPE = (6, 5, 1)


def small(**changes):
    values = dict(image_shape=SHAPE, steps=3, units=7, latent_units=4, seed=0)
    return DRAW(**{**values, "attention": (3, 2), **changes})


def bars(count=64):
    """Images of one bright row, or one bright column."""
    images = np.zeros((count, *SHAPE), "float32")
    for number in range(count):
        images[number, number % 6] = 1.0
    return images


@pytest.mark.parametrize(
    "attention, cell, jit_compile",
    [
        (None, keras.layers.GRUCell, False),
        ((3, 2), None, "auto"),  # as Keras chooses: XLA takes its time
        ((2, 3), IHCLSTMCell, False),
    ],
)
def test_fit_lowers_the_bound_with_any_cell(attention, cell, jit_compile):
    keras.utils.set_random_seed(0)
    model = small(attention=attention, decoder_cell=cell and cell(9))
    model.compile(keras.optimizers.Adam(2e-2), jit_compile=jit_compile)
    history = model.fit(bars(), batch_size=16, epochs=15, verbose=0).history
    assert set(history) == {"loss", "reconstruction", "kl"}
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    found = model.evaluate(bars(), return_dict=True, verbose=0)
    assert found["loss"] == pytest.approx(found["reconstruction"] + found["kl"], 1e-5)


def test_the_divergence_is_that_of_two_normal_distributions():
    rng = np.random.default_rng(0)
    mean, log_deviation = rng.normal(size=(2, 3, 4))
    values, step = np.linspace(-40, 40, 400_001, retstep=True)
    expected = np.zeros(3)
    for row, number in np.ndindex(3, 4):
        deviation = np.exp(log_deviation[row, number])
        standard = (values - mean[row, number]) / deviation
        log_q = -(standard**2) / 2 - np.log(deviation)
        density = np.exp(log_q) / np.sqrt(2 * np.pi)
        expected[row] += step * np.sum(density * (log_q + values**2 / 2))
    found = drawing.divergence(tf.constant(mean), tf.constant(log_deviation))
    assert_allclose(found, expected, rtol=1e-7)
    at_prior = drawing.divergence(tf.zeros([2, 4]), tf.zeros([2, 4]))
    assert_array_equal(at_prior, [0, 0])


def test_a_drawing_has_the_canvas_of_every_step_and_is_a_function_of_the_seed():
    model = small()
    images = bars(4)
    made, again, other = (model.generate(4, seed) for seed in (1, 1, 2))
    assert made.canvases.shape == (4, 3, *SHAPE) and made.written.shape == (4, 3, 4)
    assert made.read is None
    assert_array_equal(made.canvases, again.canvases)
    assert np.abs(made.canvases - other.canvases).max() > 0
    copied = model.reconstruct(images)
    assert copied.canvases.shape == (4, 3, *SHAPE) and copied.read.shape == (4, 3, 4)
    noise = model.noise(4, tf.constant([0, 1], "int64"))
    whole = model.bound(images, noise).canvas
    assert_allclose(copied.canvases[:, -1], tf.sigmoid(whole), rtol=1e-6)
    steps = np.diff(np.asarray(copied.canvases), axis=1)
    assert (np.abs(steps).max(axis=(0, 2, 3, 4)) > 0).all()


def test_the_noise_of_each_step_and_image_is_its_own():
    noise = small(steps=5).noise(6, tf.constant([3, 0]))
    assert len(np.unique(noise)) == noise.shape.num_elements()


def test_what_is_saved_is_what_is_loaded(tmp_path):
    model = small(decoder_cell=IHCLSTMCell(5))
    model.save(tmp_path / "draw.keras")
    loaded = keras.models.load_model(tmp_path / "draw.keras")
    one, other = (each.generate(2, 0).canvases for each in (model, loaded))
    assert_array_equal(one, other)


class Flat(keras.layers.Layer):
    """A cell with an output of another shape than [B, units]."""

    units = state_size = 4

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def call(self, inputs, states):
        return tf.zeros(self.shape), states


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"attention": (6, 2)}, r"`attention` must be .* 1 to 5,.*attention=\(6, 2\)"),
        ({"attention": (2, 0)}, r"`attention` must be .*attention=\(2, 0\)"),
        ({"attention": 3}, "`attention` must be .*attention=3"),
        ({"image_shape": (6, 5)}, r"`image_shape` must be .*image_shape=\(6, 5\)"),
        ({"steps": 0}, "`steps` must be a positive integer.*steps=0"),
        ({"units": 1.5}, "`units` must be a positive integer"),
        ({"latent_units": -1}, "`latent_units` must be a positive integer"),
        ({"decoder_cell": Flat([1, 3])}, r"`decoder_cell` must .*output of \(1, 3\)"),
        ({"decoder_cell": Flat([1])}, r"`decoder_cell` must return .*output of \(1,\)"),
        (
            {"decoder_cell": keras.layers.LSTMCell(4, dropout=0.5)},
            "`decoder_cell` must have no dropout.*LSTMCell with dropout=0.5",
        ),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_images_of_another_shape_or_outside_0_to_1_are_refused():
    model = small()
    model.compile("sgd")
    turned = bars(4).transpose(0, 2, 1, 3)
    shape = r"`images` must be of shape \[B, 6, 5, 1\].*of shape \[{}, 5, 6, 1\]"
    with pytest.raises(ValueError, match=shape.format(4)):
        model.reconstruct(turned)
    with pytest.raises(ValueError, match=shape.format("None")):
        model.fit(turned, verbose=0)
    range_ = r"`images` must have values from 0 to 1. Received: values from 0 to 255"
    for images in (255 * bars(4), (255 * bars(4)).astype("uint8")):
        with pytest.raises(ValueError, match=range_):
            model.bound(images)
    with pytest.raises(ValueError, match="from nan to nan|values from 0 to nan"):
        model.bound(bars(4) * np.nan)
    with pytest.raises(tf.errors.InvalidArgumentError, match="values from 0 to 1"):
        model.fit(255 * bars(4), verbose=0)
    with pytest.raises(ValueError, match="images alone: `y` and `sample_weight`"):
        model.fit(bars(4), bars(4), verbose=0)
