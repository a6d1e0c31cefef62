"""A run's TensorBoard events: each tag has each step once, however often the run stopped.

A resumed process first drops the events after its checkpoint. Then it writes the events that only
the table has.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf
from etils import epath
from google.protobuf import message

from trainers.data.files import exists, is_file, read_bytes, set_aside, write_atomically
from trainers.data.stores import Mirror, is_store

EVENTS = "tensorboard"
_MARK = "tfevents"  # TensorBoard reads only files with this in their name
# Sorts before the files of any process.
_RETAINED = "events.out.tfevents.0000000000.kept.v2"
# TensorBoard does not read it: its name lacks the mark.
_UNDER_WAY = "kept.part"  # becomes `_RETAINED` when no other file has its events
# Around each record: its length, and checksums of the length and the record.
_FRAME_BYTES = 16


class LackingError(OSError):
    """Not all events are on disk; a new `Events` writes those of the table."""


class Events:
    """Writes scalars by kind, name and step.

    TensorFlow cannot write to every object store. For one, the files are written on this machine,
    and `flush` sends them.

    Args:
        folder: the folder for the files; created if it does not exist.
        rows: the rows of a `table.Table` up to `last_step`.
        last_step: the step that the run continues from.
        announce: takes a line about each file that cannot be read.

    Raises:
        OSError, tf.errors.OpError: the folder cannot be written. No event is lost.
    """

    def __init__(
        self,
        folder: epath.Path,
        rows: Iterable[Mapping[str, str]],
        *,
        last_step: int,
        announce: Callable[[str], None] = print,
    ):
        self._mirror = Mirror(folder) if is_store(folder) else None
        self._folder = self._mirror.folder if self._mirror else folder
        self._recorded = _drop_after(last_step, self._folder, announce)
        self._writer = tf.summary.create_file_writer(str(self._folder))
        for row in rows:
            others = {
                k: v for k, v in row.items() if v and k not in ("kind", "step", "epoch")
            }
            values = {name: float(value) for name, value in others.items()}
            self.add(row["kind"], int(row["step"]), values)

    def add(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Records values of a step that are not recorded yet."""
        with self._writer.as_default():
            for name, value in values.items():
                tag = f"{kind}/{name}"
                if (tag, step) not in self._recorded:
                    tf.summary.scalar(tag, value, step=step)
                    self._recorded.add((tag, step))

    def flush(self) -> None:
        """Writes all events to the file."""
        self._writer.flush()
        self._send()

    def close(self) -> None:
        """Closes the file.

        Raises:
            LackingError: the files lack events. TensorFlow's writer does not report a failed write,
                and events after one cannot be read.
        """
        self._writer.close()
        self._send()
        if lacking := len(self._recorded - recorded(event_files(self._folder))):
            raise LackingError(
                f"{lacking} events of {len(self._recorded)} are not in its files"
            )

    def _send(self) -> None:
        if self._mirror:
            self._mirror.send()


def recorded(paths: Iterable[epath.Path]) -> set[tuple[str, int]]:
    """Returns the tags and steps of the events that files have."""
    written: set[tuple[str, int]] = set()
    for path in paths:
        _read(path, sys.maxsize, written)
    return written


class _File(NamedTuple):
    """An event file.

    Attributes:
        records: the records to keep, as bytes of the file.
        whole: whether the file has no others.
        damage: what cannot be read, or None.
    """

    records: list[bytes]
    whole: bool
    damage: str | None


def _drop_after(
    last_step: int, folder: epath.Path, announce: Callable[[str], None]
) -> set[tuple[str, int]]:
    """Drops events after a step and repeated events; returns the tags and steps that stay.

    If it drops any, it copies all others into one file, which gets its final name after the former
    files are gone. If the process is killed in between, events are missing until the next call, but
    none is there twice.
    """
    under_way = folder / _UNDER_WAY
    recorded: set[tuple[str, int]] = set()
    former = event_files(folder)
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
    under_way.rename(folder / _RETAINED)
    return recorded


def event_files(folder: epath.Path) -> list[epath.Path]:
    """Returns the event files in a folder, which need not exist."""
    paths = folder.iterdir() if exists(folder) else ()
    return sorted(path for path in paths if _MARK in path.name and is_file(path))


def _read(path: epath.Path, last_step: int, recorded: set[tuple[str, int]]) -> _File:
    """Reads the events up to a step that are not in `recorded`, and adds them to it."""
    content, end = b"", 0
    retained: list[bytes] = []
    whole, damage = True, None
    try:
        content = read_bytes(path)
        for record in tf.data.TFRecordDataset(
            str(path), buffer_size=1 << 20
        ).as_numpy_iterator():
            start, end = end, end + len(record) + _FRAME_BYTES
            event = tf.compat.v1.Event.FromString(record)
            keys = {(value.tag, event.step) for value in event.summary.value}
            again = keys and keys <= recorded
            if event.step <= last_step and not again:
                retained.append(content[start:end])
                recorded |= keys
            else:
                whole = False
    except (tf.errors.DataLossError, message.DecodeError) as error:
        # A record cut by a killed process is not damage.
        damage = None if "truncated record" in str(error) else f"damaged at byte {end}"
        whole = False
    except (OSError, tf.errors.OpError) as error:
        damage = getattr(error, "strerror", None) or type(error).__name__
        whole = False
    return _File(retained, whole and end == len(content), damage)
