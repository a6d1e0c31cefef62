"""A thread that advances rows, and the queue before it.

A step that fails ends the rows of that step alone. Then the slots begin anew, and advance a row of
the worker's own before they take others: what does not work at all is found without a request.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from keras_trellis.serving.failures import reason
from keras_trellis.serving.rows import Outcome, Row
from keras_trellis.serving.slots import Slots

_PAUSE = 1.0  # seconds between two attempts of a model that does not work
_STUCK = 60.0  # seconds that no step takes


class FullError(Exception):
    """More rows wait than may."""


class ClosedError(Exception):
    """The worker takes no more rows: it is being closed, or its model does not work."""


class Observer(Protocol):
    """What is told of the work."""

    def step(self, seconds: float, rows: int, read: int, written: int) -> None:
        """A step has been made, of so many rows, which has read and written so many tokens."""

    def ended(self, row: Row) -> None:
        """A row has ended."""

    def failed(self, error: Exception) -> None:
        """A step has failed."""


class Worker:
    """Advances rows in a thread of its own.

    Args:
        slots: what advances them.
        most_waiting: how many rows may wait for a slot.
        report: takes rows with news, in the thread: those that have ended, and those that stream
            and have written.
        observer: is told of the work, in the thread.
    """

    def __init__(
        self,
        slots: Slots,
        most_waiting: int,
        report: Callable[[Sequence[Row]], None],
        observer: Observer,
    ) -> None:
        self._fails = 0  # steps in a row
        self._error: Exception | None = None  # of the last of them
        self._began: float | None = (
            None  # when the step at work did, by `time.monotonic`
        )
        self._slots = slots
        self._most_waiting = most_waiting
        self._report = report
        self._observer = observer
        self._waiting: collections.deque[Row] = collections.deque()
        self._changed = threading.Condition()
        self._closing = False
        self._gives_up = False
        self._thread = threading.Thread(target=self._run, name="slots", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many rows wait for a slot."""
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """How many rows have one."""
        return len(self._slots.rows)

    def is_alive(self) -> bool:
        """Returns whether the thread has not ended."""
        return self._thread.is_alive()

    def problem(self) -> str | None:
        """Returns why no row is advanced; None if rows are."""
        if not self.is_alive():
            return "the worker has ended"
        fails, error, began = self._fails, self._error, self._began
        if fails > 1 and error is not None:  # a row of its own has failed, too
            return f"{fails} steps in a row have failed: {reason(error)}"
        if began is not None and time.monotonic() - began > _STUCK:
            return f"the worker has been at one step for more than {_STUCK:g} seconds"
        return None

    def submit(self, rows: Sequence[Row]) -> None:
        """Takes rows, all of them or none.

        Raises:
            FullError: the queue has no room for them.
            ClosedError: the worker takes no more.
        """
        with self._changed:
            problem = "closing" if self._closing else self.problem()
            if problem:
                raise ClosedError(problem)
            waiting = len(self._waiting) + len(rows) - self._slots.free
            if waiting > self._most_waiting:
                raise FullError(f"{len(self._waiting)} rows wait for a slot")
            self._waiting += rows
            self._changed.notify()

    def close(self) -> None:
        """Takes no more rows; the thread ends once all rows have."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def give_up(self) -> None:
        """Cancels all rows, and ends the thread."""
        with self._changed:
            self._closing = self._gives_up = True
            self._changed.notify()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end of the thread, after `close` or `give_up`."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closing or self._waiting or self._slots.rows:
            at_work: Sequence[Row] = ()
            try:
                self._wait()
                self._tell(self._drop_late())
                if self._fails:
                    self._slots.warm_up(1)
                    self._fails, self._error = 0, None
                at_work = self._admit()
                if at_work:
                    self._step()
            except Exception as error:
                self._fail(error, at_work)

    def _wait(self) -> None:
        """Waits until there is, or may be, more to do."""
        with self._changed:
            if self._fails > 1:
                self._changed.wait_for(lambda: self._gives_up, _PAUSE)
            else:
                self._changed.wait_for(
                    lambda: (
                        self._waiting
                        or self._slots.rows
                        or self._closing
                        or self._fails
                    )
                )
            if self._gives_up:
                for row in (*self._waiting, *self._slots.rows):
                    row.cancelled = True

    def _admit(self) -> Sequence[Row]:
        """Gives free slots to rows that wait; returns all that have one."""
        with self._changed:
            count = min(self._slots.free, len(self._waiting))
            self._slots.add([self._waiting.popleft() for _ in range(count)])
            return self._slots.rows

    def _step(self) -> None:
        busy = self.busy
        self._began = begin = time.monotonic()
        before = self._slots.tokens
        news = self._slots.step()
        read, written = (
            new - old for new, old in zip(self._slots.tokens, before, strict=True)
        )
        self._observer.step(time.monotonic() - begin, busy, read, written)
        self._began = None
        self._tell(news)

    def _drop_late(self) -> list[Row]:
        """Ends rows that have waited for too long, or that nobody waits for."""
        with self._changed:
            now = time.monotonic()
            for row in self._waiting:
                row.give_up(now)
            ended = [row for row in self._waiting if row.outcome]
            if ended:
                going_on = (row for row in self._waiting if not row.outcome)
                self._waiting = collections.deque(going_on)
        return ended

    def _tell(self, news: Sequence[Row]) -> None:
        if not news:
            return
        for row in news:
            if row.outcome:
                self._observer.ended(row)
        self._report(news)

    def _fail(self, error: Exception, at_work: Sequence[Row]) -> None:
        """Ends the rows of a step that has failed, and empties the slots."""
        self._began = None
        self._fails, self._error = self._fails + 1, error
        rows = {*at_work, *self._slots.rows}
        self._slots.clear()
        for row in rows:
            row.outcome = row.outcome or Outcome.FAILED
        with contextlib.suppress(Exception):  # who waits has a deadline
            self._tell([*rows])
        with contextlib.suppress(Exception):  # memory may be short
            self._observer.failed(error)
