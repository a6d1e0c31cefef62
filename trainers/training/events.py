"""A run's TensorBoard events, made from its table: each tag has each step once.

A process begins by writing the events of the table up to its checkpoint into a new file. The new
file replaces the former ones. A former file that is damaged, or holds what the table does not, is
renamed.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf
from etils import epath
from google.protobuf import message

from trainers.data.files import spare_path

EVENTS = "tensorboard"
_NAME = "events.out.tfevents."  # TensorBoard reads only files with `tfevents` in their name
_FORMER = f"{_NAME}0000000000.kept.v2"  # sorts before the files of any process
_UNDER_WAY = "kept.part"  # becomes `_FORMER` when no other file has its events


class Events:
    """Writes scalars by kind, name and step.

    Args:
        folder: the folder for the files; created if it does not exist.
        rows: the rows of a `table.Table` up to `last_step`.
        last_step: the step that the run continues from.
        announce: takes a line about each file that is renamed.

    Raises:
        OSError, tf.errors.OpError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: epath.Path,
        rows: Iterable[Mapping[str, str]],
        *,
        last_step: int,
        announce: Callable[[str], None] = print,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        former = [_read(path) for path in folder.iterdir() if path.name.startswith(_NAME)]
        times = {step: time for file in former for (_, step), time in file.times.items()}
        self._recorded: set[tuple[str, int]] = set()
        self._open(folder / _UNDER_WAY)
        for row in rows:
            others = {k: v for k, v in row.items() if v and k not in ("kind", "step", "epoch")}
            values = {name: float(value) for name, value in others.items()}
            step = int(row["step"])
            self.add(row["kind"], step, values, times.get(step))
        self.close()
        for file in former:
            known = {key for key in file.times if key[1] > last_step or key in self._recorded}
            if file.damage or len(known) < len(file.times):
                name = file.path.name.replace("tfevents", "events")
                aside = file.path.rename(spare_path(file.path.with_name(name)))
                cause = file.damage or "the table does not have all of its events"
                announce(f"{file.path} is set aside as {aside}: {cause}")
            else:
                file.path.unlink()
        (folder / _UNDER_WAY).rename(folder / _FORMER)
        self._open(folder / f"{_NAME}{int(time.time()):010d}.v2")

    def add(
        self, kind: str, step: int, values: Mapping[str, float], at: float | None = None
    ) -> None:
        """Records values of a step, at a time in seconds since 1970; default: now."""
        self._recorded.update((f"{kind}/{name}", step) for name in values)
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


class _File(NamedTuple):
    """A file of events.

    Attributes:
        path: the file.
        times: when each tag and step was written, in seconds since 1970.
        damage: what cannot be read, or None.
    """

    path: epath.Path
    times: dict[tuple[str, int], float]
    damage: str | None


def _read(path: epath.Path) -> _File:
    times: dict[tuple[str, int], float] = {}
    damage = None
    try:
        for record in tf.data.TFRecordDataset(str(path), buffer_size=1 << 20).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            times.update({(each.tag, event.step): event.wall_time for each in event.summary.value})
    except (tf.errors.DataLossError, message.DecodeError) as error:
        # A record that was cut by a killed process is not damage.
        damage = None if "truncated record" in str(error) else "it is damaged"
    except tf.errors.OpError as error:
        damage = f"it cannot be read ({type(error).__name__})"
    return _File(path, times, damage)
