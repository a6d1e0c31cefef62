"""What mypy knows of Keras, which ships no types that it can follow: its operations."""

from typing import Any

from keras import ops as ops

def __getattr__(name: str) -> Any: ...
