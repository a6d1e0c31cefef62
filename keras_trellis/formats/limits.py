"""What one call of an export may ask for, in the graph and in the runtime."""

MOST_TOKENS = 65_536
"""Of a prompt, and of what one call of `generate` adds to it; this bounds the memory of a call."""

MOST_ALTERNATIVES = 100
"""The most probable tokens that an answer may list in the place of each token."""

MOST_STOP_BYTES = 256
"""Of a stop string, in UTF-8."""

MOST_STEPS = 2**30
"""Tokens that a cache may have read: what a call adds to them stays below 2^31."""

CHUNK = 16
"""Tokens that `chunk.onnx` reads at once."""
