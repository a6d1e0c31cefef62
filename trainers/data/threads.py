"""Functions in threads of their own. What is kept for each thread goes with it."""

import _thread
import sys
from collections.abc import Callable
from typing import Any

_SECONDS = 10.0  # between two looks at a thread; more than any takes to begin


class Started:
    """A function that runs in a new thread.

    `threading.Thread.start` waits for ever for a thread that finds no memory to begin with
    (https://github.com/python/cpython/issues/140746).

    Raises:
        MemoryError: there is no memory for a thread.
        RuntimeError: the system has no other thread.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._results: list[Any] = []
        self._errors: list[BaseException] = []
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        self._thread = _thread.start_new_thread(self._run, (function, arguments))

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self._results.append(function(*arguments))
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._ended.release()

    def result(self) -> Any:
        """Waits for the function, once; returns what it returns.

        Raises:
            MemoryError: the thread found no memory to begin with, or for its result.
            BaseException: what the function raises.
        """
        while not self._ended.acquire(timeout=_SECONDS):
            # A public function, whatever its name: the frames of all threads.
            if self._thread in sys._current_frames():
                continue
            if self._ended.acquire(blocking=False):  # since the last look
                break
            raise MemoryError("a thread found no memory to begin with")
        if self._errors:
            raise self._errors[0]
        if not self._results:
            raise MemoryError("a thread found no memory for its result")
        return self._results[0]


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a function returns in a new thread; raises as `Started` does."""
    return Started(function, *arguments).result()
