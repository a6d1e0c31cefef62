"""The cells of the table of formats: does a model, exported, answer as it does in Keras?"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.formats import layers
from tests.formats.runtimes import FORMATS

LENGTHS: dict[str, int | None] = {"known T": 5, "unknown T": None}
RIGHT = "yes"
LIMITS = {
    "Select TF": "Select TensorFlow op",
    "no rule": "No conversion rule found for operations: TensorList",
    # tf2onnx fails in another way where it has converted such a loop before.
    "invalid": "INVALID_GRAPH|duplicate function with name: while_cond_function",
    "refused": "must have a known number of steps with `unroll=True`",
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
    sizes = [(2, steps or 5), (3, steps or 9)]
    inputs = [layers.draw(*size) for size in sizes]
    expected = [tf.nest.flatten(model(values)) for values in inputs]

    with tempfile.TemporaryDirectory() as folder:
        try:
            run = FORMATS[form](model, Path(folder))
            outputs = [run(values) for values in inputs]
        except Exception as error:
            return _limit(error)
    for found, wanted in zip(outputs, expected, strict=True):
        for each, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(each, other, rtol=1e-4, atol=1e-5)
    return RIGHT


def _limit(error: Exception) -> str:
    """Returns the limit that an exception tells of, or raises it again."""
    message = " ".join(str(error).split())
    for name, pattern in LIMITS.items():
        if re.search(pattern, message):
            return name
    raise error
