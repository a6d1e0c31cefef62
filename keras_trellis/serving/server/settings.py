"""What a server allows, as values; each is a flag of the command too."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Any

from keras_trellis.formats.limits import MOST_TOKENS


def _limit(default: float, meaning: str, least: float = 1, most: float = 1e9) -> Any:
    metadata = {"meaning": meaning, "least": least, "most": most}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one server takes on.

    Attributes:
        slots: rows that are advanced together.
        queue: rows that wait for a slot; a request beyond that is answered by 429.
        rows: rows of a request, its texts times `n`.
        prompt_tokens: tokens of a text that is read.
        new_tokens: tokens that are added to a text.
        alternatives: tokens times alternatives that a request may list.
        body_bytes: bytes of a request.
        arriving: seconds for a request to arrive, and for a part of an answer to be read.
        deadline: seconds for an answer, once the request has arrived.
        connections: connections at once.
        grace: seconds for open requests after SIGTERM.
        poll: seconds between two looks for a new version.
        threads: threads that compute an operation; 0: as many as there are cores.

    Raises:
        ValueError: a value is out of range.
    """

    slots: int = _limit(64, "rows that are advanced together", most=4096)
    queue: int = _limit(256, "rows that wait for a slot, beyond which 429", least=0)
    rows: int = _limit(16, "rows of a request: its texts times n")
    prompt_tokens: int = _limit(16_384, "tokens of a text that is read", 1, MOST_TOKENS)
    new_tokens: int = _limit(4_096, "tokens added to a text", 1, MOST_TOKENS)
    alternatives: int = _limit(
        50_000, "tokens times alternatives that a request may list", least=0
    )
    body_bytes: int = _limit(262_144, "bytes of a request", least=1024)
    arriving: float = _limit(
        10, "seconds for a request to arrive, and for a part of an answer to be read"
    )
    deadline: float = _limit(60, "seconds for an answer, once its request has arrived")
    connections: int = _limit(4_096, "connections at once")
    grace: float = _limit(20, "seconds for open requests after SIGTERM", least=0)
    poll: float = _limit(1, "seconds between two looks for a new version", least=0.01)
    threads: int = _limit(1, "threads that compute an operation; 0: all cores", 0, 1024)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, limits = getattr(self, field.name), field.metadata
            if not limits["least"] <= value <= limits["most"]:
                raise ValueError(
                    f"`{field.name}` must be from {limits['least']:g} to {limits['most']:g}. "
                    f"Received: {field.name}={value}"
                )

    def __str__(self) -> str:
        """Returns a line for each limit."""
        lines = []
        for field in dataclasses.fields(self):
            value = f"{getattr(self, field.name):.10g}"
            meaning = field.metadata["meaning"]
            lines.append(f"  {flag(field.name):<16} {value:<7} {meaning}")
        return "\n".join(lines)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each limit."""
    for field in dataclasses.fields(Limits):
        parser.add_argument(
            flag(field.name),
            type=number if field.type == "float" else int,
            default=field.default,
            metavar="N",
            help=f"{field.metadata['meaning']} (%(default)s)",
        )


def from_flags(options: argparse.Namespace) -> Limits:
    """Returns the limits that flags say.

    Raises:
        ValueError: a value is out of range.
    """
    fields = dataclasses.fields(Limits)
    return Limits(**{field.name: getattr(options, field.name) for field in fields})


def flag(name: str) -> str:
    """Returns the flag of a limit."""
    return f"--{name.replace('_', '-')}"


def number(text: str) -> float:
    """Returns a finite number; argparse names this function where a text is none."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
