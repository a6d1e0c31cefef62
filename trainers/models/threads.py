"""Calls a function in a thread of its own. What is kept for each thread goes with it."""

import _thread
import sys
from collections.abc import Callable
from typing import Any

_SECONDS = 10.0  # between two looks at a thread; more than any takes to begin


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a function returns in a new thread.

    `threading.Thread.start` waits for ever for a thread that finds no memory to begin with
    (https://github.com/python/cpython/issues/140746).

    Raises:
        MemoryError: the thread found none.
        RuntimeError: the system has no other thread.
        BaseException: what the function raises.
    """
    ended = _thread.allocate_lock()
    ended.acquire()
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function(*arguments))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.release()

    thread = _thread.start_new_thread(run, ())
    while not ended.acquire(timeout=_SECONDS):
        # A public function, whatever its name: the frames of all threads.
        if thread in sys._current_frames():
            continue
        if ended.acquire(blocking=False):  # since the last look
            break
        raise MemoryError("a thread found no memory to begin with")
    if errors:
        raise errors[0]
    if not results:
        raise MemoryError("a thread found no memory for its result")
    return results[0]
