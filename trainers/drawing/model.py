"""DRAW: an encoder and a decoder that look at an image and draw it, step by step.

Source: Gregor et al. 2015, "DRAW: A Recurrent Neural Network For Image Generation", equations
(3)-(11). Kuo et al. 2020 exchange the decoder's cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.core import dropout
from keras_trellis.types import Tensor
from trainers.drawing.places import PLACE, Reader, Shape, Writer
from trainers.models.cells import initial_states, output_units

States = list[Tensor]


class Bound(NamedTuple):
    """The two parts of the bound on an image's negative log-likelihood, and the drawing.

    Attributes:
        reconstruction: -log p(image | canvas) in nats, `[B]`.
        kl: the sum of the steps' divergences from the prior, in nats, `[B]`.
        canvas: the last canvas before the sigmoid, `[B, height, width, C]`.
    """

    reconstruction: Tensor
    kl: Tensor
    canvas: Tensor


class Drawing(NamedTuple):
    """How images came to be, after each of T steps.

    Attributes:
        canvases: the probability of each pixel, `[B, T, height, width, C]`.
        written: where each step wrote, `[B, T, 4]`: the x and y of the centre, in pixels counted
            from 1, the side of the grid and the deviation of its filters, in pixels.
        read: where each step looked; None if the drawing is no copy of an image.
    """

    canvases: Tensor
    written: Tensor
    read: Tensor | None


class _State(NamedTuple):
    """What a step leaves to the next one."""

    canvas: Tensor
    output: Tensor
    encoder: States
    decoder: States
    kl: Tensor


@keras.saving.register_keras_serializable("trainers")
class DRAW(keras.Model):
    """A generative model of images whose pixels are probabilities from 0 to 1.

    `compile(optimizer)` and `fit(images)` minimise a bound on -log p(image) in nats.
    `evaluate(images)` returns it as "loss", with its parts "reconstruction" and "kl".
    `model(images)` returns copies of images, drawn by all steps.

    Args:
        image_shape: (height, width, channels).
        steps: T, the number of steps of a drawing.
        units: the units of the encoder, and of the decoder's LSTM.
        latent_units: Z, the numbers that the decoder reads at a step.
        attention: (read, write), the taps along each axis of the grids through which the model
            reads and writes; None: it reads and writes the whole image.
        decoder_cell: any Keras cell whose output is `[B, n]`, without dropout of its own. Default:
            `keras.layers.LSTMCell(units)`.
        seed: the seed of the noise of `fit`, `evaluate` and calls; None: drawn at random.
        **kwargs: `name`, `dtype`, `trainable` of every Keras model.

    Raises:
        ValueError: an argument is not what it must be.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        steps: int,
        units: int,
        latent_units: int,
        *,
        attention: tuple[int, int] | None = None,
        decoder_cell: keras.layers.Layer | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image_shape = _shape(image_shape)
        self.steps = arguments.positive("steps", steps)
        self.units = arguments.positive("units", units)
        self.latent_units = arguments.positive("latent_units", latent_units)
        self.attention = _attention(attention, self.image_shape)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_jit = False  # XLA would leave out the check of the pixels
        policy = self.dtype_policy
        read, write = self.attention or (None, None)
        self.reader = Reader(self.image_shape, read, name="reader", dtype=policy)
        self.writer = Writer(self.image_shape, write, name="writer", dtype=policy)
        self.encoder = keras.layers.LSTMCell(self.units, name="encoder", dtype=policy)
        self.mean = keras.layers.Dense(self.latent_units, name="mean", dtype=policy)
        self.log_deviation = keras.layers.Dense(
            self.latent_units, name="log_deviation", dtype=policy
        )
        if decoder_cell is None:
            decoder_cell = keras.layers.LSTMCell(units, name="decoder", dtype=policy)
        self.decoder_cell = decoder_cell
        self.reconstruction = keras.metrics.Mean("reconstruction")
        self.kl = keras.metrics.Mean("kl")
        self._build_parts()

    def _build_parts(self) -> None:
        _check_dropout(self.decoder_cell)
        if not self.decoder_cell.built:
            self.decoder_cell.build((None, self.latent_units))
        outputs = output_units("`decoder_cell`", self.decoder_cell, self.latent_units)
        self.output_units = outputs
        self.reader.build((None, outputs))
        self.writer.build((None, outputs))
        self.encoder.build((None, self.reader.size + outputs))
        self.mean.build((None, self.units))
        self.log_deviation.build((None, self.units))
        self.built = True

    # What Keras calls

    def call(self, images: Tensor, training: bool = False) -> Tensor:
        """Returns copies of images, probabilities `[B, height, width, C]`; adds their bound."""
        del training
        bound = self.bound(images)
        self.add_loss(tf.reduce_mean(bound.reconstruction + bound.kl))
        self.reconstruction.update_state(bound.reconstruction)
        self.kl.update_state(bound.kl)
        return tf.sigmoid(bound.canvas)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns what `call` has added, the mean bound of a batch, and regularizers."""
        if y is not None or sample_weight is not None:
            raise ValueError(
                "DRAW learns from images alone: `y` and `sample_weight` must be None. "
                f"Received: y={y}, sample_weight={sample_weight}"
            )
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        names = ("image_shape", "steps", "units", "latent_units", "attention", "seed")
        cell = keras.saving.serialize_keras_object(self.decoder_cell)
        own = {name: getattr(self, name) for name in names}
        return super().get_config() | own | {"decoder_cell": cell}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> DRAW:
        """Returns the model of a config."""
        cell = keras.saving.deserialize_keras_object(
            config["decoder_cell"], custom_objects=custom_objects
        )
        return cls(**{**config, "decoder_cell": cell})

    # What others call

    def bound(self, images: Any, noise: Tensor | None = None) -> Bound:
        """Returns the bound on -log p(image) of images, in its parts.

        Args:
            images: `[B, height, width, C]`, from 0 to 1.
            noise: standard normal numbers, `[T, B, Z]`; None: drawn from the model's generator.

        Raises:
            ValueError: the images have another shape, or values outside 0 to 1. In a graph the
                values raise tf.errors.InvalidArgumentError.
        """
        images = self._checked(images)
        if noise is None:
            seed = dropout.next_seed(self.seed_generator)
            rows = tf.shape(images)[0]
            noise = self.noise(rows, seed)
        state, _ = self._draw(images, noise, keep=False)
        # As the sum of both terms of -log Bernoulli(x | sigmoid(canvas)).
        losses = tf.nn.sigmoid_cross_entropy_with_logits(images, state.canvas)
        reconstruction = tf.reduce_sum(losses, [1, 2, 3])
        return Bound(reconstruction, state.kl, state.canvas)

    def noise(self, rows: Any, seed: Tensor) -> Tensor:
        """Returns the noise of all steps, `[T, rows, Z]`, a function of a seed `[2]`."""
        shape = [self.steps, rows, self.latent_units]
        return tf.random.stateless_normal(
            shape,
            seed,
            dtype=self.compute_dtype,
            alg="philox",
        )

    def generate(self, count: int, seed: int) -> Drawing:
        """Returns new images with the canvas after every step; a function of the seed."""
        count = arguments.positive("count", count)
        noise_seed = tf.constant([seed, 0], "int64")
        noise = self.noise(count, noise_seed)
        _, (canvases, written) = self._draw(None, noise, keep=True)
        return Drawing(canvases, written, None)

    def reconstruct(self, images: Any, seed: int = 0) -> Drawing:
        """Returns copies of images `[B, height, width, C]`, with the canvas after every step.

        Raises:
            ValueError: as `bound`.
        """
        images = self._checked(images)
        rows = tf.shape(images)[0]
        noise_seed = tf.constant([seed, 1], "int64")
        noise = self.noise(rows, noise_seed)
        _, (canvases, written, read) = self._draw(images, noise, keep=True)
        return Drawing(canvases, written, read)

    # The steps

    def _draw(
        self, images: Tensor | None, noise: Tensor, keep: bool
    ) -> tuple[_State, list[Tensor]]:
        """Takes all steps.

        Args:
            images: what to copy; None: the noise is what the decoder reads.
            noise: `[T, B, Z]`.
            keep: whether to return what each step did.

        Returns:
            the last state; the steps' canvases, places written and places read, each `[B, T, ...]`.
        """
        shapes: list[list[int | None]] = []
        if keep:
            shapes = [[None, *self.image_shape], [None, PLACE]]
        if keep and images is not None:  # without images no place is read
            shapes.append([None, PLACE])
        arrays = [
            tf.TensorArray(noise.dtype, self.steps, element_shape=shape)
            for shape in shapes
        ]

        def step(number: Tensor, state: _State, arrays: Any) -> Any:
            state, values = self._step(images, noise[number], state)
            pairs = zip(arrays, values, strict=False)
            written = [array.write(number, value) for array, value in pairs]
            return number + 1, state, written

        rows = tf.shape(noise)[1]
        _, state, written = tf.while_loop(
            lambda number, *_: number < self.steps,
            step,
            (0, self._begin(rows), arrays),
            maximum_iterations=self.steps,
        )
        by_steps = (array.stack() for array in written)  # the steps come first
        by_rows = [tf.einsum("tb...->bt...", values) for values in by_steps]
        return state, by_rows

    def _begin(self, rows: Tensor) -> _State:
        return _State(
            tf.zeros([rows, *self.image_shape], self.compute_dtype),
            tf.zeros([rows, self.output_units], self.compute_dtype),
            initial_states(self.encoder, rows),
            initial_states(self.decoder_cell, rows),
            tf.zeros([rows], self.compute_dtype),
        )

    def _step(
        self, images: Tensor | None, noise: Tensor, state: _State
    ) -> tuple[_State, list[Tensor]]:
        """Returns the next state, and what to keep: the canvas, the places written and read."""
        latent = noise
        encoder = state.encoder
        kl = state.kl
        read = []
        if images is not None:
            hidden, encoder, place = self._look(images, state)
            mean = self.mean(hidden)
            log_deviation = self.log_deviation(hidden)
            latent = mean + tf.exp(log_deviation) * noise
            kl += divergence(mean, log_deviation)
            read = [place]
        output, decoder = self.decoder_cell(latent, state.decoder)
        change, written = self.writer(output)
        canvas = state.canvas + change
        outputs = [tf.sigmoid(canvas), written, *read]
        state = _State(
            canvas=canvas,
            output=output,
            encoder=list(encoder),
            decoder=list(decoder),
            kl=kl,
        )
        return state, outputs

    def _look(self, images: Tensor, state: _State) -> tuple[Tensor, States, Tensor]:
        """Returns the encoder's output and states, and the place where it looked."""
        errors = images - tf.sigmoid(state.canvas)
        seen, place = self.reader(images, errors, state.output)
        inputs = tf.concat([seen, state.output], -1)
        hidden, states = self.encoder(inputs, state.encoder)
        return hidden, states, place

    def _checked(self, images: Any) -> Tensor:
        """Returns images in the model's dtype, or raises an error."""
        images = tf.convert_to_tensor(images)
        if not images.shape.is_compatible_with([None, *self.image_shape]):
            raise ValueError(
                f"`images` must be of shape [B, {_by(self.image_shape)}], as `image_shape` says. "
                f"Received: images of shape [{_by(images.shape)}]"
            )
        return _checked_values(tf.cast(images, self.compute_dtype))


