"""A model's weights as an export stores them, and the number that tells models apart by them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_trellis.arguments import refusal
from keras_trellis.core import kernels

_BITS = 52  # JSON's numbers hold so many in every language
PRECISIONS = ("float32", "float16", "int8")


class Weights:
    """A model's weights as variables of their own, in full or in less precision.

    "float16" and "int8" store the kernels and the table of word vectors so, and loading the
    SavedModel makes them float32 again, once; biases stay as they are. int8 has one scale for each
    output channel, and for each word: the greatest magnitude is 127 times the scale.

    Args:
        model: the model.
        precision: one of `PRECISIONS`.

    Attributes:
        stored: the modules that own the variables.

    Raises:
        ValueError: `precision` is none of `PRECISIONS`.
    """

    def __init__(self, model: keras.Model, precision: str) -> None:
        if precision not in PRECISIONS:
            raise refusal("precision", precision, f"one of {', '.join(PRECISIONS)}")
        self._originals = model.weights
        self.stored = [_Stored(weight, precision) for weight in self._originals]

    @property
    def scales(self) -> list[np.ndarray]:
        """Of the weights that are stored in int8, one for each output channel or each word."""
        scales = (weight.scale for weight in self.stored)
        return [scale for scale in scales if scale is not None]

    def call(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        """Calls a function of the model with these weights in place of the model's."""
        values = [weight.read() for weight in self.stored]
        mapping = list(zip(self._originals, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function(*args, **kwargs)


class _Stored(tf.Module):
    """A weight as it is stored and, if that differs, as the model computes with it."""

    def __init__(self, original: keras.Variable, precision: str) -> None:
        super().__init__(name=original.path.replace("/", "_"))
        value = tf.convert_to_tensor(original.value)
        if value.shape.rank < 2:
            precision = "float32"
        self._scale = None
        if precision == "float16":
            value = tf.cast(value, tf.float16)
        elif precision == "int8":
            value, scale = _quantized(value, by_row=original.name == "embeddings")
            self._scale = tf.Variable(scale, trainable=False, name="scale")
        self._value = tf.Variable(value, trainable=False, name="value")
        self._decoded = None
        if precision != "float32":
            self._decoded = _Decoded(self.decode, value.shape)

    @property
    def scale(self) -> np.ndarray | None:
        """One scale for each output channel, or each word, of what is stored in int8; or None."""
        return None if self._scale is None else np.ravel(self._scale.numpy())

    def decode(self) -> tf.Tensor:
        """Returns the weight, computed from what is stored."""
        value = tf.cast(self._value, tf.float32)
        if self._scale is None:
            return value
        return value * self._scale

    def read(self) -> tf.Tensor:
        """Returns the weight; in a graph, as loading the SavedModel decoded it."""
        if self._decoded is None or tf.executing_eagerly():
            return self.decode()
        return self._decoded.read()


class _Decoded(tf.saved_model.experimental.TrackableResource):
    """A float32 variable that no checkpoint holds: loading a SavedModel computes its value.

    A loader restores the variables, and then initializes such resources, like the tables of a
    vocabulary.
    """

    def __init__(self, decode: Callable[[], tf.Tensor], shape: tf.TensorShape) -> None:
        super().__init__()
        self._decode = decode
        self._shape = shape
        self._name = f"decoded_{uuid.uuid4().hex}"
        self._initialize()  # functions traced here also run here

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=self._shape, shared_name=self._name
        )

    def _initialize(self) -> None:
        value = self._decode()
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)

    def read(self) -> tf.Tensor:
        """Returns the variable's value."""
        value = tf.raw_ops.ReadVariableOp(
            resource=self.resource_handle, dtype=tf.float32
        )
        value.set_shape(self._shape)
        return value


