"""Checks of arguments: each error names the argument, the value received, what was expected."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any


def positive(name: str, value: Any) -> int:
    """Returns `value` as an int if it is a positive integer, else raises ValueError."""
    return _integer(name, value, 1, "a positive integer")


def discard(value: Any, steps: int | None) -> int:
    """Returns `value` if that many of T steps can be left out, else raises ValueError.

    Args:
        value: the value of `discard`.
        steps: T, or None where it is not known.
    """
    number = _integer("discard", value, 0, "an integer of at least 0")
    if steps is not None and number > steps:
        raise ValueError(
            f"`discard` must be at most the number of steps, {steps}. Received: discard={value!r}"
        )
    return number


def _integer(name: str, value: Any, least: int, expected: str) -> int:
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")
    return number


def rate(name: str, value: Any) -> float:
    """Returns `value` as a float if it is a dropout rate in [0, 1), else raises ValueError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number < 1.0:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return number


def dilation_cycle(value: int | Sequence[int]) -> tuple[int, ...]:
    """Returns a dilation or a sequence of them as a tuple of positive integers.

    Raises:
        ValueError: if it is empty or holds anything else.
    """
    try:
        cycle = (value,) if isinstance(value, (int, str)) else tuple(value)
        if not cycle:
            raise ValueError
        return tuple(positive("dilation_rate", each) for each in cycle)
    except (TypeError, ValueError):
        raise ValueError(
            "`dilation_rate` must be a positive integer or a non-empty sequence of them. "
            f"Received: dilation_rate={value!r}"
        ) from None


def increasing(name: str, value: Sequence[int]) -> tuple[int, ...]:
    """Returns a non-empty sequence of increasing positive integers, else raises ValueError."""
    try:
        numbers = tuple(positive(name, each) for each in value)
        if not numbers or any(after <= before for before, after in itertools.pairwise(numbers)):
            raise ValueError
        return numbers
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must be a non-empty sequence of increasing positive integers. "
            f"Received: {name}={value!r}"
        ) from None


def at_most(name: str, value: Any, bound_name: str, bound: int) -> int:
    """Returns `value`, or `bound` for None, if it is in 1, ..., bound, else raises ValueError."""
    if value is None:
        return bound
    number = positive(name, value)
    if number > bound:
        raise ValueError(
            f"`{name}` must be at most `{bound_name}`. "
            f"Received: {name}={value!r}, {bound_name}={bound}"
        )
    return number


def divisor(name: str, value: Any, whole_name: str, whole: int) -> int:
    """Returns `value` if it divides `whole`, else raises ValueError."""
    number = positive(name, value)
    if whole % number:
        raise ValueError(
            f"`{name}` must divide `{whole_name}`. Received: {name}={value!r}, {whole_name}={whole}"
        )
    return number
