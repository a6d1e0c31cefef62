"""A run's TensorBoard events, made from its table: each tag has each step once.

A process begins by writing the events of the table up to its checkpoint into a new file. The new
file replaces all former ones, whatever they hold.
"""

import contextlib
import time
from collections.abc import Iterable, Mapping

import tensorflow as tf
from etils import epath
from google.protobuf import message

EVENTS = "tensorboard"
_NAME = "events.out.tfevents."  # TensorBoard reads only files with `tfevents` in their name
_FORMER = f"{_NAME}0000000000.kept.v2"  # sorts before the files of any process
_UNDER_WAY = "kept.part"  # becomes `_FORMER` when no other file has its events


class Events:
    """Writes scalars by kind, name and step.

    Args:
        folder: the folder for the files; created if it does not exist.
        rows: the rows of a `table.Table` up to the step that the run continues from.

    Raises:
        OSError, tf.errors.OpError: the folder cannot be written.
    """

    def __init__(self, folder: epath.Path, rows: Iterable[Mapping[str, str]]):
        folder.mkdir(parents=True, exist_ok=True)
        former = [path for path in folder.iterdir() if path.name.startswith(_NAME)]
        times = _times(former)
        self._open(folder / _UNDER_WAY)
        for row in rows:
            others = {k: v for k, v in row.items() if v and k not in ("kind", "step", "epoch")}
            values = {name: float(value) for name, value in others.items()}
            step = int(row["step"])
            self.add(row["kind"], step, values, times.get(step))
        self.close()
        for path in former:
            path.unlink()
        (folder / _UNDER_WAY).rename(folder / _FORMER)
        self._open(folder / f"{_NAME}{int(time.time()):010d}.v2")

    def add(
        self, kind: str, step: int, values: Mapping[str, float], at: float | None = None
    ) -> None:
        """Records values of a step, at a time in seconds since 1970; default: now."""
        scalars = [
            tf.compat.v1.Summary.Value(tag=f"{kind}/{name}", simple_value=value)
            for name, value in values.items()
        ]
        self._write(at, step=step, summary=tf.compat.v1.Summary(value=scalars))

    def flush(self) -> None:
        """Writes all events to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def _open(self, path: epath.Path) -> None:
        self._writer = tf.io.TFRecordWriter(str(path))
        self._write(file_version="brain.Event:2")

    def _write(self, at: float | None = None, **fields: object) -> None:
        event = tf.compat.v1.Event(wall_time=at or time.time(), **fields)
        self._writer.write(event.SerializeToString())


def _times(paths: Iterable[epath.Path]) -> dict[int, float]:
    """Returns the time of each step in files, as far as they can be read."""
    found: dict[int, float] = {}
    for path in paths:
        records = tf.data.TFRecordDataset(str(path), buffer_size=1 << 20)
        with contextlib.suppress(tf.errors.OpError, message.DecodeError):
            for record in records.as_numpy_iterator():
                event = tf.compat.v1.Event.FromString(record)
                found[event.step] = event.wall_time
    return found
