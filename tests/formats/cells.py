"""The cells of the table of formats: does a model, exported, answer as it does in Keras?"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import keras
import numpy as np

from tests.formats import layers
from tests.formats.runtimes import BACKEND, FORMATS

LENGTHS: dict[str, int | None] = {"known T": 5, "unknown T": None}
RIGHT = "yes"
LIMITS = {
    "Select TF": "Select TensorFlow op",
    "no rule": "No conversion rule found for operations: (TensorList|XlaCallModule)",
    "no export": "mismatch between the structure of `inputs` and `dynamic_shapes`",
    "fixed sizes": r"Constraints violated|Cannot split using values in 'split' attribute"
    r"|isCompatible\(dims\)|input_shape\[j\] == 1",
    # tf2onnx fails in another way where it has converted such a loop before.
    "invalid": "INVALID_GRAPH|duplicate function with name: while_cond_function",
    "refused": "must have a known number of steps with `unroll=True`",
    "no loop": "torch cannot export a loop that ends once its values have settled",
}
"""What else a cell says: a pattern of the error that tells of it."""


def cell(layer: str, form: str, length: str, masks: tuple[bool, ...]) -> str:
    """Exports a model and compares its answers for two sizes with Keras's own.

    Args:
        layer: a key of `layers.ROWS`.
        form: a key of `FORMATS`.
        length: a key of `LENGTHS`.
        masks: as for `layers.model`.

    Returns:
        `RIGHT`, or the key of `LIMITS` that says what is in the way.

    Raises:
        AssertionError: wrong answers.
        Exception: of a converter or a runtime, none of those in `LIMITS`.
    """
    steps = LENGTHS[length]
    try:
        model = layers.model(layer, steps, masks)
    except ValueError as error:
        return _limit(error)
    # tf2onnx selects by products, under which NaN stays NaN.
    may_be_nan = all(masks) and (form, BACKEND) != ("ONNX", "TensorFlow")
    padding = np.nan if may_be_nan else 1.0
    sizes = [(2, steps or 5), (3, steps or 9)]
    inputs = [layers.draw(*size, padding) for size in sizes]
    expected = [_answers(model, values) for values in inputs]

    with tempfile.TemporaryDirectory() as folder:
        try:
            run = FORMATS[form](model, Path(folder))
            outputs = [run([values]) for values in inputs]
        except Exception as error:
            return _limit(error)
    for found, wanted in zip(outputs, expected, strict=True):
        for each, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(each, other, rtol=1e-4, atol=1e-5)
    return RIGHT


def _answers(model: keras.Model, values: np.ndarray) -> list[np.ndarray]:
    return list(map(keras.ops.convert_to_numpy, keras.tree.flatten(model(values))))


def _limit(error: Exception) -> str:
    """Returns the limit that an exception tells of, or raises it again."""
    message = " ".join(str(error).split())
    for name, pattern in LIMITS.items():
        if re.search(pattern, message):
            return name
    raise error
