"""Two tests of memory over many steps, drawn from a seed: copy memory and the adding problem.

Both are from Hochreiter and Schmidhuber (1997), "Long Short-Term Memory", in the form of Bai,
Kolter and Koltun (2018), "An Empirical Evaluation of Generic Convolutional and Recurrent Networks
for Sequence Modeling", section 4.1 and https://github.com/locuslab/TCN.
"""

from typing import NamedTuple

import numpy as np

SYMBOLS = 8  # 1 to 8; 0 is a blank, 9 asks for the symbols
COPIED = 10
CLASSES = SYMBOLS + 2
_ASKING = CLASSES - 1


class Examples(NamedTuple):
    """Sequences and their targets.

    Attributes:
        inputs: `[N, T, p]`, as the network reads them except for the dtype.
        targets: classes `[N]` or `[N, T]`, int32, or values `[N]`, float32.
    """

    inputs: np.ndarray
    targets: np.ndarray


def copy_memory(count: int, delay: int, generator: np.random.Generator) -> Examples:
    """Draws sequences of ten symbols, which the network shall repeat after a delay.

    A sequence has ten symbols of 1 to 8, drawn with equal probability, then `delay` - 1 blanks,
    then eleven nines. The answer is blank except for the last ten steps, which are the ten symbols.
    Without memory, the best answer is blanks, then any symbol: a cross entropy of
    10 ln 8 / (delay + 20) a time step.

    Args:
        count: N.
        delay: time steps between the symbols and the answer, at least 1.
        generator: NumPy's generator.

    Returns:
        inputs `[N, delay + 20, 1]` uint8, targets `[N, delay + 20]` int32.
    """
    symbols = generator.integers(1, SYMBOLS + 1, (count, COPIED))
    inputs = np.zeros((count, delay + 2 * COPIED, 1), "uint8")
    inputs[:, :COPIED, 0] = symbols
    inputs[:, COPIED + delay - 1 :] = _ASKING
    targets = np.zeros((count, delay + 2 * COPIED), "int32")
    targets[:, -COPIED:] = symbols
    return Examples(inputs, targets)


def adding(count: int, steps: int, generator: np.random.Generator) -> Examples:
    """Draws sequences of numbers; the network shall add the two that are marked.

    The first channel has numbers from 0 to 1. The second is 1 at the two marked steps and 0
    elsewhere. The constant answer 1 has a mean squared error of 1/6.

    Args:
        count: N.
        steps: T, at least 2.
        generator: NumPy's generator.

    Returns:
        inputs `[N, T, 2]` float32, targets `[N]` float32.
    """
    inputs = np.zeros((count, steps, 2), "float32")
    inputs[..., 0] = generator.random((count, steps))
    first = generator.integers(0, steps, count)
    second = (first + generator.integers(1, steps, count)) % steps  # another one
    rows = np.arange(count)
    inputs[rows, first, 1] = inputs[rows, second, 1] = 1
    return Examples(inputs, inputs[rows, first, 0] + inputs[rows, second, 0])
