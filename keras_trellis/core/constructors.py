"""Constructors whose errors name the class that was called, and say what to write."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

_P = ParamSpec("_P")
_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_KERAS_EXTRAS = ("input_dim", "input_shape")  # no signature has them


def constructor(init: Callable[_P, None]) -> Callable[_P, None]:
    """Checks the arguments of an `__init__` before it runs.

    Python's own errors name the class that an `__init__` was inherited from, and Keras's the last
    class that unknown arguments were handed to, such as the cell of a layer.

    A class may have `_instead`, a name -> what to write where that argument is missing or unknown.

    Raises (what it returns):
        TypeError: an argument is missing, too many or given twice, as for Keras's layers.
        ValueError: an argument is unknown, as for Keras's layers.
    """

    @functools.wraps(init)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> None:
        layer, *given = args
        _check(type(layer), checked, given, kwargs)
        init(*args, **kwargs)

    # Keras asks `inspect.getfullargspec`, which does not look through a wrapper.
    checked.__signature__ = inspect.signature(init)  # type: ignore[attr-defined]
    checked.is_checked = True  # type: ignore[attr-defined]
    return checked


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
    for name, value in named.items():
        if name not in known and name not in _KERAS_EXTRAS:
            instead = _instead(cls, name) or _nearest(name, known)
            raise ValueError(
                f"{cls.__name__} has no argument `{name}`. {instead}"
                f"Received: {name}={value!r}"
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
