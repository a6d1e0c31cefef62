"""Values of a search space: a config's own, others near them, and configs that have them."""

import bisect
import functools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import ml_collections

from trainers.data.names import flatten, unknown
from trainers.kinds.search import Choice, Integers, Search, Space
from trainers.models.layers import LAYERS
from trainers.tasks import config as configs
from trainers.tasks import registry, schema

Values = Mapping[str, Any]
"""Values of fields by their dotted names."""

_MOST_CHANGES = 3  # entries that a trial has unlike the best one
_STEP = 0.2  # standard deviation of a change, as a share of a range
_TRIES = 100  # to find values that no trial has had


def space(
    config: ml_collections.ConfigDict, fixed: Collection[str] = ()
) -> dict[str, Search]:
    """Returns the search space of a config's task, without what the config's layer ignores.

    Each choice has the config's own value, too.

    Args:
        config: the config.
        fixed: fields whose values stay, by their dotted names.
    """
    if config.task not in registry.TASKS:
        raise ValueError(f"--task={config.task} cannot be searched: it has no space")
    values, whole = flatten(config), registry.get(config.task).search
    layer = LAYERS[config.model.layer]
    ignored = {*schema.unread(values), *(f"model.{field}" for field in layer.untuned)}
    if layer.square:
        ignored.add("model.units")  # which other fields would have to follow
    return {
        name: _with_own(values, name, entry)
        for name, entry in whole.items()
        if not set(_fields(name, entry)) <= ignored
        and not set(_fields(name, entry)) & set(fixed)
    }


def check(config: ml_collections.ConfigDict, space: Space) -> None:
    """Checks a search space before anything is drawn from it.

    Args:
        config: what the drawn values replace values of.
        space: the search space.

    Raises:
        ValueError: it is empty or names an unknown field, two of its entries name one field, the
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
    for name, entry in space.items():
        for field in _fields(name, entry):
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
    for name, entry in space.items():
        if not isinstance(entry, Choice) and not entry.low <= own[name] <= entry.high:
            raise ValueError(
                f"`config.{name}` must be from {entry.low} to {entry.high}, its range in the "
                f"search space of --task={config.task}, or be set by --config.{name}=..., which is "
                f"not searched then. Received: config.{name}={own[name]} of "
                f"--preset={config.preset}"
            )


def single(space: Space) -> Iterator[Values]:
    """Yields each value alone: all of a choice, and both ends of a range."""
    for name, entry in space.items():
        yield from (_field_values(name, value) for value in entry.ends)


def own(config: ml_collections.ConfigDict, space: Space) -> dict[str, Any]:
    """Returns a config's own value of each entry; that of a choice is a string."""
    values = flatten(config)
    return {
        name: _stored(entry, _own(values, name, entry)) for name, entry in space.items()
    }


def near(
    space: Space, values: Values, earlier: Collection[Values], generator: random.Random
) -> dict[str, Any]:
    """Returns values with one, two or three entries changed.

    So one searches by hand. If all entries change at once, most trials are bad:
    docs/notes/language_models.md has a table of both.

    Args:
        space: the search space.
        values: a value of each entry, as `own` returns them.
        earlier: the values of earlier trials. None of them comes again, as long as other values are
            found in a hundred tries.
        generator: what decides which entries change, and to what.
    """
    for _ in range(_TRIES):
        count = min(generator.randint(1, _MOST_CHANGES), len(space))
        names = generator.sample(list(space), count)
        changed = {
            name: _neighbour(space[name], values[name], generator) for name in names
        }
        if (candidate := {**values, **changed}) not in earlier:
            break
    return candidate


def config_values(space: Space, values: Values) -> dict[str, Any]:
    """Returns the values of fields that a value of each entry stands for.

    Args:
        space: the search space.
        values: a value of each entry, as `own` returns them.
    """
    fields: dict[str, Any] = {}
    for name, entry in space.items():
        value = values[name]
        if isinstance(entry, Choice):
            value = {_stored(entry, item): item for item in entry.values}[value]
        fields |= _field_values(name, value)
    return fields


