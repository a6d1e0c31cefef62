"""Contiguous streams of tokens, and the windows that training and evaluation take from them.

The training step alone determines its window. So a run that goes on needs no saved position.
"""

import dataclasses
import functools

import numpy as np

from trainers.data import shuffling

# The recipe of Merity et al. 2018 (salesforce/awd-lstm-lm) draws the lengths of windows.
_HALVED = 0.05  # the probability that a window is about half as long
_DEVIATION = 5.0
_LEAST = 5


def contiguous_streams(ids: np.ndarray, batch_size: int) -> np.ndarray:
    """Cuts a text into `batch_size` contiguous streams; drops the tokens that remain.

    Args:
        ids: token ids `[N]`.
        batch_size: the number of streams, B.

    Returns:
        a view `[B, N // B]`; row b continues row b - 1.
    """
    length = len(ids) // batch_size
    return ids[: batch_size * length].reshape(batch_size, length)


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of one pass over streams, as in the released scripts.

    The first `discard` targets of a window are not scored: they give the network its history.
    The windows overlap, so that each target is scored once, except the first `discard` of a
    stream. The last window may be shorter. A window with nothing to score is left out.

    Attributes:
        length: the length N of the streams, at least `discard` + 2; they have N - 1 targets.
        window: time steps in a window, T.
        discard: time steps at its start that are not scored, fewer than `window`.
    """

    length: int
    window: int
    discard: int = 0

    @property
    def stride(self) -> int:
        """The time steps between the starts of two windows; a whole window scores as many."""
        return self.window - self.discard

    @property
    def count(self) -> int:
        """The number of windows, one for each training step of an epoch."""
        return -(-(self.length - 1 - self.discard) // self.stride)

    def bounds(self, index: int) -> tuple[int, int]:
        """Returns the range [start, stop) of a window's inputs; targets come one step later."""
        start = index * self.stride
        return start, min(start + self.window, self.length - 1)

    def every(self, epochs: int) -> np.ndarray:
        """Returns the range [start, stop) of inputs of each step, `[N, 2]`.

        Step n of a run has entry n mod N.

        Args:
            epochs: passes over the streams in the whole run.
        """
        del epochs
        return np.array([self.bounds(index) for index in range(self.count)])

    def select(self, streams: np.ndarray, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a window's part of streams `[B, N]`: its ids and targets, each `[B, T]`."""
        start, stop = self.bounds(index)
        return streams[:, start:stop], streams[:, start + 1 : stop + 1]


@dataclasses.dataclass(frozen=True)
class DrawnWindows:
    """Windows of drawn lengths, so that epochs cut the streams at different places.

    A length is a draw from the normal distribution of mean `window`, or with probability 0.05 of
    half that mean, and of deviation 5; it is cut to an integer and at least 5 (Merity et al. 2018).
    Their code draws anew in each epoch. Here each epoch has the same lengths in another order, so
    that all epochs have as many steps. The last length drawn ends with the streams.

    Attributes:
        length: the length N of the streams, at least 2; they have N - 1 targets, each scored.
        window: the mean number of time steps in most windows.
        seed: determines the lengths, and with the epoch their order.
    """

    length: int
    window: int
    seed: int

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The lengths of the windows as they were drawn, int64 `[count]`."""
        generator = np.random.default_rng(self.seed)
        left, lengths = self.length - 1, []
        while left:
            halved = generator.random() < _HALVED
            mean = self.window / 2 if halved else self.window
            drawn = max(_LEAST, int(generator.normal(mean, _DEVIATION)))
            lengths.append(min(drawn, left))
            left -= lengths[-1]
        return np.array(lengths, "int64")

    @property
    def count(self) -> int:
        """The number of windows, one for each training step of an epoch."""
        return len(self.lengths)

    def every(self, epochs: int) -> np.ndarray:
        """Returns the bounds of the windows of all epochs; see `Windows.every`."""
        return np.concatenate([self.epoch_bounds(epoch) for epoch in range(epochs)])

    def epoch_bounds(self, epoch: int) -> np.ndarray:
        """Returns the ranges [start, stop) of the windows of an epoch from 0 on, `[count, 2]`."""
        ordered = self.lengths[shuffling.order(self.count, self.seed, epoch)]
        stops = np.cumsum(ordered)
        return np.stack([stops - ordered, stops], axis=-1)


AnyWindows = Windows | DrawnWindows
"""What streams are cut in."""
