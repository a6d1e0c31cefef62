"""A thread that advances rows, and the queue before it."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from keras_trellis.serving.rows import Outcome, Row
from keras_trellis.serving.slots import Slots


class FullError(Exception):
    """More rows wait than may."""


class ClosedError(Exception):
    """The worker takes no more rows: it is being closed, or has ended by an error."""


class Observer(Protocol):
    """What is told of the work."""

    def step(self, seconds: float, rows: int) -> None:
        """A step has been made, of so many rows."""

    def ended(self, row: Row) -> None:
        """A row has ended."""


class Worker:
    """Advances rows in a thread of its own.

    Args:
        slots: what advances them.
        most_waiting: how many rows may wait for a slot.
        report: takes rows with news, in the thread: those that have ended, and those that stream
            and have written.
        observer: is told of the work, in the thread.

    Attributes:
        error: what ended the thread, and all rows at work; None: nothing has.
        began: when the step at work began, by `time.monotonic`; None: there is none.
    """

    def __init__(
        self,
        slots: Slots,
        most_waiting: int,
        report: Callable[[Sequence[Row]], None],
        observer: Observer,
    ) -> None:
        self.error: BaseException | None = None
        self.began: float | None = None
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
        """Returns whether the thread advances rows, or would."""
        return self._thread.is_alive() and self.error is None

    def submit(self, rows: Sequence[Row]) -> None:
        """Takes rows, all of them or none.

        Raises:
            FullError: the queue has no room for them.
            ClosedError: the worker takes no more.
        """
        with self._changed:
            if self._closing or not self.is_alive():
                raise ClosedError("the worker has ended" if self.error else "closing")
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
        try:
            while self._admit():
                if self.busy:
                    self._step()
        except BaseException as error:
            self._fail(error)

    def _step(self) -> None:
        busy = self.busy
        self.began = begin = time.monotonic()
        news = self._slots.step()
        self._observer.step(time.monotonic() - begin, busy)
        self.began = None
        self._tell(news)

    def _admit(self) -> bool:
        """Gives free slots to rows that wait; returns whether there is, or may be, more to do."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._slots.rows or self._closing
            )
            if self._gives_up:
                for row in (*self._waiting, *self._slots.rows):
                    row.cancelled = True
            late = self._drop_late()
            count = min(self._slots.free, len(self._waiting))
            self._slots.add([self._waiting.popleft() for _ in range(count)])
        self._tell(late)
        return bool(self._slots.rows or self._waiting or not self._closing)

    def _drop_late(self) -> list[Row]:
        """Ends rows that have waited for too long, or that nobody waits for."""
        now = time.monotonic()
        for row in self._waiting:
            row.give_up(now)
        ended = [row for row in self._waiting if row.outcome]
        if ended:
            self._waiting = collections.deque(
                row for row in self._waiting if not row.outcome
            )
        return ended

    def _tell(self, news: Sequence[Row]) -> None:
        if not news:
            return
        for row in news:
            if row.outcome:
                self._observer.ended(row)
        self._report(news)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = error
            rows = [*self._slots.rows, *self._waiting]
            self._waiting.clear()
        ended = [row for row in rows if not row.outcome]
        for row in ended:
            row.outcome = Outcome.FAILED
        self._report(rows)
