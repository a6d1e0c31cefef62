"""Values of a search space: a config's own, others near them, and configs that have them.

Anything with the methods of an Optuna trial holds the values, so that nothing here needs Optuna.
"""

import functools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

import ml_collections

from trainers.models.layers import LAYERS
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.tasks.names import flatten, unknown
from trainers.tasks.search import Choice, Integers, Search, Space, Uniform

Values = Mapping[str, Any]
"""Values of fields by their dotted names."""

_MOST_CHANGES = 3  # entries that a trial has unlike the best one
_STEP = 0.2  # standard deviation of a change, as a share of a range
_TRIES = 100  # to find values that no trial has had


class Draws(Protocol):
    """Draws values by name; an Optuna trial is one."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        """Returns a number of a range."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> int:
        """Returns an integer of a range."""

    def suggest_categorical(self, name: str, choices: list[str]) -> str:
        """Returns one of some strings."""


def space(
    config: ml_collections.ConfigDict, fixed: Collection[str] = ()
) -> dict[str, Search]:
    """Returns the search space of a config's task, without what the config's layer ignores.

    Each choice has the config's own value, too.

    Args:
        config: The config.
        fixed: Fields whose values stay, by their dotted names.
    """
    if config.task not in registry.TASKS:
        raise ValueError(f"--task={config.task} cannot be searched: it has no space")
    ignored = {f"model.{field}" for kind in LAYERS.values() for field in kind.own}
    ignored -= {f"model.{field}" for field in LAYERS[config.model.layer].own}
    values, whole = flatten(config), registry.get(config.task).search
    return {
        name: _with_own(values, name, each)
        for name, each in whole.items()
        if not set(_fields(name, each)) <= ignored
        and not set(_fields(name, each)) & set(fixed)
    }


def check(config: ml_collections.ConfigDict, space: Space) -> None:
    """Checks a search space before anything is drawn from it.

    Args:
        config: What the drawn values replace values of.
        space: The search space.

    Raises:
        ValueError: It is empty or names an unknown field, two of its entries name one field, the
            config cannot have one of its values, or the config's own value is not in a range.
    """
    if not space:
        raise ValueError(f"the search space of --task={config.task} is empty")
    _check_names(config, space)
    _check_own(config, space)
    for values in single(space):
        apply(config, values)


def _check_names(config: ml_collections.ConfigDict, space: Space) -> None:
    """Raises ValueError for a field that does not exist, or that two entries name."""
    table = schema.fields(config)
    seen: dict[str, str] = {}
    for name, each in space.items():
        for field in _fields(name, each):
            if field not in table:
                raise ValueError(
                    unknown("config field of the search space", field, table)
                )
            if field in seen:
                raise ValueError(
                    f"the search space has {field!r} twice, in {seen[field]} and {name}"
                )
            seen[field] = name


def _check_own(config: ml_collections.ConfigDict, space: Space) -> None:
    """Raises ValueError if a value of the config is not in the range that is searched."""
    own = flatten(config)
    for name, each in space.items():
        if not isinstance(each, Choice) and not each.low <= own[name] <= each.high:
            raise ValueError(
                f"`config.{name}` must be from {each.low} to {each.high}, its range in the search "
                f"space of --task={config.task}, or be set by --config.{name}=..., which is not "
                f"searched then. Received: config.{name}={own[name]} of --preset={config.preset}"
            )


def single(space: Space) -> Iterator[Values]:
    """Yields each value alone: all of a choice, and both ends of a range."""
    for name, each in space.items():
        yield from (_of_fields(name, value) for value in each.ends)


def own(config: ml_collections.ConfigDict, space: Space) -> dict[str, Any]:
    """Returns a config's own value of each entry, as `Draws` has it: a choice is a string."""
    values = flatten(config)
    return {
        name: _stored(each, _own(values, name, each)) for name, each in space.items()
    }


def near(
    space: Space, values: Values, earlier: Collection[Values], generator: random.Random
) -> dict[str, Any]:
    """Returns values with one, two or three entries changed.

    So one searches by hand. If all entries change at once, most trials are bad: docs/tuning.md has
    a table of both.

    Args:
        space: The search space.
        values: A value of each entry, as `Draws` has it.
        earlier: The values of earlier trials. None of them comes again, as long as other values are
            found in a hundred tries.
        generator: What decides which entries change, and to what.
    """
    for _ in range(_TRIES):
        count = min(generator.randint(1, _MOST_CHANGES), len(space))
        names = generator.sample(list(space), count)
        changed = {
            name: _neighbour(space[name], values[name], generator) for name in names
        }
        if (found := {**values, **changed}) not in earlier:
            break
    return found