def apply(
    config: ml_collections.ConfigDict, values: Values
) -> ml_collections.ConfigDict:
    """Returns a config with other values of some fields.

    With another layer, a field that it does not read goes back to its default. A trial draws depth
    and dilations independently: those that no level uses are left out.

    Raises:
        ValueError: a value is not valid, or values do not go together.
    """
    own = flatten(config)
    changed = configs.with_used_dilations({**own, **values})
    behind = schema.left_behind(changed, own)
    return configs.from_flat({**changed, **schema.defaults_of(changed, behind)})


def sized(
    config: ml_collections.ConfigDict,
    parameters: int,
    count: Callable[[ml_collections.ConfigDict], int],
) -> ml_collections.ConfigDict:
    """Returns a config whose model has nearly a number of parameters: it solves for `model.units`.

    Args:
        config: the config.
        parameters: the number of parameters.
        count: returns the number of parameters of a config's model.

    Raises:
        ValueError: with any number of units the model is larger, or smaller, or not valid.
    """
    if count(config) == parameters:
        return apply(config, {})

    @functools.cache
    def count_with(units: int) -> int:
        try:
            return count(_with_units(config, units))
        except ValueError:  # it is too small, as with fewer units than attention heads
            return 0

    # The number of parameters grows with the units, which must be a multiple of the groups.
    step, most = config.model.groups, config.model.units
    while count_with(most) < parameters and most < parameters:
        most *= 2
    choices = range(step, most + 1, step)
    place = bisect.bisect_left(choices, parameters, key=count_with)
    around = choices[max(0, place - 1)], choices[min(place, len(choices) - 1)]
    ends = [units for units in around if count_with(units)] or [around[-1]]
    best = min(ends, key=lambda units: abs(count_with(units) - parameters))
    result = _with_units(config, best)
    if not count_with(ends[0]) <= parameters <= count_with(ends[-1]):
        size = "large" if count_with(best) < parameters else "small"
        raise ValueError(
            f"the model cannot be made as {size} as {parameters:,} parameters: "
            f"config.model.units={best} comes nearest, with {count_with(best):,}"
        )
    return result


def _with_units(
    config: ml_collections.ConfigDict, units: int
) -> ml_collections.ConfigDict:
    """Returns a config with other `model.units`.

    A layer with as many channels in as out has as many of these, too.

    Raises:
        ValueError: as `apply`.
    """
    names = ["model.units"]
    if LAYERS[config.model.layer].square:
        names += ["model.embedding_units", "model.output_units"]
    return apply(config, dict.fromkeys(names, units))


def format_value(value: Any) -> str:
    """Returns a value of a search space in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={format_value(item)}" for name, item in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _with_own(values: Values, name: str, entry: Search) -> Search:
    """Returns an entry; a choice has the config's own value, too."""
    if (
        not isinstance(entry, Choice)
        or (value := _own(values, name, entry)) in entry.values
    ):
        return entry
    return Choice((value, *entry.values))


def _own(values: Values, name: str, entry: Search) -> Any:
    """Returns a config's own value of an entry; a mapping if the entry names a group."""
    fields = _fields(name, entry)
    if fields == [name]:
        return values[name]
    return {field.removeprefix(f"{name}."): values[field] for field in fields}


def _stored(entry: Search, value: Any) -> Any:
    # A database of trials holds strings, but neither tuples nor mappings.
    return format_value(value) if isinstance(entry, Choice) else value


def _neighbour(entry: Search, value: Any, generator: random.Random) -> Any:
    """Returns another value of an entry: of a range one nearby, of a choice any."""
    if isinstance(entry, Choice):
        return generator.choice(
            [it for it in map(format_value, entry.values) if it != value]
        )
    scale, back = (math.log, math.exp) if entry.log else (float, float)
    deviation = _STEP * (scale(entry.high) - scale(entry.low))
    while True:
        drawn = back(generator.gauss(scale(value), deviation))
        neighbour = round(drawn) if isinstance(entry, Integers) else drawn
        if entry.low <= drawn <= entry.high and neighbour != value:
            return neighbour


def _field_values(name: str, value: Any) -> dict[str, Any]:
    """Returns the values of fields that a value of an entry stands for."""
    if isinstance(value, Mapping):
        return {f"{name}.{field}": item for field, item in value.items()}
    return {name: value}


def _fields(name: str, entry: Search) -> list[str]:
    """Returns the fields that an entry changes."""
    values = entry.values if isinstance(entry, Choice) else (None,)
    return list(
        dict.fromkeys(field for value in values for field in _field_values(name, value))
    )
