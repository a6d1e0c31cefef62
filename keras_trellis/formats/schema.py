"""Checks of what a JSON file has; an error names the entry, what it must be, and its value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

_SHOWN = 80  # characters of a value received
_MOST = 1 << 52  # integers that JSON holds in every language

Check: TypeAlias = Callable[[Any, str], Any]
"""Takes a value and its name; returns it typed, or raises ValueError."""


def record(value: Any, name: str, fields: Mapping[str, Check]) -> dict[str, Any]:
    """Returns the values of an object that must have these names and no others."""
    if not isinstance(value, dict) or value.keys() != fields.keys():
        given = list(value) if isinstance(value, dict) else value
        raise ValueError(
            f"`{name}` must have the entries {', '.join(fields)}. Received: {shown(given)}"
        )
    return {key: check(value[key], f"{name}.{key}") for key, check in fields.items()}


def each(check: Check, check_name: Check) -> Check:
    """Returns what checks an object of any names."""

    def check_all(value: Any, name: str) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"`{name}` must be an object. Received: {shown(value)}")
        return {
            check_name(key, name): check(entry, f"{name}.{key}")
            for key, entry in value.items()
        }

    return check_all


def items(check: Check) -> Check:
    """Returns what checks a list."""

    def check_all(value: Any, name: str) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"`{name}` must be a list. Received: {shown(value)}")
        return [check(entry, f"{name}[{i}]") for i, entry in enumerate(value)]

    return check_all


def whole(least: int = 0) -> Check:
    """Returns what checks an integer, below 2**52."""

    def check(value: Any, name: str) -> int:
        if type(value) is not int or not least <= value < _MOST:
            raise ValueError(
                f"`{name}` must be an integer of at least {least}. Received: {shown(value)}"
            )
        return value

    return check


def text(value: Any, name: str) -> str:
    """Checks a text, which UTF-8 can hold."""
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(value, str):
            value.encode()
            return value
    raise ValueError(f"`{name}` must be a text. Received: {shown(value)}")


def optional(check: Check) -> Check:
    """Returns what checks a value that may be null."""
    return lambda value, name: None if value is None else check(value, name)


def anything(value: Any, name: str) -> Any:
    """Checks nothing."""
    return value


def shown(value: Any) -> str:
    """Returns a value as a message shows it: in one line, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
