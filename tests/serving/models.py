"""The small models that tests export: the one place where tests make such models.

The fixture `exports` has the folder of each: a test run exports it once, whichever worker asks
first.

    python -m tests.serving.models FOLDER NAME

exports one to FOLDER/NAME, for a server other than the one that tests start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import keras
import numpy as np
import tensorflow as tf

from keras_trellis import (
    EquilibriumTrellisLayer,
    TrellisClassifier,
    TrellisLayer,
    TrellisLM,
    export,
    heads,
    recurrent,
)
from keras_trellis.export import Standardizer
from keras_trellis.formats.pieces import CHARACTERS as CHARACTERS_OF_BYTES

WORDS = [*"abcdefghij", "<unk>", "<eos>"]
CHARACTERS = [*"abcd é", "日", "<eos>"]  # without <unk>
# Names of pieces: of all bytes, of words, of a character, and of a part of it.
PIECES = ["<eos>", *(name for byte, name in CHARACTERS_OF_BYTES.items() if byte != 10)]
PIECES += ["Ġthe", "the", "Ġcat", "at", "æĹ¥", "æĹ", "ĠĠ"]
PERMUTATION = [3, 1, 4, 0, 5, 2]
IMAGES = tf.TensorSpec([None, 2, 3, 2], tf.uint8, "images")
LABELS = ["low", "mid", "high"]

# Of the page's model: two tokens that a page must not obey, and a fact that it must not either.
SCRIPT = "<script>document.title='taken'</script>"
IMAGE = "<img/src=x/onerror=document.title='taken'>"
FACTS = {
    "Trained on": "cats | mats",
    "Test perplexity": "12.34 (56 tokens)",
    "Made by": SCRIPT,
}
PAGE_WORDS = ["<eos>", "the", "cat", "sat", "on", "mat", SCRIPT, IMAGE]


def pixels(images: tf.Tensor) -> tf.Tensor:
    """Makes sequences `[B, 6, 2]` of images."""
    return tf.reshape(tf.cast(images, tf.float32) / 255, [tf.shape(images)[0], 6, 2])


class Model(NamedTuple):
    """A model, and how to export it.

    Attributes:
        make: makes it.
        vocabulary: of a language model.
        options: further arguments of the export.
    """

    make: Callable[[], keras.Model]
    vocabulary: Sequence[str] | None = None
    options: Mapping[str, Any] = {}


def _wide() -> keras.initializers.Initializer:
    keras.utils.set_random_seed(7)
    return keras.initializers.RandomNormal(stddev=0.3)  # so that answers differ


def _trellis(**kwargs) -> TrellisLayer:
    wide = _wide()
    settings = {"output_units": 4, "dilation_rate": (1, 2), **kwargs}
    return TrellisLayer(
        6, 3, kernel_initializer=wide, recurrent_initializer=wide, **settings
    )


def _language_model(size: int, layer: Any, **kwargs) -> TrellisLM:
    keras.utils.set_random_seed(7)
    embeddings = keras.initializers.RandomNormal(stddev=1.0)
    return TrellisLM(
        size, layer, embedding_units=4, embeddings_initializer=embeddings, **kwargs
    )


def _mixture() -> TrellisLM:
    layer = _trellis(gate="gru", output_units=5, weight_normalization=True)
    return _language_model(len(WORDS), layer, head=heads.MixtureOfSoftmaxes(2))


def _adaptive() -> TrellisLM:
    head = heads.AdaptiveSoftmax([4, 6])
    return _language_model(len(CHARACTERS), _trellis(), head=head)


def _recurrent() -> TrellisLM:
    keras.utils.set_random_seed(7)
    layers = [keras.layers.LSTM(5), keras.layers.GRU(4)]
    layers += [recurrent.TLSTM(4), recurrent.IRCGRU(4)]
    return _language_model(len(WORDS), layers)


def _stack() -> TrellisLM:
    """A model like the default one, whose cache had its state twice."""
    layer = EquilibriumTrellisLayer(
        8, groups=2, inject_groups=True, output_units=4, kernel_initializer=_wide()
    )
    return _language_model(9, layer)


def _of_random_weights(size: int, seed: int) -> TrellisLM:
    layer = TrellisLayer(8, 2, output_units=8)
    model = TrellisLM(size, layer, embedding_units=8)
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:  # large, so that answers differ
        variable.assign(random.normal(size=variable.shape))
    return model


def _classifier(**kwargs) -> TrellisClassifier:
    keras.utils.set_random_seed(8)
    model = TrellisClassifier(
        3, TrellisLayer(5, 3, dilation_rate=(1, 2, 4), output_units=3), **kwargs
    )
    model.build([None, None, 2])
    return model


# Those that tests run without TensorFlow, too.
RUNTIME = {"runtime": True}

# One for each kind of head, of layer, of text and of input: these answer to every loader.
KINDS = {
    "tied": Model(
        lambda: _language_model(len(WORDS), _trellis()),
        WORDS,
        {"detokenize": Standardizer(["replace", "( [b-d]) ", r"\1-"]), **RUNTIME},
    ),
    "mixture": Model(_mixture, WORDS),
    "adaptive": Model(
        _adaptive,
        CHARACTERS,
        {"detokenize": Standardizer(["replace", " b( |$)", r"b\1"]), **RUNTIME},
    ),
    "recurrent": Model(_recurrent, WORDS),
    "sequences": Model(_classifier, options={"labels": LABELS, **RUNTIME}),
    "images": Model(
        lambda: _classifier(permutation=PERMUTATION),
        options={"inputs": IMAGES, "preprocess": pixels, **RUNTIME},
    ),
}
MODELS = {
    **KINDS,
    "stack": Model(
        _stack,
        ["<eos>", "<unk>", *"abcdefg"],
        {
            "precision": "int8",
            "standardize": Standardizer(["lower"], ["replace", r"\p{Nd}+", "g"]),
            **RUNTIME,
        },
    ),
    "pieces": Model(
        lambda: _of_random_weights(len(PIECES), seed=2),
        PIECES,
        {"pieces": True, **RUNTIME},
    ),
    "words": Model(
        lambda: _language_model(9, _trellis()), ["<eos>", "<unk>", *"abcdef", "é"]
    ),
    "page": Model(
        lambda: _of_random_weights(8, seed=0), PAGE_WORDS, {"facts": FACTS, **RUNTIME}
    ),
    "page_characters": Model(
        lambda: _of_random_weights(5, seed=1),
        ["<eos>", " ", "a", "b", "<unk>"],
        RUNTIME,
    ),
}
VOCABULARIES = {
    name: kind.vocabulary for name, kind in KINDS.items() if kind.vocabulary
}


class Exports(Mapping[str, Path]):
    """The folders of models' versions by name; a model is exported when it is first asked for.

    Args:
        folder: where to export, which processes may share.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Path:
        version = self._folder / name / "1"
        with filelock.FileLock(self._folder / f"{name}.lock"):
            if not version.exists():
                _export(MODELS[name], version.parent)
        return version

    def __iter__(self) -> Iterator[str]:
        return iter(MODELS)

    def __len__(self) -> int:
        return len(MODELS)


def _export(model: Model, folder: Path) -> None:
    if model.vocabulary is None:
        export.export_classifier(model.make(), folder, **model.options)
    else:
        export.export_language_model(
            model.make(), model.vocabulary, folder, **model.options
        )


if __name__ == "__main__":
    _export(MODELS[sys.argv[2]], Path(sys.argv[1]) / sys.argv[2])
