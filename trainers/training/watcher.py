"""A process that ends this one if another worker is gone and no thread here can say so.

While TensorFlow connects the workers, it waits for them and lets no thread of Python run. If a
worker dies in that time, the threads of `workers.Team` would wait with it for ever.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping

ENDED = int(signal.SIGTRAP)  # the exit status of a process that was ended: 5


class Watcher:
    """Watches this process, by another one that ends with it.

    Args:
        silence: seconds without a call of `sign` after which this process is ended.
        grace: seconds that it has to end by itself after a connection was closed.
        connections: what to print, by the descriptor of the connection that was closed.
        otherwise: what to print after `silence`.
    """

    def __init__(
        self,
        silence: float,
        grace: float,
        connections: Mapping[int, str],
        otherwise: str,
    ) -> None:
        libc = ctypes.CDLL(None)
        # A handler of Python's would wait as all threads do. This one calls `_exit(5)`: the
        # function takes the signal's number for the status.
        libc.signal(ENDED, ctypes.cast(libc._exit, ctypes.c_void_p))
        arguments = [text for pair in connections.items() for text in map(str, pair)]
        numbers = map(str, (os.getpid(), silence, grace))
        # Isolated and without `site`: it imports nothing of ours, and starts at once.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *numbers, otherwise, *arguments],
            stdin=subprocess.PIPE,
            pass_fds=tuple(connections),
        )

    def sign(self) -> None:
        """Shows that threads of this process run."""
        stream = self._process.stdin
        assert stream is not None
        with contextlib.suppress(OSError, ValueError):  # it has been closed
            os.write(stream.fileno(), b".")

    def close(self) -> None:
        """Ends the watch."""
        stream = self._process.stdin
        assert stream is not None
        stream.close()
        self._process.wait()


def watch(
    parent: int,
    silence: float,
    grace: float,
    otherwise: str,
    connections: Mapping[int, str],
) -> None:
    """Watches a process, whose signs come from stdin, until it ends or has to be ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while ready := _ready([0, *connections], silence):
        if closed := [descriptor for descriptor in ready if descriptor]:
            deadline, left = time.monotonic() + grace, grace
            while left > 0:  # below 0 a poll never ends
                _ready([0], left)
                left = deadline - time.monotonic()
            otherwise = connections[closed[0]]
            break
    os.write(2, f"error: {otherwise}\n".encode())
    os.kill(parent, ENDED)


def _ready(descriptors: Iterable[int], seconds: float) -> list[int]:
    """Waits for a sign, or for the other end of a connection to close."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(
            descriptor, select.POLLIN if descriptor == 0 else select.POLLRDHUP
        )
    ready = [descriptor for descriptor, _ in poller.poll(1000 * seconds)]
    # A pipe that is ready and empty has lost its other end.
    if 0 in ready and not os.read(0, 4096):
        sys.exit()  # the process has ended, or closed the watch
    return ready


def _main(argv: list[str]) -> None:
    parent, silence, grace, otherwise, *arguments = argv[1:]
    descriptors = map(int, arguments[::2])
    connections = dict(zip(descriptors, arguments[1::2], strict=True))
    watch(int(parent), float(silence), float(grace), otherwise, connections)


if __name__ == "__main__":
    _main(sys.argv)
