"""The network of `core`, fast."""
