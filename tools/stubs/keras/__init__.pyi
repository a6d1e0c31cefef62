"""What mypy knows of Keras, which ships no types that it can follow: its operations and nests."""

from typing import Any

from . import ops as ops
from . import tree as tree

def __getattr__(name: str) -> Any: ...
