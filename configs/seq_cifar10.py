"""Sequential CIFAR-10: photographs read pixel by pixel, three channels at a time.

The paper and the authors' script have one recipe for this and sequential MNIST; see
`configs/seq_mnist.py`, for the sources of the values too.
"""

from configs.seq_mnist import PRESETS, get_config

__all__ = ["PRESETS", "get_config"]
