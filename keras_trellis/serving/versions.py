"""The version of a model that is served: the newest one, which is polled and swapped."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from keras_trellis.formats import manifest
from keras_trellis.serving import runtime
from keras_trellis.serving.failures import Failures
from keras_trellis.serving.runtime import LanguageModel
from keras_trellis.serving.slots import Slots
from keras_trellis.serving.worker import Worker

# Seconds until a version that could not be loaded is tried again, and until one that lacks
# something counts as damaged.
_PATIENCE = 30.0


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
    """Serves the newest good version; rows go to the one that is current when they begin.

    A version counts once its manifest and its files have the sizes that were written: until then it
    is being copied.

    Args:
        path: the folder of a model, or of one of its versions.
        start: makes the worker of slots that are warm.
        size: the number of slots of a version.
        threads: how many threads compute an operation.
        report: takes a sentence on each version that is loaded.
        failures: takes each version that cannot be, and each look for one that fails.

    Attributes:
        current: the version that takes new rows.

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
        failures: Failures,
    ) -> None:
        self._path = path
        self._start = start
        self._size = size
        self._threads = threads
        self._report = report
        self._failures = failures
        self._failed: dict[Path, float] = {}  # when a version could not be loaded
        self._partial: dict[Path, float] = {}  # since when a version lacks something
        self._leaving: list[Served] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.current = self._first()

    def begin(self, seconds: float) -> None:
        """Polls in a thread of its own, every so many seconds, until `stop` is called."""
        self._thread = threading.Thread(
            target=self._poll_every, args=[seconds], name="versions", daemon=True
        )
        self._thread.start()

    def problem(self) -> str | None:
        """Returns why nothing looks for new versions, after `begin`; None if it is looked."""
        if self._thread is None or self._stopped.is_set() or self._thread.is_alive():
            return None
        return "the thread that looks for new versions has ended"

    def poll(self) -> None:
        """Loads the newest good version if it is not the current one, and swaps them.

        Rows at work stay with the version that they began with, which ends after them.
        """
        self._leaving = [old for old in self._leaving if old.worker.is_alive()]
        try:
            folders = manifest.versions(self._path)
        except (manifest.ManifestError, OSError):
            return  # the current one, which is in memory, stays
        now = time.monotonic()
        for times in (self._failed, self._partial):
            for gone in times.keys() - {*folders}:
                del times[gone]
        for folder in folders:
            if folder == self.current.folder:
                return
            if now - self._failed.get(folder, -math.inf) < _PATIENCE:
                continue
            served = self._try(folder, now)
            if served is not None:
                self._swap(served)
                return

    def stop(self) -> None:
        """Polls no more, and cancels all rows."""
        self._stopped.set()
        for served in (*self._leaving, self.current):
            served.worker.give_up()

    def join(self) -> None:
        """Waits for the end of all workers, after `stop`."""
        for served in (*self._leaving, self.current):
            served.worker.join(_PATIENCE)

    def _first(self) -> Served:
        """Returns the newest good version."""
        folders = manifest.versions(self._path)
        first: Exception | None = None
        for folder in folders:
            whole = False
            try:
                entries = manifest.read(folder)
                manifest.check(folder, entries, entries.runtime.files, sizes_alone=True)
                whole = True
                return self._load(folder, entries)
            except (manifest.ManifestError, OSError) as error:
                first = first or error
                if whole and len(folders) > 1:
                    self._fail(folder, error)
        assert first is not None
        raise first

    def _poll_every(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            try:
                self.poll()
            except Exception as error:
                self._failures.add("poll", "looks for new versions in vain", error)

    def _try(self, folder: Path, now: float) -> Served | None:
        """Returns a version; None if it cannot be served, or not yet."""
        try:
            entries = manifest.read(folder)
            manifest.check(folder, entries, entries.runtime.files, sizes_alone=True)
        except (manifest.ManifestError, OSError) as error:
            if now - self._partial.setdefault(folder, now) >= _PATIENCE:
                self._fail(folder, error)
            return None
        self._partial.pop(folder, None)
        try:
            return self._load(folder, entries)
        except Exception as error:  # whatever a damaged file may cause
            self._fail(folder, error)
            return None

    def _fail(self, folder: Path, error: Exception) -> None:
        self._failed[folder] = time.monotonic()
        self._failures.add("version", f"{folder} cannot be served", error)

    def _swap(self, served: Served) -> None:
        old, self.current = self.current, served
        self._leaving.append(old)
        old.worker.close()
        self._report(f"serves version {served.number}, after {old.number}")

    def _load(self, folder: Path, entries: manifest.Manifest) -> Served:
        if entries.kind != "language_model":
            raise manifest.ManifestError(
                f"{folder} must hold a language model. Received: {entries.kind!r}"
            )
        model = runtime.load(folder, threads=self._threads)
        assert isinstance(model, LanguageModel)
        created = int((folder / manifest.NAME).stat().st_mtime)
        slots = Slots(model, self._size)
        slots.warm_up(self._size)
        return Served(folder, model, self._start(slots), created)
