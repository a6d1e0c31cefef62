"""SavedModels for TensorFlow Serving, and for whatever else loads a SavedModel.

They load without this package. `keras.layers.TFSMLayer(path, call_endpoint=NAME)` takes the one
input of a signature as it is, and several as a dictionary. The methods of `LanguageModelEndpoints`
and `ClassifierEndpoints` describe the signatures.

    from keras_trellis.export import export_language_model

    export_language_model(model, vocabulary, "models/mine")
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_trellis.backend import current as backend

if backend.NAME != "tensorflow":
    raise ImportError(
        "keras_trellis.export writes SavedModels, which TensorFlow runs. Received: Keras on the "
        f"backend {backend.NAME!r}. Save the model as a .keras file, and export it in a process "
        "with KERAS_BACKEND=tensorflow."
    )

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from keras_trellis.export import lowering, saving, versions  # noqa: E402
from keras_trellis.export.cards import card  # noqa: E402
from keras_trellis.export.classifier import ClassifierEndpoints  # noqa: E402
from keras_trellis.export.language_model import LanguageModelEndpoints  # noqa: E402
from keras_trellis.export.pieces import PieceTokenizer  # noqa: E402
from keras_trellis.export.saving import Companions  # noqa: E402
from keras_trellis.export.standardizer import Standardizer  # noqa: E402
from keras_trellis.export.tokenizer import (  # noqa: E402
    Standardize,
    Tokenizer,
    WordTokenizer,
    check_vocabulary,
)
from keras_trellis.export.weights import (  # noqa: E402
    PRECISIONS,
    Weights,
    fingerprint,
    inference_model,
)
from keras_trellis.formats.manifest import NOT_STATED  # noqa: E402
from keras_trellis.formats.tokenizer import NAME as TOKENIZER  # noqa: E402
from keras_trellis.models.classifier import TrellisClassifier  # noqa: E402
from keras_trellis.models.language_model import TrellisLM  # noqa: E402

__all__ = [
    "PRECISIONS",
    "Standardizer",
    "export_classifier",
    "export_language_model",
    "inference_model",
]

_LANGUAGE_MODEL = {
    "Intended use": "telling how probable texts like the training text are, and continuing them",
    "Limits": "It answers no questions and follows no instructions. What it writes may be wrong, "
    "may offend, and may be copied from its training text. Of other kinds of text, other languages "
    "or many unknown words its numbers say little.",
}
_CLASSIFIER = {
    "Intended use": "telling these classes apart, in sequences like those of the training data",
    "Limits": "It names one of its classes whatever it is given. How far its probabilities can be "
    "trusted has not been measured.",
}


def export_language_model(
    model: TrellisLM,
    vocabulary: Sequence[str],
    path: str | os.PathLike[str],
    *,
    pieces: bool = False,
    standardize: Standardize | None = None,
    detokenize: Standardizer | None = None,
    precision: str = "float32",
    runtime: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> str:
    """Writes a language model as a new version of a served model.

    It computes in float32. A version appears whole or not at all, and none is overwritten; for
    object stores see `versions.publish`.

    Args:
        model: the model, trained, over any sequence layer.
        vocabulary: its tokens, in the order of the ids: words, or characters if a space is among
            them, or pieces of words. `<eos>` is the end of a line, and precedes every text. Unknown
            tokens read `<unk>`; without it they are an error.
        path: the model's folder; the version becomes a subfolder, a number.
        pieces: whether the tokens are names of pieces of words, see `keras_trellis.formats.pieces`.
        standardize: makes texts `[B]` like those that the model knows, as in
            `keras.layers.TextVectorization`: lower case, for example. None: leaves them as they
            are. `keras_trellis.serving.runtime` can do so too if it is a `Standardizer`.
        detokenize: makes texts as in print of what the model writes, words with single spaces
            between them. None: leaves them as they are.
        precision: how to store kernels and word vectors, "float32", "float16" or "int8"; see
            `inference_model`, which returns the model that gives the same answers.
        runtime: whether to write the model as ONNX too, for `keras_trellis.serving.runtime`, which
            needs no TensorFlow. A model without such a form gets a warning, and a line in its card
            and its manifest.
        facts: further rows of the model card, such as "Test perplexity", "Trained on" and "Licence
            of the data". They replace rows of the same name, such as "Intended use".

    Returns:
        the version's folder.

    Raises:
        ValueError: an argument is not what it must be, or the model's weights, or its answers to
            the warm-up requests, are not finite.
        ImportError: tensorflow-serving-api, which writes the warm-up requests, is not installed, or
            with `runtime` onnx, onnxruntime or tf2onnx.

    Examples:
        >>> import os
        >>> from keras_trellis import TrellisLayer, TrellisLM
        >>> from keras_trellis.export import export_language_model
        >>> layer = TrellisLayer(16, depth=4, output_units=8)
        >>> model = TrellisLM(4, layer, embedding_units=8)
        >>> vocabulary = ["<eos>", "<unk>", "to", "be"]
        >>> folder = export_language_model(model, vocabulary, "models/toy", runtime=True)
        >>> os.path.basename(folder)
        '1'
    """
    path = _checked_path(path, runtime)
    vocabulary = check_vocabulary(vocabulary, model.vocabulary_size, pieces)
    model = _finite(inference_model(model, precision), precision)
    weights = Weights(model, precision)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer: Tokenizer
        if pieces:
            tokenizer = PieceTokenizer(vocabulary, standardize, detokenize)
        else:
            tokenizer = WordTokenizer(vocabulary, Path(folder), standardize, detokenize)
        number = fingerprint(model, vocabulary)
        endpoints = LanguageModelEndpoints(model, tokenizer, weights, number)
        plain = endpoints.plain_cache
        beside = Companions(
            kind="language_model",
            fingerprint=number,
            texts={TOKENIZER: tokenizer.describe()},
            functions=functools.partial(lowering.language_model, model, plain)
            if runtime
            else None,
            scales=weights.scales,
            entries={"cache": plain.described(), "vocabulary_size": len(vocabulary)},
        )

        ready = "it is taken as it is" if standardize is None else NOT_STATED
        known = {
            "Vocabulary": f"{len(vocabulary):,} tokens",
            "Text is made ready": ready,
            "Text is cut": tokenizer.rule(),
            "Bytes of cache a row": f"{endpoints.cache.row_bytes:,}",
            "Weights kept in": precision,
        }
        known |= {**_LANGUAGE_MODEL, **(facts or {})}
        describe = functools.partial(card, "A language model", known, model)
        parts = {"tokenizer": tokenizer}
        signatures = endpoints.signatures()
        return saving.save(signatures, weights, parts, path, describe, beside)


def export_classifier(
    model: TrellisClassifier,
    path: str | os.PathLike[str],
    *,
    labels: Sequence[str] | None = None,
    inputs: tf.TensorSpec | None = None,
    preprocess: Callable[[tf.Tensor], tf.Tensor] | None = None,
    precision: str = "float32",
    runtime: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> str:
    """Writes a classifier as a new version of a served model.

    Args:
        model: the model, trained.
        path: see `export_language_model`.
        labels: the names of the classes; None: their numbers.
        inputs: the input of a request, if it is not sequences `[B, T, p]` and their lengths:
            images, for example, as `tf.TensorSpec([None, 28, 28], tf.uint8, "images")`.
        preprocess: makes sequences of `inputs`; without `inputs`, of a request's sequences, such as
            scaled ones of the same lengths.
        precision: see `export_language_model`.
        runtime: see `export_language_model`.
        facts: see `export_language_model`.

    Returns:
        the version's folder.

    Raises:
        ValueError: an argument is not what it must be, or the model's weights, or its answers to
            the warm-up requests, are not finite.
        ImportError: see `export_language_model`.

    Examples:
        >>> import os
        >>> import numpy as np
        >>> from keras_trellis import TrellisClassifier, TrellisLayer
        >>> from keras_trellis.export import export_classifier
        >>> layer = TrellisLayer(8, depth=4, dilation_rate=[1, 2, 4, 8])
        >>> model = TrellisClassifier(2, layer)
        >>> logits = model(np.ones([1, 10, 3], "float32"))
        >>> folder = export_classifier(model, "models/movements", labels=["walk", "run"])
        >>> os.path.basename(folder)
        '1'
    """
    path = _checked_path(path, runtime)
    labels = _checked_labels(labels, model.classes)
    if inputs is not None and (preprocess is None or not inputs.name):
        raise ValueError(
            "`inputs` must be a tf.TensorSpec with a name, and goes with `preprocess`. "
            f"Received: inputs={inputs!r}, preprocess={preprocess!r}"
        )
    if not model.built:
        raise ValueError(
            "`model` must be built: call it once. Received: a model without weights"
        )
    model = _finite(inference_model(model, precision), precision)
    weights = Weights(model, precision)
    endpoints = ClassifierEndpoints(model, labels, inputs, preprocess or tf.identity)
    beside = Companions(
        kind="classifier",
        fingerprint=fingerprint(model, labels),
        texts={},
        functions=functools.partial(lowering.classifier, endpoints)
        if runtime
        else None,
        scales=weights.scales,
        entries={"labels": labels},
    )

    known = {"Classes": ", ".join(labels), "Weights kept in": precision}
    known |= {**_CLASSIFIER, **(facts or {})}
    describe = functools.partial(card, "A classifier of sequences", known, model)
    return saving.save(endpoints.signatures(), weights, {}, path, describe, beside)


def _checked_path(path: str | os.PathLike[str], runtime: bool) -> str:
    """Returns the folder to export to, after a check that an export can be written there."""
    saving.check_requirements()
    if runtime:
        lowering.check_requirements()
    path = os.fspath(path)
    versions.check_folder(path)
    return path


def _finite(model: keras.Model, precision: str) -> keras.Model:
    """Returns a model, after a check that its weights, as stored, are finite."""
    for weight in model.weights:
        values = np.asarray(weight)
        wrong = values[~np.isfinite(values)]
        if wrong.size:
            raise ValueError(
                f"`model` must have weights that are finite in {precision}. Received: "
                f"{weight.path} with {wrong[0]}, in {wrong.size:,} of {values.size:,} places"
            )
    return model


def _checked_labels(labels: Sequence[str] | None, classes: int) -> list[str]:
    names = [str(index) for index in range(classes)] if labels is None else list(labels)
    if len(names) != classes or not all(isinstance(label, str) for label in names):
        raise ValueError(
            f"`labels` must be None or one string for each of the {classes} classes. "
            f"Received: labels={labels!r}"
        )
    return names
