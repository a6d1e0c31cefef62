"""What a field of a config may hold, its default, and whether a run may change it later.

A rule is about several fields.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_LARGEST = 2**31 - 1  # TensorFlow's int32

Values = Mapping[str, Any]
"""The values of a config by their dotted names."""

Rule = tuple[Any, ...]
"""Whether a field is wrong, the field, what it must be, and fields that the error shows too."""


class Required:
    """The default of a field that every config must have."""


class Field(NamedTuple):
    """What a field may hold.

    Attributes:
        expected: the allowed values in words, after "must be".
        allows: returns whether a value is allowed.
        default: the value if a config lacks the field.
        may_change: whether a run that goes on may change the value.
        kind: the type of a value whose default is None.
    """

    expected: str
    allows: Callable[[Any], bool]
    default: Any = Required
    may_change: bool = False
    kind: type = int


class Condition(NamedTuple):
    """When a field is read that is not always read.

    Attributes:
        field: the dotted name of the field.
        chooser: that of the field which decides.
        values: its values with which the field is read.
    """

    field: str
    chooser: str
    values: tuple[str, ...]


def integer(least: int, most: int = _LARGEST) -> Field:
    """Returns the field of an integer."""
    end = " and below 2**31" if most == _LARGEST else f" and at most {most}"
    return Field(
        f"an integer of at least {least}{end}",
        # `isinstance` would take True for an integer.
        lambda value: type(value) is int and least <= value <= most,
    )


def number(expected: str, within: Callable[[float], bool]) -> Field:
    """Returns the field of a finite number."""

    def allows(value: Any) -> bool:
        return _is_finite(value) and within(value)

    return Field(expected, allows, kind=float)


def one_of(*known: str) -> Field:
    """Returns the field of a name."""
    return Field(
        f"one of {known}" if len(known) > 1 else repr(known[0]),
        lambda value: isinstance(value, str) and value in known,
    )


def integers(expected: str, within: Callable[[Sequence[int]], bool]) -> Field:
    """Returns the field of a tuple of positive integers."""

    def allows(value: Any) -> bool:
        return (
            isinstance(value, tuple) and all(map(COUNT.allows, value)) and within(value)
        )

    return Field(expected, allows)


def or_none(field: Field) -> Field:
    """Returns a field that may also be None."""
    return field._replace(
        expected=f"None or {field.expected}",
        allows=lambda value: value is None or field.allows(value),
    )


def changing(field: Field) -> Field:
    """Returns a field that a run may change."""
    return field._replace(may_change=True)


def class_fields(definition: Any, prefix: str = "") -> dict[str, Field]:
    """Returns the fields of a dataclass by their dotted names, with their defaults.

    Args:
        definition: a dataclass whose types are `Annotated[type, Field]`, or such dataclasses.
        prefix: the beginning of the names.
    """
    table: dict[str, Field] = {}
    for member in dataclasses.fields(definition):
        name = prefix + member.name
        kind: Any = member.type
        if dataclasses.is_dataclass(kind):
            table |= class_fields(kind, f"{name}.")
            continue
        (field,) = kind.__metadata__
        has_default = member.default is not dataclasses.MISSING
        table[name] = field._replace(default=member.default) if has_default else field
    return table


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an int that no float is as large as
        return False


def _increases(numbers: Sequence[int]) -> bool:
    return all(after > before for before, after in itertools.pairwise(numbers))


TEXT = Field("a string", lambda value: isinstance(value, str))
SWITCH = Field("True or False", lambda value: isinstance(value, bool))
COUNT = integer(1)
TOKEN = integer(-_LARGEST)
RATE = number("a number in [0, 1)", lambda value: 0 <= value < 1)
SHARE = number("a number between 0 and 1, neither of them", lambda value: 0 < value < 1)
UP_TO_ONE = number("a number above 0 and at most 1", lambda value: 0 < value <= 1)
ABOVE_ZERO = number("a finite number above 0", lambda value: value > 0)
FROM_ZERO = number("a finite number of at least 0", lambda value: value >= 0)
FINITE = number("a finite number", lambda value: True)
CYCLE = integers(
    "positive integers below 2**31, at least one, as in 1,2,4",
    lambda value: len(value) > 0,
)
DEPTHS = integers("positive integers below 2**31, as in 4,8, or ()", lambda value: True)
CUTOFFS = integers(
    "increasing positive integers below 2**31, at least one",
    lambda value: len(value) > 0 and _increases(value),
)
EPOCHS = integers(
    "increasing positive integers below 2**31, as in 3,5, or ()", _increases
)
A_CALL = changing(COUNT)._replace(default=250)
"""How many sequences an evaluation computes in a call. It changes no score."""