def draw(space: Space, draws: Draws) -> dict[str, Any]:
    """Draws a value of each entry; returns values of fields."""
    drawn: dict[str, Any] = {}
    for name, each in space.items():
        drawn |= _of_fields(name, _drawn(name, each, draws))
    return drawn


def apply(
    config: ml_collections.ConfigDict, values: Values
) -> ml_collections.ConfigDict:
    """Returns a config with other values of some fields.

    Raises:
        ValueError: A value is not valid, or values do not go together.
    """
    return configs.from_flat({**flatten(config), **values})


def sized(
    config: ml_collections.ConfigDict,
    parameters: int,
    count: Callable[[ml_collections.ConfigDict], int],
) -> ml_collections.ConfigDict:
    """Returns a config whose model has nearly a number of parameters: it solves for `model.units`.

    Args:
        config: The config.
        parameters: The number of parameters.
        count: Returns the number of parameters of a config's model.

    Raises:
        ValueError: With any number of units the model is larger, or smaller, or not valid.
    """
    if count(config) == parameters:
        return apply(config, {})

    @functools.cache
    def of(units: int) -> int:
        try:
            return count(apply(config, {"model.units": units}))
        except ValueError:  # it is too small, as with fewer units than attention heads
            return 0

    step = config.model.groups
    low = high = config.model.units
    while of(high) < parameters and high < parameters:
        low, high = high, 2 * high
    while of(low) >= parameters and low > step:
        low, high = max(step, low // 2 // step * step), low
    while high - low > step:
        middle = (low + high) // 2 // step * step
        low, high = (middle, high) if of(middle) < parameters else (low, middle)
    ends = [units for units in (low, high) if of(units)] or [high]
    best = min(ends, key=lambda units: abs(of(units) - parameters))
    found = apply(config, {"model.units": best})
    if not of(ends[0]) <= parameters <= of(ends[-1]):
        size = "large" if of(best) < parameters else "small"
        raise ValueError(
            f"the model cannot be made as {size} as {parameters:,} parameters: "
            f"config.model.units={best} comes nearest, with {of(best):,}"
        )
    return found


def told(value: Any) -> str:
    """Returns a value of a search space in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={told(each)}" for name, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _with_own(values: Values, name: str, each: Search) -> Search:
    """Returns an entry; a choice has the config's own value, too."""
    if (
        not isinstance(each, Choice)
        or (value := _own(values, name, each)) in each.values
    ):
        return each
    return Choice((value, *each.values))


def _own(values: Values, name: str, each: Search) -> Any:
    """Returns a config's own value of an entry; a mapping if the entry names a group."""
    fields = _fields(name, each)
    if fields == [name]:
        return values[name]
    return {field.removeprefix(f"{name}."): values[field] for field in fields}


def _stored(each: Search, value: Any) -> Any:
    # A database of trials holds strings, but neither tuples nor mappings.
    return told(value) if isinstance(each, Choice) else value


def _neighbour(each: Search, value: Any, generator: random.Random) -> Any:
    """Returns another value of an entry: of a range one nearby, of a choice any."""
    if isinstance(each, Choice):
        return generator.choice([it for it in map(told, each.values) if it != value])
    scale, back = (math.log, math.exp) if each.log else (float, float)
    deviation = _STEP * (scale(each.high) - scale(each.low))
    while True:
        drawn = back(generator.gauss(scale(value), deviation))
        found = round(drawn) if isinstance(each, Integers) else drawn
        if each.low <= drawn <= each.high and found != value:
            return found


def _drawn(name: str, each: Search, draws: Draws) -> Any:
    if isinstance(each, Uniform):
        return draws.suggest_float(name, each.low, each.high, log=each.log)
    if isinstance(each, Integers):
        return draws.suggest_int(name, each.low, each.high, log=each.log)
    values = {_stored(each, value): value for value in each.values}
    return values[draws.suggest_categorical(name, list(values))]


def _of_fields(name: str, value: Any) -> dict[str, Any]:
    """Returns the values of fields that a value of an entry stands for."""
    if isinstance(value, Mapping):
        return {f"{name}.{field}": each for field, each in value.items()}
    return {name: value}


def _fields(name: str, each: Search) -> list[str]:
    """Returns the fields that an entry changes."""
    values = each.values if isinstance(each, Choice) else (None,)
    return list(
        dict.fromkeys(field for value in values for field in _of_fields(name, value))
    )
