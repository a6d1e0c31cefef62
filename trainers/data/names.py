"""Names that users type, and the nearest known names."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

Values = Mapping[str, Any]  # of a config: nested, or by their dotted names
_MOST_GROUPS = 9  # in each other, of a damaged file; a config has three


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """Returns the message that refuses `name` and offers the nearest of the known names."""
    name, known = str(name), list(known)
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(known)}"
    return f"unknown {what} {name!r}; {hint}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is most like a name, or whose last part is; or None."""
    # A user may leave out the groups of a field, as in `units` for `model.units`.
    whole = {item: item for item in known}
    leaves = {item.rpartition(".")[2]: item for item in whole}
    for names in (whole, leaves):
        if near := difflib.get_close_matches(name, names, 1, 0.5):
            return names[near[0]]
    return None


def flatten(config: Values, prefix: str = "") -> dict[str, Any]:
    """Returns `{"group.field": value}` for every field below a nested mapping.

    Raises:
        ValueError: more groups stand in each other than in any config.
    """
    if prefix.count(".") > _MOST_GROUPS:
        raise ValueError("its values are nested too deeply")
    flat = {}
    for name, value in config.items():
        if hasattr(value, "items"):  # a ConfigDict is no Mapping
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def nested(flat: Values) -> dict[str, Any]:
    """Returns what `flatten` was given."""
    values: dict[str, Any] = {}
    for name, value in flat.items():
        *groups, leaf = name.split(".")
        group = values
        for part in groups:
            group = group.setdefault(part, {})
        group[leaf] = value
    return values


def differences(former: Values, values: Values) -> dict[str, tuple[Any, Any]]:
    """Returns the names whose values differ, with both; "nothing" stands for one that lacks."""
    return {
        name: (former.get(name, "nothing"), values.get(name, "nothing"))
        for name in {**former, **values}
        if name not in former or name not in values or former[name] != values[name]
    }


def check_flag(name: str, value: Any, expected: str, valid: bool) -> None:
    """Raises ValueError if a flag's value is not valid."""
    if not valid:
        raise ValueError(f"--{name} must be {expected}. Received: --{name}={value}")
