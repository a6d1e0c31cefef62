"""How a command stops: by SIGINT, SIGTERM, SIGHUP, or an output that nobody reads any more.

After `listen` these signals end a command at once. `StopSignals` records them instead, for code
that must save something first. Either way the exit status is 128 plus the signal's number, and a
second signal ends the process at once. Signals that the process was started to ignore, as by
`nohup`, stay ignored.
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

from trainers.data import threads
from trainers.training import resources

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ended_by: int | None = None
_PARENT = "KERAS_TRELLIS_PARENT"  # the descriptor of a pipe of `ending_with_this`
_SAME = 1.0  # seconds; a second SIGTERM within them is the first again, as `timeout` sends it


class StoppedError(SystemExit):
    """A command was told to stop; if nobody catches the error, the command ends with its status.

    It is not an `Exception`: code that retries failures must not catch it.

    Attributes:
        code: the exit status.
    """

    def __init__(self, number: int) -> None:
        super().__init__(exit_status(number))


class _AtOnceError(StoppedError):
    """Leaves `StopSignals.at_once`; its signal has been recorded."""


@contextlib.contextmanager
def ending_with_this() -> Iterator[dict[str, Any]]:
    """Yields arguments of `subprocess.Popen` for a child that ends with this process.

    The child, a command of the trainers, gets SIGTERM once the context or this process has ended,
    however that ends: its end of a pipe says so.
    """
    theirs, own = os.pipe()
    try:
        yield {"pass_fds": [theirs], "env": {**os.environ, _PARENT: str(theirs)}}
    finally:
        os.close(theirs)
        os.close(own)


def end_with_parent() -> None:
    """Ends this process by SIGTERM when the one that started it has ended.

    Raises:
        MemoryError: there is no memory for a thread.
        RuntimeError: the system has no other thread.
    """
    theirs = os.environ.pop(_PARENT, None)
    if theirs is None:
        return

    def wait() -> None:
        os.read(int(theirs), 1)  # nothing is ever written
        os.kill(os.getpid(), signal.SIGTERM)

    threads.Started(wait)


def exit_status(number: int) -> int:
    """Returns the exit status that shells give a command stopped by a signal."""
    return 128 + number


def say(line: str, stderr: int = 2) -> None:
    """Writes a line to stderr if possible; a signal's handler may call it."""
    start = "\n" if os.isatty(stderr) else ""  # the terminal's line has ^C
    with contextlib.suppress(OSError):
        os.write(stderr, f"{start}{line}\n".encode())


def listen(*, importing: bool = False, stderr: int = 2) -> None:
    """Makes a signal end this process with a line instead of a traceback.

    Call this in the main thread of a process that runs one command.

    Args:
        importing: end the process on the spot, since no exception may leave a C module's import.
        stderr: the descriptor for the line then.
    """
    global _ended_by
    _ended_by = None
    _open_streams()
    _handle(functools.partial(_end, stderr) if importing else _stop)
    sys.unraisablehook = _lost
    sys.excepthook = _uncaught


