"""Inputs drawn at random: JSON files that something has changed, and tables."""

import contextlib
import json
import random
from pathlib import Path
from typing import Any

from keras_trellis.formats import manifest

_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 2, 3.5, 1e400, 10**30, 2**31, 2**52, "", "x", "1", "../x"),
    *("\x00", "\ud800", [], {}, [[]], ["x"], {"x": 1}, [1] * 1000, "x" * 100_000),
]
# What a cell of a table may have, or a line.
_CELLS = ["", " ", "\x00", "\ufeff", "\u0663", "9" * 5000]
_CELLS += 'nan inf -inf 1e39 1e400 1e-50 -0 NA None true 0x10 1_0 1,5 x " "" \''.split()
_LINES = ["", "\x00", "\ufeff", "a" * 200_000]
_LINES += ', ,,,,,,, " id,t,x,y,label #'.split()
_COLUMNS = ("id", "x", "y", "label")


def flip_bit(path: Path, place: int) -> None:
    """Flips a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def change_json(path: Path, generator: random.Random) -> None:
    """Changes a JSON file: a bit of it, or a value, often with a checksum that fits."""
    if generator.random() < 0.3:
        flip_bit(path, generator.randrange(8 * path.stat().st_size))
        return
    entries = json.loads(path.read_text())
    for _ in range(generator.choice((1, 1, 1, 2))):
        _change_value(entries, generator)
    if path.name == manifest.NAME and generator.random() < 0.8:
        with contextlib.suppress(Exception):  # a change that has none
            entries["checksum"] = manifest.checksum(entries)
    text = json.dumps(entries)
    if generator.random() < 0.05:
        text = "[" * 100_000 + text
    path.write_text(text)


def _change_value(entries: Any, generator: random.Random) -> None:
    """Replaces, removes or doubles a value somewhere in an object."""
    places = list(_places(entries))
    if not places:
        return
    parent, key = generator.choice(places)
    how = generator.randrange(4)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, dict):
        parent[f"{key}x"] = parent[key]
    elif how == 2 and isinstance(parent[key], int):
        parent[key] += generator.choice((-1, 1, 1000))
    else:
        parent[key] = generator.choice(_VALUES)


def _places(value: Any) -> Any:
    """Yields each place of a nest: what holds a value, and under what.

    Not the numbers that a cache begins with: others, with a checksum that fits, are another model.
    """
    keys = list(value) if isinstance(value, dict) else range(len(value))
    keys = [key for key in keys if key != "first"]
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def table(generator: random.Random) -> list[list[str]]:
    """Returns the rows of eight series of two channels, of two kinds."""
    rows = []
    for series in range(8):
        kind = series % 2
        for step in range(6):
            noise = generator.gauss(0, 0.1)
            rows.append(
                [f"s{series}", f"{kind + noise:.3f}", f"{step:.1f}", "ab"[kind]]
            )
    return [list(_COLUMNS), *rows]


def write_table(path: Path, rows: list[list[str]]) -> None:
    """Writes a table, whose cells are written as they are."""
    text = "".join(",".join(row) + "\n" for row in rows)
    path.write_bytes(text.encode(errors="surrogatepass"))


def change_table(path: Path, generator: random.Random) -> None:
    """Changes a table: cells, lines, columns, or bytes."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    for _ in range(generator.randint(1, 4)):
        row = generator.randrange(len(rows))
        how = generator.randrange(6)
        if how == 0:
            rows[row] = [generator.choice(_LINES)]
        elif how == 1:
            rows[row] = rows[row][:-1]
        elif how == 2:
            rows.append(list(rows[row]))
        elif how == 3 and len(rows) > 2:
            del rows[row]
        elif rows[row]:
            cell = generator.randrange(len(rows[row]))
            rows[row][cell] = generator.choice(_CELLS)
    write_table(path, rows)
    if generator.random() < 0.2:
        content = bytearray(path.read_bytes())
        for _ in range(generator.randint(1, 3)):
            content[generator.randrange(len(content))] = generator.randrange(256)
        path.write_bytes(content)
