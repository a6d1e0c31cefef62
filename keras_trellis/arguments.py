"""Checks of arguments, and of the calls of constructors.

An error names the argument, the value received and what was expected. That of a constructor names
the class that was called, and says what to write.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import math
import operator
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec

_P = ParamSpec("_P")
_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_KERAS_EXTRAS = ("input_dim", "input_shape")  # no signature has them
_LSTM_ARGUMENTS = (
    "activation",
    "recurrent_activation",
    "use_bias",
    "unit_forget_bias",
    "unroll",
    "implementation",
    "use_cudnn",
)
NO_CHOICE = {"implementation": (0, 1, 2), "use_cudnn": ("auto", False)}
"""What a layer that has one implementation, and none of cuDNN's, takes of an LSTM's arguments."""
NO_CHOICE_HINTS = {
    "implementation": "Leave it out: there is nothing to choose.",
    "use_cudnn": "Leave it out: cuDNN does not run this layer.",
}
"""What such a layer says of their other values; see `constructor`."""


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


def constructor(init: Callable[_P, None]) -> Callable[_P, None]:
    """Checks the arguments of an `__init__` before it runs.

    Python's own errors name the class that an `__init__` was inherited from, and Keras's the last
    class that unknown arguments were handed to, such as the cell of a layer.

    A class may have `_instead`, a name -> what to write where that argument is missing or unknown.
    It may have `_renamed`, the former name of an argument -> its name; former names work with a
    warning. An instance may have `_implied`, the name of an argument of `keras.layers.LSTM` -> the
    values of it that say what the layer does anyway. Those are taken, and the `__init__` never sees
    them.

    Raises (what it returns):
        TypeError: an argument is missing, too many or given twice, as for Keras's layers.
        ValueError: an argument is unknown, as for Keras's layers, or is one of an LSTM and says
            what the layer does not do.
    """

    @functools.wraps(init)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> None:
        layer, *given = args
        cls = type(layer)
        for name in kwargs.keys() & _former_names(cls):
            warnings.warn(
                f"`{name}` of {cls.__name__} is called `{_former_names(cls)[name]}`; the former "
                "name works for one release",
                DeprecationWarning,
                stacklevel=2,
            )
        kwargs = renamed(cls, kwargs)  # type: ignore[assignment]  # of other names
        _check(cls, checked, given, kwargs)
        said = {name: kwargs.pop(name) for name in _unlisted(cls, checked, kwargs)}
        init(*args, **kwargs)
        for name, value in said.items():
            _check_implied(layer, name, value)

    # Keras asks `inspect.getfullargspec`, which does not look through a wrapper.
    checked.__signature__ = inspect.signature(init)  # type: ignore[attr-defined]
    checked.is_checked = True  # type: ignore[attr-defined]
    return checked


def renamed(cls: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments, or a config, with the present names of what a class has renamed.

    Raises:
        TypeError: an argument is given by both of its names.
    """
    names = _former_names(cls)
    given = {names.get(name, name): value for name, value in config.items()}
    if len(given) < len(config):
        former = _quoted(config.keys() & names)
        raise TypeError(
            f"{cls.__name__} has an argument twice, once as {former}, its former name"
        )
    return given


def _former_names(cls: type) -> Mapping[str, str]:
    return getattr(cls, "_renamed", {})


class FullSignature:
    """The `__signature__` of a class: all arguments that its constructor takes, by name.

    `help` and editors show it. That of the `__init__` lacks what goes on to base classes and to a
    cell by `**kwargs`. A subclass with an `__init__` that `constructor` does not check has the
    signature of that: nobody knows what it hands on.
    """

    def __get__(self, instance: object | None, cls: type) -> inspect.Signature:
        """Returns the signature; an instance has that of its call."""
        init: Callable = cls.__init__  # type: ignore[misc]  # of a class, not an instance
        if instance is not None or not hasattr(init, "is_checked"):
            raise AttributeError("__signature__")
        parameters = _known(cls, init).values()
        # A stable sort: what may go without a name comes first.
        ordered = sorted(parameters, key=operator.attrgetter("kind"))
        return inspect.Signature(ordered)


