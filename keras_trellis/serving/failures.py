"""What fails in a thread that goes on: it is counted, and told."""

from __future__ import annotations

import collections
import threading
import traceback
from collections.abc import Callable

from keras_trellis.formats.manifest import ManifestError


class Failures:
    """Counts failures, and tells each in a line; where one happens first, with its traceback.

    A `ManifestError` says all that there is to say.

    Args:
        report: takes a text.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._counts: collections.Counter[str] = collections.Counter()
        self._traced: set[tuple[object, ...]] = set()
        self._lock = threading.Lock()

    def count(self, kind: str) -> int:
        """Returns how many failures of a kind there were."""
        return self._counts[kind]

    def add(self, kind: str, sentence: str, error: Exception) -> None:
        """Takes a failure.

        Args:
            kind: what it is counted as.
            sentence: what has failed.
            error: why.
        """
        is_told = isinstance(error, ManifestError)
        # The innermost place of the code that raised it.
        frames = [*traceback.walk_tb(error.__traceback__)][-1:]
        place = (type(error), *((frame.f_code, line) for frame, line in frames))
        with self._lock:
            self._counts[kind] += 1
            is_new = place not in self._traced
            self._traced.add(place)
        self._report(f"{sentence}: {error if is_told else reason(error)}")
        if is_new and not is_told:
            self._report("".join(traceback.format_exception(error)).rstrip())


def reason(error: BaseException) -> str:
    """Returns an error in one line, with its kind; some have no text."""
    lines = str(error).splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])
