"""Keras's operations: those used here that return no single tensor, and all others."""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_trellis.types import Number, Tensor

associative_scan: Callable[..., Any]
cond: Callable[..., Any]
convert_to_numpy: Callable[..., np.ndarray]
scan: Callable[..., Any]
shape: Callable[..., tuple[Number, ...]]
split: Callable[..., list[Tensor]]
top_k: Callable[..., tuple[Tensor, Tensor]]
unstack: Callable[..., list[Tensor]]
while_loop: Callable[..., Any]

def __getattr__(name: str) -> Callable[..., Tensor]: ...
