"""The version of a model that is served: the newest one, which is polled and swapped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_trellis.serving import manifest, runtime
from keras_trellis.serving.limits import CHUNK
from keras_trellis.serving.rows import Asked, Row, continuations
from keras_trellis.serving.runtime import LanguageModel
from keras_trellis.serving.slots import Slots
from keras_trellis.serving.worker import Worker

_PATIENCE = 30.0  # seconds until a version that could not be loaded is tried again


class Served(NamedTuple):
    """A version at work.

    Attributes:
        folder: the version's.
        model: the version, loaded.
        worker: what advances its rows.
        created: when it was exported, in seconds since 1970.
    """

    folder: Path
    model: LanguageModel
    worker: Worker
    created: int

    @property
    def number(self) -> str:
        """The version's number, the name of its folder."""
        return self.folder.name


class Versions:
    """Serves the newest version of a model; rows go to the one that is current when they begin.

    Args:
        path: the folder of a model, or of one of its versions.
        start: makes the worker of slots that are warm.
        size: the number of slots of a version.
        threads: how many threads compute an operation.
        report: takes a sentence on each version that is loaded, or that cannot be.

    Attributes:
        current: the version that takes new rows.
        failures: how often a version could not be loaded.

    Raises:
        ManifestError: there is no version that can be served.
    """

    def __init__(
        self,
        path: Path,
        start: Callable[[Slots], Worker],
        size: int,
        threads: int,
        report: Callable[[str], None],
    ) -> None:
        self.failures = 0
        self._path = path
        self._start = start
        self._size = size
        self._threads = threads
        self._report = report
        self._failed: dict[Path, float] = {}  # when a version could not be loaded
        self._leaving: list[Served] = []
        self._stopped = threading.Event()
        self.current = self._load(manifest.newest(path))

    def poll(self) -> None:
        """Loads the newest version if it is not the current one, and swaps them.

        Rows at work stay with the version that they began with, which ends after them.
        """
        self._leaving = [old for old in self._leaving if old.worker.is_alive()]
        try:
            folder = manifest.newest(self._path)
        except (manifest.ManifestError, OSError):
            return  # the current one, which is in memory, stays
        if folder == self.current.folder:
            return
        tried = self._failed.get(folder)
        if tried is not None and time.monotonic() - tried < _PATIENCE:
            return
        try:
            served = self._load(folder)
        except Exception as error:  # whatever a folder that is being written may cause
            self.failures += 1
            self._failed[folder] = time.monotonic()
            self._report(f"{folder} cannot be served: {str(error).splitlines()[0]}")
            return
        old, self.current = self.current, served
        self._failed.clear()
        self._leaving.append(old)
        old.worker.close()
        self._report(f"serves version {served.number}, after {old.number}")

    def poll_every(self, seconds: float) -> None:
        """Polls until `stop` is called."""
        while not self._stopped.wait(seconds):
            self.poll()

    def stop(self) -> None:
        """Polls no more, and cancels all rows."""
        self._stopped.set()
        for served in (*self._leaving, self.current):
            served.worker.give_up()

    def join(self) -> None:
        """Waits for the end of all workers, after `stop`."""
        for served in (*self._leaving, self.current):
            served.worker.join(_PATIENCE)

    def _load(self, folder: Path) -> Served:
        entries = manifest.read(folder)
        if entries.kind != "language_model":
            raise manifest.ManifestError(
                f"{folder} must hold a language model. Received: {entries.kind!r}"
            )
        model = runtime.load(folder, threads=self._threads)
        assert isinstance(model, LanguageModel)
        created = int((folder / manifest.NAME).stat().st_mtime)
        slots = Slots(model, self._size)
        warm_up(model, slots)
        return Served(folder, model, self._start(slots), created)


def warm_up(model: LanguageModel, slots: Slots) -> None:
    """Fills all slots with rows that are read by chunks and by steps, and continued."""
    free = slots.free
    settings = model.vocabulary.settings(
        free,
        max_length=2,
        seed=0,
    )
    ids = np.full(CHUNK + 2, model.tokenizer.eos_id, np.int32)
    asked = (Asked(ids, one) for one in continuations(settings))
    slots.add([Row(one, model.tokenizer) for one in asked])
    while slots.rows:
        slots.step()
