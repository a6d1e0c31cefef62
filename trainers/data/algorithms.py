"""Two algorithms to learn from examples: addition and memorization.

Both are from Kalchbrenner, Danihelka and Graves (2015), "Grid Long Short-Term Memory", in the form
of He et al. (2017), https://arxiv.org/abs/1711.01577. An example is a pair of numbers, and every
pair is one example: the two numbers to add, or the two halves of the symbols to repeat. So examples
can be counted. The seed gives them an order, `Algorithm.pairs`.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

BLANK = 0  # "-"
LARGEST = 2**62 - 1  # two numbers of a pair have a sum below 2**63
_PADDING = 3  # blanks after the input beyond the length of a number, as published
_ROUNDS = 4
# Those of SplitMix64 as signed integers: Steele, Lea and Flood (2014), "Fast Splittable
# Pseudorandom Number Generators".
_INCREMENT, _FACTOR = -0x61C8864680B583EB, -0x40A7B892E31B1A47


class Written(NamedTuple):
    """Examples in symbols, numbers from 0 to `Algorithm.kinds` - 1.

    Attributes:
        inputs: `[B, T]`.
        answers: `[B, A]`.
    """

    inputs: tf.Tensor
    answers: tf.Tensor


class Algorithm(NamedTuple):
    """What a network shall compute.

    Attributes:
        sizes: how many values the first and the second number of a pair can have.
        kinds: the number of kinds of symbols.
        answer: the first time step of the answer, and that after it.
        write: takes the numbers of pairs, two int64 `[B]`.
    """

    sizes: tuple[int, int]
    kinds: int
    answer: tuple[int, int]
    write: Callable[[tf.Tensor, tf.Tensor], Written]

    @property
    def examples(self) -> int:
        """The number of examples that there are."""
        first, second = self.sizes
        return first * second

    def pairs(self, indices: tf.Tensor, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the pairs at places in the seed's order, which has each pair once.

        It is a Feistel network: each number in turn is shifted by a hash of the other, which can be
        undone, whatever the hash.

        Args:
            indices: int64 `[B]`, from 0 to `examples` - 1.
            seed: from 0 to 2**32 - 1.
        """
        first_size, second_size = self.sizes
        first = indices % first_size
        second = indices // first_size
        for turn in range(_ROUNDS):
            key = _ROUNDS * seed + turn
            if turn % 2:
                second = (second + _hash(first, key) % second_size) % second_size
            else:
                first = (first + _hash(second, key) % first_size) % first_size
        return first, second

    def at(self, indices: tf.Tensor, seed: int) -> Written:
        """Returns the examples at places in the seed's order."""
        return self.write(*self.pairs(indices, seed))


def addition(digits: int) -> Algorithm:
    """Returns the addition of two numbers of n digits each, the first digit of which is not 0.

    `--2545-9542-------` has the answer `-----------12087--`. The answer follows the last digit at
    once. It has n + 1 symbols, the last of which is blank if the sum has n digits.

    Args:
        digits: n, from 1 to 18.
    """
    least = 10 ** (digits - 1)

    def write(first: tf.Tensor, second: tf.Tensor) -> Written:
        first += least
        second += least
        total = first + second
        blank = _blanks(first, 1)
        numbers = [_digits(first, digits, 10), blank, _digits(second, digits, 10)]
        longer = _digits(total, digits + 1, 10)
        shorter = tf.concat([longer[:, 1:], blank], axis=1)
        is_longer = tf.expand_dims(total >= 10 * least, 1)
        answers = tf.where(is_longer, longer, shorter)
        return Written(_padded(2, numbers, digits), answers)

    begin = 2 + 2 * digits + 1
    answer = (begin, begin + digits + 1)
    return Algorithm((9 * least, 9 * least), 11, answer, write)


def memorization(symbols: int, kinds: int) -> Algorithm:
    """Returns the task to repeat n symbols that are drawn with equal probability.

    `-hiworld----------` has the answer `--------hiworld---`.

    Args:
        symbols: n.
        kinds: the number of kinds of symbols, the blank included.
    """
    base, half = kinds - 1, symbols // 2

    def write(first: tf.Tensor, second: tf.Tensor) -> Written:
        halves = [_digits(first, symbols - half, base), _digits(second, half, base)]
        answers = tf.concat(halves, axis=1)
        return Written(_padded(1, halves, symbols), answers)

    begin = 1 + symbols
    answer = (begin, begin + symbols)
    sizes = (base ** (symbols - half), base**half)
    return Algorithm(sizes, kinds, answer, write)


def _digits(numbers: tf.Tensor, count: int, base: int) -> tf.Tensor:
    """Returns the digits of numbers `[B]` as symbols, `[B, count]` int32; 1 stands for 0."""
    powers = [base**place for place in reversed(range(count))]
    shifted = tf.expand_dims(numbers, 1) // tf.constant(powers, "int64")
    return tf.cast(1 + shifted % base, "int32")


def _padded(before: int, parts: list[tf.Tensor], length: int) -> tf.Tensor:
    """Returns parts of the input between blanks; after them `length` + 3 as published."""
    first, *_ = parts
    blanks = _blanks(first, before)
    after = _blanks(first, length + _PADDING)
    return tf.concat([blanks, *parts, after], axis=1)


def _blanks(like: tf.Tensor, count: int) -> tf.Tensor:
    return tf.fill([tf.shape(like)[0], count], BLANK)


def _hash(numbers: tf.Tensor, key: int) -> tf.Tensor:
    """Returns a hash of numbers; a product spreads a bit upwards, a shift downwards."""
    mixed = (numbers + key) * _INCREMENT
    for distance in (30, 27, 31):
        mixed = tf.bitwise.bitwise_xor(mixed, _shifted(mixed, distance))
        mixed *= _FACTOR
    return _shifted(mixed, 1)


def _shifted(numbers: tf.Tensor, distance: int) -> tf.Tensor:
    return tf.bitwise.right_shift(numbers, tf.constant(distance, "int64"))
