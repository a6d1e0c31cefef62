"""Small models, and what is exported of them: one for each kind of head, of text and of input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf

from keras_trellis import TrellisClassifier, TrellisLM, export, heads

WORDS = [*"abcdefghij", "<unk>", "<eos>"]
CHARACTERS = [*"abcd é", "日", "<eos>"]  # without <unk>
VOCABULARIES = {"tied": WORDS, "mixture": WORDS, "adaptive": CHARACTERS}
PERMUTATION = [3, 1, 4, 0, 5, 2]


def _language_model(size: int, **kwargs) -> TrellisLM:
    keras.utils.set_random_seed(7)
    wide = keras.initializers.RandomNormal(stddev=0.3)  # so that answers differ
    return TrellisLM(
        size,
        6,
        3,
        embedding_units=4,
        dilation_rate=(1, 2),
        kernel_initializer=wide,
        recurrent_initializer=wide,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
        **kwargs,
    )


def _mixture() -> TrellisLM:
    head = heads.MixtureOfSoftmaxes(2)
    kwargs = {"gate": "gru", "output_units": 5, "weight_normalization": True}
    return _language_model(len(WORDS), head=head, **kwargs)


def _classifier(**kwargs) -> TrellisClassifier:
    keras.utils.set_random_seed(8)
    model = TrellisClassifier(3, 5, 3, **kwargs)
    model.build([None, None, 2])
    return model


MODELS: dict[str, Callable[[], keras.Model]] = {
    "tied": lambda: _language_model(len(WORDS)),
    "mixture": _mixture,
    "adaptive": lambda: _language_model(len(CHARACTERS), head=heads.AdaptiveSoftmax([4, 6])),
    "sequences": _classifier,
    "images": lambda: _classifier(permutation=PERMUTATION),
}
IMAGES = tf.TensorSpec([None, 2, 3, 2], tf.uint8, "images")
LABELS = ["low", "mid", "high"]


def pixels(images: tf.Tensor) -> tf.Tensor:
    """Makes sequences `[B, 6, 2]` of images."""
    return tf.reshape(tf.cast(images, tf.float32) / 255, [tf.shape(images)[0], 6, 2])


def export_model(name: str, model: keras.Model, folder: Path) -> Path:
    """Exports a model of `MODELS` to a folder; returns the version's folder."""
    if name == "sequences":
        return Path(export.export_classifier(model, folder, labels=LABELS))
    if name == "images":
        return Path(export.export_classifier(model, folder, inputs=IMAGES, preprocess=pixels))
    return Path(export.export_language_model(model, VOCABULARIES[name], folder))
