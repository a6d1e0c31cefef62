"""Permuted MNIST: sequential MNIST, the pixels in an order that is drawn from the seed.

The paper and the authors' script have one recipe for both tasks; see `configs/seq_mnist.py`, for
the sources of the values too.
"""

from configs.seq_mnist import PRESETS, get_config

__all__ = ["PRESETS", "get_config"]
