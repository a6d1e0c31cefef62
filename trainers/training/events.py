"""A run's TensorBoard events: each tag has each step once, however often the run stopped.

A process that goes on first drops what was recorded after its checkpoint, and writes what the table
has and the events lack.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf
from etils import epath
from google.protobuf import message

from trainers.data.files import exists, read_bytes, set_aside, write_atomically

EVENTS = "tensorboard"
_MARK = "tfevents"  # TensorBoard reads files that have it in their name, and no others
_KEPT = "events.out.tfevents.0000000000.kept.v2"  # read before those of any process
_UNDER_WAY = "kept.part"  # becomes `_KEPT` once nothing else has its events
_FRAME_BYTES = 16  # about a record in the file: its length, and checksums of that and of itself


class LackingError(OSError):
    """Not all events are on disk; `Events` made anew writes those that the table has."""


class Events:
    """Writes scalars by kind, name and step.

    Args:
        folder: where to; made where it does not exist.
        rows: what has been recorded up to `last_step`, those of a `table.Table`.
        last_step: the step that the run goes on from.
        announce: is told, in a line, which file cannot be read.

    Raises:
        OSError, tf.errors.OpError: the folder cannot be written. It still has all that it had.
    """

    def __init__(
        self,
        folder: epath.Path,
        rows: Iterable[Mapping[str, str]],
        *,
        last_step: int,
        announce: Callable[[str], None] = print,
    ):
        self._folder = folder
        self._recorded = _drop_after(last_step, folder, announce)
        self._writer = tf.summary.create_file_writer(str(folder))
        for row in rows:
            others = {k: v for k, v in row.items() if v and k not in ("kind", "step", "epoch")}
            values = {name: float(value) for name, value in others.items()}
            self.add(row["kind"], int(row["step"]), values)

    def add(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Records values of a step, but for those that are recorded already."""
        with self._writer.as_default():
            for name, value in values.items():
                tag = f"{kind}/{name}"
                if (tag, step) not in self._recorded:
                    tf.summary.scalar(tag, value, step=step)
                    self._recorded.add((tag, step))

    def flush(self) -> None:
        """Has everything in the file."""
        self._writer.flush()

    def close(self) -> None:
        """Ends the file.

        Raises:
            LackingError: events are missing in it. TensorFlow's writer tells of no write that
                failed, and of what follows one in a file nothing can be read.
        """
        self._writer.close()
        found: set[tuple[str, int]] = set()
        for path in _files(self._folder):
            _read(path, sys.maxsize, found)
        if lacking := len(self._recorded - found):
            raise LackingError(f"{lacking} events of {len(self._recorded)} are not in its files")


class _File(NamedTuple):
    """An event file.

    Attributes:
        records: those to keep, as they stand in the file.
        whole: whether it has no others.
        damage: what cannot be read; None where everything can.
    """

    records: list[bytes]
    whole: bool
    damage: str | None


def _drop_after(
    last_step: int, folder: epath.Path, announce: Callable[[str], None]
) -> set[tuple[str, int]]:
    """Drops events after a step, and second ones of a step; returns the tags and steps that stay.

    Where there are such, all others go into one file. It comes to its name when the former files
    are gone: were we killed in between, some events would be missing until the next call, and none
    would be there twice.
    """
    under_way = folder / _UNDER_WAY
    recorded: set[tuple[str, int]] = set()
    if not exists(folder):
        return recorded
    former = _files(folder)
    paths = [under_way, *former] if exists(under_way) else former
    files = {path: _read(path, last_step, recorded) for path in paths}
    if under_way not in files and all(file.whole for file in files.values()):
        return recorded
    records = [record for file in files.values() for record in file.records]
    write_atomically(under_way, lambda stream: stream.write(b"".join(records)))
    for path in former:
        if damage := files[path].damage:
            aside = set_aside(path, path.name.replace(_MARK, "events"))
            announce(f"{path} cannot be read ({damage}); it is set aside as {aside}")
        else:
            path.unlink()
    under_way.rename(folder / _KEPT)
    return recorded


def _files(folder: epath.Path) -> list[epath.Path]:
    return sorted(path for path in folder.iterdir() if _MARK in path.name and path.is_file())


def _read(path: epath.Path, last_step: int, recorded: set[tuple[str, int]]) -> _File:
    """Reads the events up to a step that are not yet `recorded`, which they join."""
    content, end = b"", 0
    kept: list[bytes] = []
    whole, damage = True, None
    try:
        content = read_bytes(path)
        for record in tf.data.TFRecordDataset(str(path), buffer_size=1 << 20).as_numpy_iterator():
            start, end = end, end + len(record) + _FRAME_BYTES
            event = tf.compat.v1.Event.FromString(record)
            keys = {(value.tag, event.step) for value in event.summary.value}
            again = keys and keys <= recorded
            if event.step <= last_step and not again:
                kept.append(content[start:end])
                recorded |= keys
            else:
                whole = False
    except (tf.errors.DataLossError, message.DecodeError) as error:
        # What a process leaves that was killed while writing is not damage.
        damage = None if "truncated record" in str(error) else f"damaged at byte {end}"
        whole = False
    except (OSError, tf.errors.OpError) as error:
        damage = getattr(error, "strerror", None) or type(error).__name__
        whole = False
    return _File(kept, whole and end == len(content), damage)
