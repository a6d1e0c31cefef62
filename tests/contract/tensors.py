"""What the contract asks of tensors: graphs and gradients, as each backend makes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import keras
import pytest
from keras import ops

from keras_trellis.testing import arrays as arrays

BACKEND = keras.backend.backend()

# JAX has 64 bits only where it is asked for them.
_IS_SHORT = BACKEND == "jax" and os.environ.get("JAX_ENABLE_X64") != "1"
FLOAT = "float32" if _IS_SHORT else "float64"
# On torch Keras multiplies and averages numbers of float64 in float32.
_IS_PRECISE = FLOAT == "float64" and BACKEND != "torch"
PRECISION = 1e-10 if _IS_PRECISE else 1e-5
DIFFERENCE = (1e-6, 1e-6) if _IS_PRECISE else (1e-2, 1e-2)
"""The step of a finite difference, and its precision."""

# JAX's two runs, in float64 and in float32, need not both compile everything.
not_in_float64_on_jax = pytest.mark.skipif(
    BACKEND == "jax" and FLOAT == "float64", reason="done in float32"
)

Function = Callable[..., tuple[Any, Any]]
"""From inputs and further tensors to results and a scalar."""


def is_floating(value: Any) -> bool:
    """Returns whether a tensor or an array holds real numbers."""
    return "float" in keras.backend.standardize_dtype(value.dtype)


def with_gradients(function: Function, obj: Any) -> Callable[..., tuple]:
    """Returns a function with gradients of its scalar.

    JAX compiles it: eagerly it would compile each operation by itself, a third of all tests' time.

    They are those of the variables of a layer, and of the inputs where they are numbers, not ids.

    Args:
        function: what runs the layer.
        obj: the layer.

    Returns:
        from the inputs and further tensors to the results, the scalar and the gradients.
    """
    if BACKEND == "jax":
        return graph(function, obj)

    def run(inputs: Any, *others: Any) -> tuple:
        inputs = ops.convert_to_tensor(inputs)
        values = [variable.value for variable in obj.trainable_variables]
        return _differentiate(function, obj, values, inputs, others)

    return run


def graph(function: Function, obj: Any) -> Callable[..., tuple]:
    """Returns `with_gradients`, compiled; it reads the variables anew in each call."""
    if BACKEND != "jax":
        return compiled(with_gradients(function, obj))
    import jax

    jitted = jax.jit(
        lambda values, inputs, others: _differentiate(
            function, obj, values, inputs, others
        )
    )

    def run(inputs: Any, *others: Any) -> tuple:
        values = [variable.value for variable in obj.trainable_variables]
        return jitted(values, ops.convert_to_tensor(inputs), others)

    return run


def _differentiate(
    function: Function, obj: Any, values: list, inputs: Any, others: tuple
) -> tuple:
    sources = [*values, inputs] if is_floating(inputs) else values
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(sources)
            results, total = function(inputs, *others)
        gradients = tape.gradient(total, sources)
        return results, total, [tf.convert_to_tensor(tensor) for tensor in gradients]
    if BACKEND == "torch":
        import torch

        if is_floating(inputs):
            inputs = inputs.detach().requires_grad_()
            sources = [*values, inputs]
        results, total = function(inputs, *others)
        return results, total, list(torch.autograd.grad(total, sources))
    import jax

    def weighed(sources: list) -> tuple:
        own = sources[: len(values)]
        scope = list(zip(obj.trainable_variables, own, strict=True))
        with keras.StatelessScope(state_mapping=scope):
            read = sources[-1] if is_floating(inputs) else inputs
            results, total = function(read, *others)
        return total, results

    (total, results), gradients = jax.value_and_grad(weighed, has_aux=True)(sources)
    return results, total, gradients


def traced(function: Callable) -> Callable:
    """Returns a function as a graph, or on torch the function itself."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    return compiled(function)


def compiled(function: Callable) -> Callable:
    """Returns a function that XLA compiles, or on torch the function itself."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False)
    if BACKEND == "torch":
        return function
    import jax

    return jax.jit(function)
