"""Keras's functions of nests."""

from collections.abc import Callable
from typing import Any

flatten: Callable[..., list[Any]]

def __getattr__(name: str) -> Any: ...