def _checked_values(images: Tensor) -> Tensor:
    """Returns images, or raises an error where a value is not from 0 to 1."""
    message = "`images` must have values from 0 to 1. Received: values from"
    inside = (images >= 0) & (images <= 1)
    all_inside = tf.reduce_all(inside)
    least = tf.reduce_min(images)
    largest = tf.reduce_max(images)
    if not tf.executing_eagerly():  # the values are known when the graph runs
        values = [message, least, "to", largest]
        assertion = tf.debugging.Assert(all_inside, values)
        with tf.control_dependencies([assertion]):
            return tf.identity(images)
    if not all_inside:
        raise ValueError(f"{message} {least:g} to {largest:g}")
    return images


def divergence(mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Returns KL(N(mean, deviation^2) | N(0, 1)) in nats, summed over the last axis.

    It is 1/2 sum(mean^2 + deviation^2 - log deviation^2 - 1); equation (11) of the paper takes off
    1/2 a step where it must be 1/2 for each of the Z numbers.
    """
    log_variance = 2 * log_deviation
    terms = tf.square(mean) + tf.exp(log_variance) - log_variance - 1
    return tf.reduce_sum(terms, -1) / 2


def _shape(value: Any) -> Shape:
    try:
        height, width, channels = (arguments.positive("", size) for size in value)
    except (TypeError, ValueError):
        expected = "three positive integers, (height, width, channels)"
        raise arguments.refusal("image_shape", value, expected) from None
    return height, width, channels


def _attention(value: Any, image_shape: Shape) -> tuple[int, int] | None:
    if value is None:
        return None
    most = min(image_shape[:2])
    try:
        read, write = (arguments.positive("", size) for size in value)
        if max(read, write) > most:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"`attention` must be None or two integers from 1 to {most}, the image's shorter "
            f"side. Received: attention={value!r}, image_shape={image_shape}"
        ) from None
    return read, write


def _check_dropout(cell: Any) -> None:
    for name in ("dropout", "recurrent_dropout"):
        rate = getattr(cell, name, 0)
        if rate:
            raise ValueError(
                f"`decoder_cell` must have no dropout: a cell keeps its masks from call to call. "
                f"Received: a {type(cell).__name__} with {name}={rate}"
            )


def _by(shape: Sequence[int | None]) -> str:
    return ", ".join(str(size) for size in shape)
