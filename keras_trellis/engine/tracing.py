"""What graphs are traced for: training too, or inference alone."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_inference = contextvars.ContextVar("inference", default=False)


@contextlib.contextmanager
def for_inference() -> Iterator[None]:
    """What is traced in this context is for servers.

    It has no XLA in it, which a server need not have, and no gradients but TensorFlow's own, which
    come back by themselves where somebody trains what has been loaded.
    """
    token = _inference.set(True)
    try:
        yield
    finally:
        _inference.reset(token)


def is_for_inference() -> bool:
    """Returns whether tracing is `for_inference`."""
    return _inference.get()


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates as `tf.custom_gradient` does; for inference, with what the function returns alone.

    Args:
        function: returns its result, and the function that `tf.custom_gradient` wants.
    """
    if is_for_inference():
        return lambda *arguments: function(*arguments)[0]
    return tf.custom_gradient(function)