def _quantized(value: tf.Tensor, by_row: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns int8 values and their scales: one a row, or one for each of the last axis."""
    axes = [1] if by_row else list(range(value.shape.rank - 1))
    scale = tf.reduce_max(tf.abs(value), axis=axes, keepdims=True) / 127
    whole = tf.round(tf.math.divide_no_nan(value, scale))
    return tf.cast(whole, tf.int8), scale


def inference_model(model: keras.Model, precision: str = "float32") -> keras.Model:
    """Returns the model whose answers an export gives.

    It computes in float32, whatever the model's policy, with weights rounded to `precision`. The
    kernels of a trellis network without groups have their weight normalisation carried out, so that
    no call does it again.

    Args:
        model: a `TrellisLM` or a `TrellisClassifier` over any sequence layer, built.
        precision: how to store kernels and word vectors, "float32", "float16" or "int8"; see
            `Weights`.

    Raises:
        ValueError: `precision` is none of these.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import TrellisClassifier, TrellisLayer
        >>> from keras_trellis.export import inference_model
        >>> layer = TrellisLayer(8, depth=4, dilation_rate=[1, 2, 4, 8])
        >>> model = TrellisClassifier(2, layer)
        >>> sequences = np.ones([1, 10, 3], "float32")
        >>> logits = model(sequences)
        >>> small = inference_model(model, "int8")
        >>> bool(np.allclose(small(sequences), logits, atol=0.05))
        True
    """
    layer = model.trellis
    config = model.get_config()
    _set_for_inference(config)
    # Only a trellis network normalises its kernels.
    folds = getattr(layer, "weight_normalization", False) and layer.groups == 1
    if folds:
        config["trellis"]["config"]["weight_normalization"] = False
    copy = type(model).from_config(config)
    copy.build_from_config(model.get_build_config())
    copy.trellis.warns_unseen_steps = False  # the model has said it in training
    scales = {id(layer.kernel_scale), id(layer.recurrent_scale)} if folds else set()
    values = [weight for weight in model.weights if id(weight) not in scales]
    for variable, value in zip(copy.weights, values, strict=True):
        variable.assign(tf.cast(value, tf.float32))
    if folds:
        copy.trellis.kernel.assign(_folded(layer.kernel, layer.kernel_scale))
        copy.trellis.recurrent_kernel.assign(
            _folded(layer.recurrent_kernel, layer.recurrent_scale)
        )
    for variable, stored in zip(
        copy.weights, Weights(copy, precision).stored, strict=True
    ):
        variable.assign(stored.read())
    return copy


def _set_for_inference(config: dict[str, Any]) -> None:
    """Sets rates of dropout to 0 and policies to float32, in a config and the configs in it."""
    for name, value in config.items():
        if name == "dtype":
            config[name] = "float32"
        elif name.endswith("dropout"):
            config[name] = 0.0
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                _set_for_inference(part)


def _folded(kernel: keras.Variable, scale: keras.Variable) -> tf.Tensor:
    """Returns a kernel with its normalisation carried out."""
    folded = kernels.weight_normalized(kernel.value, scale.value)
    return tf.cast(folded, tf.float32)


def fingerprint(model: keras.Model, vocabulary: Sequence[str]) -> int:
    """Returns a number that depends on all that a model computes by, not on the names in it.

    Args:
        model: the model, as `inference_model` returns it.
        vocabulary: its tokens, or labels.
    """
    digest = hashlib.sha256()
    config = _without_names(model.get_config())
    described = [type(model).__name__, config, list(vocabulary)]
    digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    for weight in model.weights:
        values = np.asarray(weight)
        digest.update(f"{values.shape}{values.dtype}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> (64 - _BITS)


def _without_names(config: Any) -> Any:
    """Returns a config without the names and the numbers that Keras gives to what it makes."""
    if isinstance(config, dict):
        left_out = ("name", "shared_object_id", "seed")
        items = ((key, value) for key, value in config.items() if key not in left_out)
        return {key: _without_names(value) for key, value in items}
    if isinstance(config, (list, tuple)):
        return [_without_names(value) for value in config]
    return config
