"""Fewer levels of a trellis network at the beginning of a run.

All levels share their weights. So a network can train few levels at first, which see more text in
the same time, and all of them at last.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import keras

from keras_trellis import TrellisLayer

Stage = Callable[[], contextlib.AbstractContextManager]
"""Returns the context in which the steps of a part of the run are compiled."""


def of_depths(model: keras.Model, depths: Sequence[int]) -> list[Stage]:
    """Returns the equal parts of a run; the last one trains the whole model.

    Args:
        model: A model with a `TrellisLayer`, if there are `depths`.
        depths: The most levels that train in each part but the last.
    """
    parts: list[Stage] = []
    if depths:
        layer = next(each for each in model.layers if isinstance(each, TrellisLayer))
        parts = [functools.partial(_at_most, depth, layer) for depth in depths]
    return [*parts, contextlib.nullcontext]


@contextlib.contextmanager
def _at_most(depth: int, layer: TrellisLayer) -> Iterator[None]:
    whole = layer.depth
    layer.depth = min(depth, whole)
    try:
        yield
    finally:
        layer.depth = whole
