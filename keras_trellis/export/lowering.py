"""A model's functions as ONNX, for runtimes without TensorFlow.

`step.onnx` and `chunk.onnx` of a language model read one token a row, and `formats.limits.CHUNK`
tokens; `classify.onnx` of a classifier reads whole sequences. They share their weights, which stand
in `weights.bin`, each once and in the precision of the export.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_trellis.backend.tensorflow import onnx_model
from keras_trellis.export import onnx_weights
from keras_trellis.export.caches import CacheFormat
from keras_trellis.export.checks import Tensors
from keras_trellis.formats import telemetry
from keras_trellis.formats.limits import CHUNK
from keras_trellis.formats.names import NEXT


class LoweringError(Exception):
    """A model has no form in ONNX; the message says why."""


class Function(NamedTuple):
    """A function to write as ONNX.

    Attributes:
        call: takes the inputs by name; returns the outputs by name.
        specs: the inputs' shapes and dtypes.
        example: inputs by which to compare.
        expected: what the model answers to them; NaN: anything.
    """

    call: Callable[..., Tensors]
    specs: Mapping[str, tf.TensorSpec]
    example: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]


def check_requirements() -> None:
    """Raises ImportError unless the packages that write and run ONNX are installed."""
    telemetry.refuse()
    for name in ("onnx", "onnxruntime", "tf2onnx"):
        try:
            with _quiet():
                importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f"an export with `runtime=True` needs {name}, by which it writes and tries the "
                "model's form for `keras_trellis.serving`: pip install 'keras_trellis[serving]'"
            ) from error


def language_model(model: Any, cache: CacheFormat) -> dict[str, Function]:
    """Returns the functions of a language model by name.

    `step` maps ids `[B]` and a cache to `log_probs` `[B, V]` of the next token and the next cache;
    `chunk` maps ids and a mask `[B, CHUNK]`, whose valid steps come first, to `log_probs`
    `[B, CHUNK, V]` and the next cache. In a row that has not begun and has no valid step they are
    those of no text.

    Args:
        model: the model, as `inference_model` returns it.
        cache: its cache in requests, without a fingerprint.
    """
    stream = model.trellis.stream
    step, chunk = _calls(model, cache, stream)
    portable = getattr(model.trellis, "portable_stream", stream)
    portable_step, portable_chunk = _calls(model, cache, portable)
    rows = [3, CHUNK]
    ids = np.arange(3 * CHUNK, dtype=np.int32).reshape(rows) % model.vocabulary_size
    mask = np.arange(CHUNK) < np.array([[CHUNK], [2], [1]])
    empty = cache.flatten(model.get_initial_cache(3), tf.zeros([3], tf.int32))
    begun = _arrays(chunk(ids, mask, **empty))
    del begun["log_probs"]
    read_on = {"ids": ids, "mask": mask, **begun}
    answer = _arrays(chunk(**_tensors(read_on)))
    answer["log_probs"][~mask] = np.nan
    step_on = {"ids": ids[:, 0], **begun}
    token = tf.TensorSpec([None], tf.int32, "ids")
    tokens = tf.TensorSpec([None, CHUNK], tf.int32, "ids")
    valid = tf.TensorSpec([None, CHUNK], tf.bool, "mask")
    return {
        "step": Function(
            portable_step,
            {"ids": token, **cache.specs},
            step_on,
            _arrays(step(**_tensors(step_on))),
        ),
        "chunk": Function(
            portable_chunk,
            {"ids": tokens, "mask": valid, **cache.specs},
            read_on,
            answer,
        ),
    }


def _calls(model: Any, cache: CacheFormat, stream: Callable) -> tuple[Callable, ...]:
    """Returns `step` and `chunk` of a language model, without checks.

    Args:
        model: the model.
        cache: see `language_model`.
        stream: of its layer.
    """

    def chunk(ids: tf.Tensor, mask: tf.Tensor | None, **given: tf.Tensor) -> Tensors:
        before, steps = cache.unflatten(given)
        outputs, after = stream(model.embed(ids), before, mask)
        count: Any = 1
        if mask is not None:
            count = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        log_probs = model.log_probs(outputs)
        return {"log_probs": log_probs, **cache.flatten(after, steps + count)}

    def step(ids: tf.Tensor, **given: tf.Tensor) -> Tensors:
        answer = chunk(ids[:, None], None, **given)
        return {**answer, "log_probs": answer["log_probs"][:, 0]}

    return step, chunk


def classifier(endpoints: Any) -> dict[str, Function]:
    """Returns the function of `ClassifierEndpoints`: `classify`, a request to `probabilities`."""
    specs = endpoints.specs()
    example = {}
    for name, spec in specs.items():
        sizes = [3, *(5 if size is None else size for size in spec.shape[1:])]
        values = np.arange(np.prod(sizes)).reshape(sizes) % 7
        example[name] = values.astype(spec.dtype.as_numpy_dtype)
    if "lengths" in example:
        steps = example["sequences"].shape[1]
        example["lengths"] = np.array([steps, 1, max(steps - 1, 1)], np.int32)
    expected = _arrays(endpoints.unchecked(**_tensors(example)))
    return {"classify": Function(endpoints.unchecked, specs, example, expected)}


def _arrays(tensors: Tensors) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in tensors.items()}


def _tensors(arrays: Mapping[str, np.ndarray]) -> Tensors:
    return {name: tf.constant(value) for name, value in arrays.items()}


def write(
    functions: Mapping[str, Function], folder: Path, scales: Sequence[np.ndarray] = ()
) -> list[str]:
    """Writes functions as ONNX, and compares what ONNX Runtime makes of them.

    Args:
        functions: by the names of their files, without the ending.
        folder: where to write.
        scales: of weights that are rounded to int8; see `weights.Weights`.

    Returns:
        the names of the files.

    Raises:
        LoweringError: a function has no form in ONNX, or ONNX Runtime answers otherwise.
    """
    models = {name: _converted(name, function) for name, function in functions.items()}
    with (folder / onnx_weights.NAME).open("wb") as file:
        onnx_weights.move(list(models.values()), file, scales)
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    for name, function in functions.items():
        _compare(name, function, folder / f"{name}.onnx")
    return [*(f"{name}.onnx" for name in functions), onnx_weights.NAME]


def _converted(name: str, function: Function) -> Any:
    """Returns a function as an ONNX model."""

    def call(*values: tf.Tensor) -> Tensors:
        return function.call(**dict(zip(function.specs, values, strict=True)))

    try:
        with _quiet():
            return onnx_model(call, list(function.specs.values()))
    except Exception as error:
        raise LoweringError(
            f"its `{name}` cannot be converted: {_line(error)}"
        ) from error


def _compare(name: str, function: Function, path: Path) -> None:
    """Compares a function's answer to its example with that of ONNX Runtime."""
    telemetry.refuse()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # an exception says it as well
    try:
        session = onnxruntime.InferenceSession(str(path), options)
        taken = [value.name for value in session.get_inputs()]
        names = [value.name for value in session.get_outputs()]
        answers = session.run(names, {key: function.example[key] for key in taken})
    except Exception as error:
        raise LoweringError(f"its `{name}` does not run: {_line(error)}") from error
    for key, answer in zip(names, answers, strict=True):
        expected = function.expected[key.removeprefix(NEXT)]
        answer = np.where(np.isnan(expected), expected, answer)
        # An iteration that ends at a tolerance may end one turn later.
        if not np.allclose(answer, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise LoweringError(
                f"its `{name}` has another `{key}` in ONNX Runtime than in TensorFlow"
            )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Holds back what converters say: they warn of much, and an exception says what counts."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
