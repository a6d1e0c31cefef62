"""Constructors whose errors name the class that was called, and say what to write."""

from __future__ import annotations

import difflib
import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

_P = ParamSpec("_P")
_OF_EVERY_KERAS_LAYER = ("input_dim", "input_shape")  # though no signature has them


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
    return checked


def _check(
    cls: type, init: Callable, given: list[Any], named: Mapping[str, Any]
) -> None:
    unnamed = inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [each.name for each in _parameters(init) if each.kind is unnamed]
    name = cls.__name__
    call = f"{name}({_arguments(given, named)})"
    if len(given) > len(positional):
        raise TypeError(
            f"{name} takes {len(positional)} argument(s) without a name: {_quoted(positional)}. "
            f"Received: {call}"
        )
    for each in positional[: len(given)]:
        if each in named:
            raise TypeError(f"{name} has `{each}` twice. Received: {call}")
    missing = [each for each in positional[len(given) :] if each not in named]
    if missing:
        instead = _instead(cls, missing[-1])
        raise TypeError(
            f"{name} is missing {_quoted(missing)}. {instead}Received: {call}"
        )
    known = _known(cls, init)
    for unknown in named:
        if unknown not in known:
            instead = _instead(cls, unknown) or _nearest(unknown, known)
            raise ValueError(
                f"{name} has no argument `{unknown}`. {instead}"
                f"Received: {unknown}={named[unknown]!r}"
            )


def _parameters(init: Callable) -> list[inspect.Parameter]:
    """Returns the parameters after `self`."""
    _, *parameters = inspect.signature(init).parameters.values()
    return parameters


def _known(cls: type, init: Callable) -> set[str]:
    """Returns the names that one may give to a constructor of a class.

    An `__init__` hands on what it does not name. But what a base class takes without a name, the
    class that inherits from it gives itself, and what `_instead` names it does not hand on.
    """
    own = {each.name for each in _parameters(init)}
    known = {*_OF_EVERY_KERAS_LAYER}
    bases = iter(cls.__mro__)
    for base in bases:
        if vars(base).get("__init__") is init:
            break
    for base in bases:
        if "__init__" in vars(base) and base is not object:
            parameters = _parameters(vars(base)["__init__"])
            known.update(
                each.name for each in parameters if each.kind is each.KEYWORD_ONLY
            )
    cell = getattr(cls, "cell_class", None)
    if cell is not None:
        known |= _known(cell, cell.__init__)
    return (known - _texts(cls).keys() | own) - {"kwargs"}


def _texts(cls: type) -> Mapping[str, str]:
    return getattr(cls, "_instead", {})


def _instead(cls: type, name: str) -> str:
    text = _texts(cls).get(name)
    return f"{text} " if text else ""


def _nearest(name: str, known: set[str]) -> str:
    names = sorted(known - {*_OF_EVERY_KERAS_LAYER})
    nearest = difflib.get_close_matches(name, names, 1)
    if nearest:
        return f"Did you mean `{nearest[0]}`? "
    return f"It takes {_quoted(names)}. "


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _arguments(given: list[Any], named: Mapping[str, Any]) -> str:
    shown = [reprlib.repr(each) for each in given]
    shown += [f"{name}={reprlib.repr(value)}" for name, value in named.items()]
    return ", ".join(shown)
