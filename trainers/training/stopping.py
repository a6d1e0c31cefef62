"""How a command is stopped: by SIGINT, SIGTERM, SIGHUP, or an output that nobody reads any more.

`listen` has these signals end a command where it is. Within `StopSignals` they are recorded
instead, by those who have something to save first. Either way the exit status is 128 and the
signal's number, and a second signal ends the process at once. What the process was started to
ignore, as by `nohup`, stays ignored.
"""

import contextlib
import errno
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

__all__ = [
    "NUMBERS",
    "Output",
    "OutputError",
    "StopSignals",
    "StoppedError",
    "abandon",
    "ended_by",
    "listen",
    "say",
    "status_of",
]

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ended_by: int | None = None
_SAME = 1.0  # seconds in which SIGTERM is sent once more by `timeout`, which means the same one


class StoppedError(SystemExit):
    """A command was told to stop; where nobody catches it, that is the end and its status.

    Not an `Exception`: those who try again what failed must not take it for a failure.

    Attributes:
        code: the exit status.
    """

    def __init__(self, number: int) -> None:
        super().__init__(status_of(number))


class _AtOnceError(StoppedError):
    """Leaves `StopSignals.at_once`; what it stands for has been recorded."""


def status_of(number: int) -> int:
    """Returns the exit status of a command that a signal stopped, as shells have it."""
    return 128 + number


def say(line: str, stderr: int = 2) -> None:
    """Writes a line to stderr, if that is possible; from a signal's handler, too."""
    start = "\n" if os.isatty(stderr) else ""  # there the line has ^C
    with contextlib.suppress(OSError):
        os.write(stderr, f"{start}{line}\n".encode())


def listen(*, importing: bool = False, stderr: int = 2) -> None:
    """Has a signal end this process, with a line instead of a traceback.

    To be called in the main thread, for a process that is one command.

    Args:
        importing: end it on the spot: modules in C may not be left by an exception.
        stderr: the descriptor that the line goes to then.
    """
    global _ended_by
    _ended_by = None
    _open_streams()
    _handle(functools.partial(_end, stderr) if importing else _stop)
    sys.unraisablehook = _lost


class StopSignals:
    """Records signals instead of ending the process; a second one ends it.

    Attributes:
        received: the name of the signal that came, or None. SIGPIPE: see `output`.
    """

    def __init__(self, tell: Callable[[], Any] | None = None) -> None:
        """Args: tell: is called once, when a signal has come."""
        self.received: str | None = None
        self._tell = tell
        self._former: dict[int, Any] = {}
        self._at_once = False

    def __enter__(self) -> "StopSignals":
        self._former = _handle(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Has a signal raise StoppedError meanwhile, for what takes long and can be done again."""
        self._at_once = True
        try:
            if self.received:
                raise self.error()
            yield
        finally:
            self._at_once = False

    @contextlib.contextmanager
    def output(self) -> Iterator[None]:
        """Has stdout raise nothing meanwhile; that it was closed is recorded as SIGPIPE.

        Where it cannot be written for another reason, as where it is a file on a full disk, a line
        says so, and no more is written there.
        """
        with contextlib.redirect_stdout(_Tolerant(sys.stdout, self)):
            yield

    def check(self) -> None:
        """Raises StoppedError where a signal has come, and says so."""
        if self.received:
            say(f"{self.reason}; the same command goes on")
            raise self.error()

    @property
    def reason(self) -> str:
        """What has come, in words."""
        return _reason(signal.Signals[self.received or ""])

    def error(self) -> StoppedError:
        """Returns what ends the command, a signal having come."""
        return StoppedError(signal.Signals[self.received or ""])

    def record(self, number: int) -> None:
        """Records a signal, the first."""
        if self.received is None:
            self.received = signal.Signals(number).name
            if self._tell:
                self._tell()

    def _record(self, number: int, _: object) -> None:
        self.record(number)
        for each in self._former:
            signal.signal(each, _again())
        if self._at_once:
            raise _AtOnceError(number)


class OutputError(OSError):
    """The output cannot be written: nobody reads it any more, or the disk is full."""


class Output:
    """A text stream whose errors are OutputErrors, so that they are known from others."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text, or raises OutputError."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Writes what has not been written yet, or raises OutputError."""
        self._try(self._stream.flush)

    def _try(self, function: Callable[..., Any], *arguments: str) -> None:
        try:
            function(*arguments)
        except OSError as error:
            abandon(self._stream)  # before the end of the process tries once more
            raise OutputError(error.errno, error.strerror) from error


class _Tolerant(Output):
    """Raises nothing; what cannot be written is lost."""

    def __init__(self, stream: TextIO, signals: StopSignals) -> None:
        super().__init__(stream)
        self._signals = signals
        self._is_lost = False

    def _try(self, function: Callable[..., Any], *arguments: str) -> None:
        if self._is_lost:
            return
        try:
            super()._try(function, *arguments)
        except OutputError as error:
            self._is_lost = True
            if error.errno == errno.EPIPE:
                self._signals.record(signal.SIGPIPE)
            else:
                say(f"the output cannot be written ({error}); the run goes on without it")


def abandon(stream: TextIO) -> None:
    """Sends nowhere what a stream could not write, which its end would try once more."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _reason(number: signal.Signals) -> str:
    return "the output is closed" if number == signal.SIGPIPE else f"stopped by {number.name}"


def _handle(handler: Callable[[int, Any], Any]) -> dict[int, Any]:
    """Sets the handler of all signals that are not ignored; returns the former ones."""
    if threading.current_thread() is not threading.main_thread():  # Python allows no other
        return {}
    heard = [each for each in NUMBERS if signal.getsignal(each) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


def ended_by() -> int | None:
    """Returns the exit status of the signal that was to end this command, None where none came.

    The exception that ends it may come out of C code as another one, or not at all: a handler runs
    wherever Python code does, and what asks there whether an attribute exists takes any for a no.
    """
    return _ended_by


def _stop(number: int, _: object) -> NoReturn:
    global _ended_by
    _ended_by = status_of(number)
    _handle(_again())
    say(_reason(signal.Signals(number)))
    raise StoppedError(number)


def _end(stderr: int, number: int, _: object) -> NoReturn:
    say(_reason(signal.Signals(number)), stderr)
    os._exit(status_of(number))


def _again() -> Callable[[int, Any], None]:
    """Returns the handler of a second signal."""
    first = time.monotonic()

    def handle(number: int, _: object) -> None:
        # A terminal that is closed sends SIGHUP twice, itself and by its shell.
        same = number == signal.SIGTERM and time.monotonic() - first < _SAME
        if number != signal.SIGHUP and not same:
            os._exit(status_of(number))

    return handle


def _lost(unraisable: Any) -> None:
    """Ends the process where a signal came within a finalizer, of which Python only tells."""
    if isinstance(unraisable.exc_value, _AtOnceError):
        return
    if isinstance(unraisable.exc_value, StoppedError):
        os._exit(int(unraisable.exc_value.code or 0))
    if _ended_by is not None:
        os._exit(_ended_by)
    sys.__unraisablehook__(unraisable)


def _open_streams() -> None:
    """Opens what of stdin, stdout and stderr is closed, or other files would get their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            setattr(sys, name, open(number, mode))
            setattr(sys, f"__{name}__", getattr(sys, name))