def _uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Tells an exception that nothing caught; memory may run out within an import, too."""
    if not issubclass(kind, MemoryError):
        sys.__excepthook__(kind, error, trace)
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os.write(2, f"error: {resources.OUT_OF_MEMORY.format('')}\n".encode())
    os._exit(2)  # REFUSED in trainers/cli/command.py, which imports this module


class StopSignals:
    """Records signals instead of ending the process; a second one ends it.

    Args:
        shared: whether several workers agree on when to stop; `accept` then sets `received`.

    Attributes:
        heard: the name of the signal that came, or None; SIGPIPE as in `output`.
        received: the same, once the run has to stop for it.
    """

    def __init__(self, shared: bool = False) -> None:
        self.heard: str | None = None
        self.received: str | None = None
        self._shared = shared
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
        """Lets a signal raise StoppedError, during long work that can be repeated."""
        self._at_once = True
        try:
            # It may have come before this work began.
            if self.heard:
                raise self.error()
            yield
        finally:
            self._at_once = False

    @contextlib.contextmanager
    def output(self) -> Iterator[None]:
        """Keeps stdout from raising errors; a closed stdout is recorded as SIGPIPE.

        If stdout fails for another reason, such as a full disk, a line says so, and later output is
        dropped.
        """
        with contextlib.redirect_stdout(_Tolerant(sys.stdout, self)):
            yield

    def check(self) -> None:
        """Prints a line and raises StoppedError if a signal has come."""
        if self.heard:
            say(f"{self.reason}; the same command goes on")
            raise self.error()

    @property
    def reason(self) -> str:
        """The signal that came, in words."""
        return _reason(self._number)

    def error(self) -> StoppedError:
        """Returns the error that ends the command after a signal."""
        return StoppedError(self._number)

    @property
    def _number(self) -> signal.Signals:
        return signal.Signals[self.received or self.heard or ""]

    def record(self, number: int) -> None:
        """Records the first signal."""
        if self.heard is None:
            self.heard = signal.Signals(number).name
        if not self._shared:
            self.received = self.heard

    def accept(self, name: str | None) -> None:
        """Makes the run stop for a signal, if there is one."""
        self.received = name or self.received

    def hear(self, name: str) -> None:
        """Records a signal that another worker has received; any thread may call it."""
        new = self.heard is None
        self.record(signal.Signals[name])
        # By a signal to this process: it raises in the main thread, wherever this one runs.
        if new and self._at_once:
            os.kill(os.getpid(), signal.Signals[name])

    def _record(self, number: int, _: object) -> None:
        self.record(number)
        for other in self._former:
            signal.signal(other, _again())
        if self._at_once:
            raise _AtOnceError(number)


class OutputError(OSError):
    """The output cannot be written, because nobody reads it any more or the disk is full."""


class Output:
    """A text stream that raises OutputError, to tell its errors from others."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text, or raises OutputError."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Writes the buffer, or raises OutputError."""
        self._try(self._stream.flush)

    def _try(self, function: Callable[..., Any], *arguments: str) -> None:
        try:
            function(*arguments)
        except OSError as error:
            abandon(self._stream)  # before Python flushes it again at exit
            raise OutputError(error.errno, error.strerror) from error


class _Tolerant(Output):
    """An output that drops what it cannot write, and raises nothing."""

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
                say(
                    f"the output cannot be written ({error}); the run goes on without it"
                )


def abandon(stream: TextIO) -> None:
    """Redirects a stream to nowhere, so that closing it does not try to write again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _reason(number: signal.Signals) -> str:
    if number == signal.SIGPIPE:
        return "the output is closed"
    return f"stopped by {number.name}"


def _handle(handler: Callable[[int, Any], Any]) -> dict[int, Any]:
    """Sets the handler of all signals that are not ignored; returns the former handlers."""
    # Python refuses other threads.
    if threading.current_thread() is not threading.main_thread():
        return {}
    heard = [
        number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN
    ]
    return {number: signal.signal(number, handler) for number in heard}


def ended_by() -> int | None:
    """Returns the exit status of the signal that should end this command, or None.

    Code between the handler and `main` may replace or swallow the handler's exception. For example,
    C code that asks whether an attribute exists takes any exception for a no.
    """
    return _ended_by


def _stop(number: int, _: object) -> NoReturn:
    global _ended_by
    _ended_by = exit_status(number)
    _handle(_again())
    say(_reason(signal.Signals(number)))
    raise StoppedError(number)


def _end(stderr: int, number: int, _: object) -> NoReturn:
    say(_reason(signal.Signals(number)), stderr)
    os._exit(exit_status(number))


def _again() -> Callable[[int, Any], None]:
    """Returns the handler of a second signal."""
    first = time.monotonic()

    def handle(number: int, _: object) -> None:
        # A closing terminal causes two SIGHUP, its own and its shell's.
        same = number == signal.SIGTERM and time.monotonic() - first < _SAME
        if number != signal.SIGHUP and not same:
            os._exit(exit_status(number))

    return handle


def _lost(unraisable: Any) -> None:
    """Ends the process after a signal in a finalizer, whose exceptions Python only prints."""
    if isinstance(unraisable.exc_value, _AtOnceError):
        return
    if isinstance(unraisable.exc_value, StoppedError):
        os._exit(int(unraisable.exc_value.code or 0))
    if _ended_by is not None:
        os._exit(_ended_by)
    sys.__unraisablehook__(unraisable)


def _open_streams() -> None:
    """Opens closed standard streams, so that no other file gets their numbers."""
    for number, name, mode in (
        (0, "stdin", "r"),
        (1, "stdout", "w"),
        (2, "stderr", "w"),
    ):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            setattr(sys, name, open(number, mode))
            setattr(sys, f"__{name}__", getattr(sys, name))