def _check(
    cls: type, init: Callable, given: list[Any], named: Mapping[str, Any]
) -> None:
    positional = [parameter.name for parameter in _parameters(init, _PLAIN)]
    received = f"Received: {cls.__name__}({_arguments(given, named)})"
    if len(given) > len(positional):
        raise TypeError(
            f"{cls.__name__} takes {len(positional)} argument(s) without a name: "
            f"{_quoted(positional)}. {received}"
        )
    for name in positional[: len(given)]:
        if name in named:
            raise TypeError(f"{cls.__name__} has `{name}` twice. {received}")
    missing = [name for name in positional[len(given) :] if name not in named]
    if missing:
        instead = _instead(cls, missing[-1])
        raise TypeError(
            f"{cls.__name__} is missing {_quoted(missing)}. {instead}{received}"
        )
    _check_names(cls, init, named)


def _check_names(cls: type, init: Callable, named: Mapping[str, Any]) -> None:
    known = _known(cls, init).keys()
    unlisted = _unlisted(cls, init, named)
    for name, value in named.items():
        if name not in known and name not in unlisted and name not in _KERAS_EXTRAS:
            instead = _instead(cls, name) or _nearest(name, known)
            raise _unknown(cls, name, value, instead)


def _unlisted(cls: type, init: Callable, named: Mapping[str, Any]) -> list[str]:
    """Returns which arguments are an LSTM's, which only `_implied` of a class knows."""
    if not hasattr(cls, "_implied"):
        return []
    known = _known(cls, init).keys()
    return [name for name in named if name in _LSTM_ARGUMENTS and name not in known]


def _check_implied(layer: Any, name: str, value: Any) -> None:
    """Refuses an argument of an LSTM that says what a layer does not do."""
    implied = layer._implied.get(name, ())
    if value in implied:
        return
    instead = _instead(type(layer), name)
    if implied and not instead:
        instead = f"It is {implied[0]!r}. "
    raise _unknown(type(layer), name, value, instead)


def _unknown(cls: type, name: str, value: Any, instead: str) -> ValueError:
    return ValueError(
        f"{cls.__name__} has no argument `{name}`. {instead}Received: {name}={value!r}"
    )


def _parameters(init: Callable, *kinds: Any) -> list[inspect.Parameter]:
    """Returns the parameters after `self` that are of one of these kinds."""
    _, *parameters = inspect.signature(init).parameters.values()
    return [parameter for parameter in parameters if parameter.kind in kinds]


def _known(cls: type, init: Callable) -> dict[str, inspect.Parameter]:
    """Returns the arguments that one may give to a constructor of a class by name.

    An `__init__` hands on what it does not name. But what a base class takes without a name, the
    class that inherits from it gives itself, and what `_instead` names it does not hand on.
    """
    own = _parameters(init, _PLAIN, _KEYWORD)
    known = {parameter.name: parameter for parameter in own}
    handed_on = _keywords(cls, init)
    if hasattr(cls, "cell_class"):
        handed_on += _known(cls.cell_class, cls.cell_class.__init__).values()
    for parameter in handed_on:
        if parameter.name not in _texts(cls):
            known.setdefault(parameter.name, parameter)
    return known


def named(cls: type) -> dict[str, inspect.Parameter]:
    """Returns the arguments that the nearest constructor behind `constructor` takes by name."""
    inits = (vars(base).get("__init__") for base in cls.__mro__)
    init: Any = next(init for init in inits if hasattr(init, "is_checked"))
    return _known(cls, init)


def _keywords(cls: type, init: Callable) -> list[inspect.Parameter]:
    """Returns what the bases behind an `__init__` take by name alone, the nearest base first."""
    inits = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    *bases, _ = inits[inits.index(init) + 1 :]  # the last one is of `object`
    return [parameter for base in bases for parameter in _parameters(base, _KEYWORD)]


def _texts(cls: type) -> Mapping[str, str]:
    return getattr(cls, "_instead", {})


def _instead(cls: type, name: str) -> str:
    text = _texts(cls).get(name)
    return f"{text} " if text else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, 1)
    if nearest:
        return f"Did you mean `{nearest[0]}`? "
    return f"It takes {_quoted(names)}. "


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _arguments(given: list[Any], named: Mapping[str, Any]) -> str:
    shown = [reprlib.repr(value) for value in given]
    shown += [f"{name}={reprlib.repr(value)}" for name, value in named.items()]
    return ", ".join(shown)
