"""Sequence layers that trellis networks are compared with, and that Keras does not have."""
