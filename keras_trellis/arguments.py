"""Checks of arguments: an error names the argument, the value received and what was expected."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any


def refusal(name: str, value: Any, expected: str) -> ValueError:
    """Returns the error of an argument that is not what it must be."""
    return ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")


def positive(name: str, value: Any) -> int:
    """Returns `value` as an int, or raises ValueError unless it is a positive integer."""
    return _integer(name, value, 1, "a positive integer")


def discard(value: Any, steps: int | None) -> int:
    """Returns `value`, or raises ValueError unless one can leave out that many of T steps.

    Args:
        value: the value of `discard`.
        steps: T; None if it is unknown.
    """
    number = _integer("discard", value, 0, "an integer of at least 0")
    if steps is not None and number > steps:
        raise refusal("discard", value, f"at most the number of steps, {steps}")
    return number


def _integer(name: str, value: Any, least: int, expected: str) -> int:
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise refusal(name, value, expected)
    return number


def rate(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises ValueError unless it is a dropout rate in [0, 1)."""
    number = _number(value)
    if not 0.0 <= number < 1.0:
        raise refusal(name, value, "a number in [0, 1)")
    return number


def tolerance(value: Any) -> float:
    """Returns `value` as a float, or raises ValueError unless it is between 0 and 1."""
    number = _number(value)
    if not 0.0 < number < 1.0:
        raise refusal("tolerance", value, "a number between 0 and 1")
    return number


def finite(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises ValueError unless it is a finite number."""
    number = _number(value)
    if not math.isfinite(number):
        raise refusal(name, value, "a finite number")
    return number


def _number(value: Any) -> float:
    """Returns `value` as a float, NaN if it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def dilation_cycle(value: int | Sequence[int]) -> tuple[int, ...]:
    """Returns a dilation or a sequence of them as a tuple of positive integers.

    Raises:
        ValueError: it is empty, or holds something else.
    """
    try:
        cycle = (value,) if isinstance(value, (int, str)) else tuple(value)
        if not cycle:
            raise ValueError
        return tuple(positive("dilation_rate", dilation) for dilation in cycle)
    except (TypeError, ValueError):
        raise refusal(
            "dilation_rate", value, "a positive integer or a non-empty sequence of them"
        ) from None


def increasing(name: str, value: Sequence[int]) -> tuple[int, ...]:
    """Returns `value` as a tuple of increasing positive integers, or raises ValueError."""
    try:
        numbers = tuple(positive(name, number) for number in value)
        if not numbers or any(
            after <= before for before, after in itertools.pairwise(numbers)
        ):
            raise ValueError
        return numbers
    except (TypeError, ValueError):
        raise refusal(
            name, value, "a non-empty sequence of increasing positive integers"
        ) from None


def at_most(name: str, value: Any, bound_name: str, bound: int) -> int:
    """Returns `value`, `bound` for None, or raises ValueError unless it is in 1, ..., bound."""
    if value is None:
        return bound
    number = positive(name, value)
    if number > bound:
        raise ValueError(
            f"`{name}` must be at most `{bound_name}`. "
            f"Received: {name}={value!r}, {bound_name}={bound}"
        )
    return number


def bottom_or_top(name: str, value: Any) -> str:
    """Returns `value`, or raises ValueError if it is neither."""
    if value not in ("bottom", "top"):
        raise refusal(name, value, "'bottom' or 'top'")
    return value


def inner_levels(every: Any, counted_from: Any, depth: int) -> range:
    """Returns after how many levels auxiliary outputs are collected, the lowest first.

    Args:
        every: how many levels apart they are.
        counted_from: "bottom": after every, 2 every, ... levels, as in the code that Bai et al.
            (2019) released; "top": after depth - every, depth - 2 every, ... levels, as in the text
            of their appendix B.2.
        depth: the number of levels.

    Raises:
        ValueError: `counted_from` is neither, or there is no such level.
    """
    every = positive("auxiliary_every", every)
    bottom_or_top("auxiliary_from", counted_from)
    if counted_from == "bottom":
        levels = range(every, depth + 1, every)
        bound = "at most `depth`"
    else:
        levels = range(depth % every or every, depth, every)
        bound = "below `depth`, counted from the top"
    if not levels:
        raise ValueError(
            f"`auxiliary_every` must be {bound}. "
            f"Received: auxiliary_every={every}, depth={depth}"
        )
    return levels


def divisor(name: str, value: Any, whole_name: str, whole: int) -> int:
    """Returns `value`, or raises ValueError unless it divides `whole`."""
    number = positive(name, value)
    if whole % number:
        raise ValueError(
            f"`{name}` must divide `{whole_name}`. Received: {name}={value!r}, {whole_name}={whole}"
        )
    return number
