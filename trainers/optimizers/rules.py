"""What a config must not ask of its optimizer."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainers.optimizers import OPTIMIZERS

# The fields that ask for averages, and their values without.
_AVERAGES = (("schedule.average", False), ("schedule.average_after", None))


def rules(values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yields what is refused: averages, of an optimizer that has none.

    Args:
        values: all of the config, by dotted names.

    Yields:
        rules as those of `trainers.models.fields`.
    """
    can = [name for name, kind in OPTIMIZERS.items() if kind.can_average]
    cannot = values["optimizer.name"] not in can
    unless = f"unless config.optimizer.name is {' or '.join(map(repr, can))}"
    for name, off in _AVERAGES:
        yield values[name] and cannot, name, f"{off} {unless}", "optimizer.name"
