"""What the workers of a run tell one another beside TensorFlow's sums.

Each worker has a connection to the chief. Over it they find one another, compare what has to be
the same, follow the chief's decisions, pass on signals, and notice within `SILENCE` seconds that
one of them is gone. TensorFlow alone does not do this by its public functions: it waits for ever
for a worker that has died before the first step, and does not say in time which one died later.
"""

import contextlib
import io
import json
import os
import queue
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from trainers.data.names import differences
from trainers.training import stopping, watcher
from trainers.training.cluster import Cluster

LOST = watcher.ENDED  # the exit status of a worker that cannot go on without another
SILENCE = 30.0  # seconds without a sign after which a worker counts as gone
_BEAT = 0.5  # seconds from sign to sign
_GRACE = 5.0  # seconds to end for a reason of one's own, after another has ended
_LAST = 1.0  # seconds for the others to read why
_RETRY = 0.2
_MAGIC = "keras_trellis workers 1"
_HEADER = struct.Struct("!cQ")  # the kind of a message, and the bytes that follow
_PIECE = 1 << 20
_GREETING, _SIGN, _VALUE, _ARRAYS, _END = b"g", b"s", b"v", b"a", b"e"
GO_ON = "start all workers again; the run goes on from its newest checkpoint"
# On all addresses of the machine, those of IPv6 too where there are any.
_DUAL = {"family": socket.AF_INET6, "dualstack_ipv6": True}
_ADDRESSES: dict[str, Any] = _DUAL if socket.has_dualstack_ipv6() else {}
Step = tuple[int, dict[str, np.ndarray]]


class LostError(Exception):
    """Another worker is missing or has ended, so this one cannot go on; the message says which."""


class DifferentError(ValueError):
    """A worker has something else than the chief; the message says what."""


class Alone:
    """A process that trains by itself, as its own chief."""

    index, count, is_chief = 0, 1, True
    cluster: Cluster | None = None

    def agree(self, value: Any) -> Any:
        """Returns the chief's value, one of JSON."""
        return value

    def share(self, checkpoint: Step | None) -> Step | None:
        """Returns the chief's checkpoint: its step and arrays, or None."""
        return checkpoint

    def compare(self, facts: Mapping[str, Any]) -> None:
        """Raises DifferentError on all workers if the facts are not the same on all."""

    def watch(self, signals: stopping.StopSignals) -> None:
        """Passes signals that come from now on to the chief."""


ALONE = Alone()


class _Link:
    """A connection to another worker; a thread receives."""

    def __init__(self, name: str, connection: socket.socket) -> None:
        self.name = name
        self.received: queue.Queue = queue.Queue()
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._sending = threading.Lock()
        connection.settimeout(SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        data = memoryview(_HEADER.pack(kind, len(payload)) + payload)
        with self._sending:
            for start in range(0, len(data), _PIECE):  # a call has the time limit
                self._connection.sendall(data[start : start + _PIECE])

    def receive(self) -> tuple[bytes, bytes]:
        kind, size = _HEADER.unpack(self._read(_HEADER.size))
        return kind, self._read(size)

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self, size: int) -> bytes:
        content = self._stream.read(size)
        if len(content) < size:
            raise ConnectionError("its connection is closed")
        return content


class Team(Alone):
    """The workers of a run, as this one sees them; use it as a context.

    Leaving the context normally, or after all have agreed to stop, waits for the chief. Leaving it
    by another error tells the others why.

    Args:
        cluster: the workers.
        port: where the chief listens for the others, beside TensorFlow's port.
        wait: seconds until all must have come.

    Raises:
        LostError: one has not come in time.
        ValueError: a port is taken.
    """

    def __init__(self, cluster: Cluster, port: int, wait: float) -> None:
        self.cluster: Cluster = cluster
        self.index, self.count = cluster.index, len(cluster.addresses)
        self.is_chief = cluster.is_chief
        self._over = False
        self._signals = stopping.StopSignals()
        check_free(cluster)
        come = _gathered if self.is_chief else _joined
        self._links: list[_Link] = come(cluster, port, wait)
        self._watcher = _watched(self._links)
        self._receivers = [
            threading.Thread(target=self._receive, args=(link,), daemon=True)
            for link in self._links
        ]
        signs = threading.Thread(target=self._give_signs, daemon=True)
        for thread in (*self._receivers, signs):
            thread.start()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        agreed = isinstance(error, stopping.StoppedError) and self._signals.received
        if error is None or agreed:
            self._finish()
        else:
            self._end(" ".join(str(error).split()) or repr(error))
        self._watcher.close()
        for link in self._links:
            link.close()

    def _wait_for_ends(self) -> None:
        """Reads what still comes: closing a connection earlier would lose what was sent last."""
        deadline = time.monotonic() + _LAST
        for thread in self._receivers:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def agree(self, value: Any) -> Any:
        """Returns the chief's value; the chief does not wait for the others."""
        if self.is_chief:
            self._send(_VALUE, json.dumps(value).encode())
            return value
        return json.loads(self._next(self._links[0], _VALUE))

    def share(self, checkpoint: Step | None) -> Step | None:
        """Returns the chief's checkpoint, so that the others need not reach its folder."""
        if not self.is_chief:
            step = self.agree(None)
            if step is None:
                return None
            with np.load(io.BytesIO(self._next(self._links[0], _ARRAYS))) as arrays:
                return step, {name: arrays[name] for name in arrays.files}
        self.agree(checkpoint and checkpoint[0])
        if checkpoint:
            content = io.BytesIO()
            named: Mapping[str, Any] = checkpoint[1]
            np.savez(content, **named)
            self._send(_ARRAYS, content.getvalue())
        return checkpoint

    def compare(self, facts: Mapping[str, Any]) -> None:
        """Raises DifferentError on all workers if the facts are not the same on all."""
        if different := self.agree("; ".join(self._differing(facts))):
            raise DifferentError(
                f"{different}; start all with the same, or see docs/howto/workers.md"
            )

    def watch(self, signals: stopping.StopSignals) -> None:
        """Passes signals that come from now on to the chief."""
        self._signals = signals

    def wait_for_loss(self) -> None:
        """Waits until a thread has found out which worker is gone and ended this process."""
        time.sleep(SILENCE + _GRACE)

    def _differing(self, facts: Mapping[str, Any]) -> Iterator[str]:
        """Yields what differs, on the chief; sends the facts to it on the others."""
        # Both sides go through JSON, which makes lists of tuples.
        sent = json.dumps(facts).encode()
        if not self.is_chief:
            self._send(_VALUE, sent)
            return
        for link in self._links:
            theirs = json.loads(self._next(link, _VALUE))
            different = differences(theirs, json.loads(sent))
            for fact, (there, here) in different.items():
                yield f"{link.name} has {fact} {there}, and the chief has {here}"

    def _send(self, kind: bytes, payload: bytes = b"") -> None:
        for link in self._links:
            try:
                link.send(kind, payload)
            except OSError as error:
                self._lost(link, str(error))

    def _next(self, link: _Link, expected: bytes) -> bytes:
        """Returns the next payload that a worker has sent to the main thread."""
        kind, payload = link.received.get()
        if kind != expected:
            raise LostError(_ended(link, payload))
        return payload

    def _finish(self) -> None:
        """Waits until the chief has written everything; then nobody is missed."""
        if self.is_chief:
            self._end("")
            return
        kind, payload = self._links[0].received.get()
        if payload or kind != _END:
            raise LostError(_ended(self._links[0], payload))

    def _end(self, reason: str) -> None:
        """Tells the others why this worker ends."""
        # First, so that connections that close from now on are no loss.
        self._over = True
        for link in self._links:
            with contextlib.suppress(OSError):
                link.send(_END, reason.encode())
        if self.is_chief:
            self._wait_for_ends()

    def _give_signs(self) -> None:
        while not self._over:
            self._watcher.sign()
            self._send(_SIGN, (self._signals.heard or "").encode())
            time.sleep(_BEAT)

    def _receive(self, link: _Link) -> None:
        """Receives until the other ends; a thread of its own."""
        while True:
            try:
                kind, payload = link.receive()
            except TimeoutError:
                return self._lost(link, f"no sign of it for {SILENCE:.0f} s")
            except OSError as error:
                return self._lost(link, str(error))
            if kind != _SIGN:
                link.received.put((kind, payload))
            # The chief alone decides: it takes the signal along to all at the next `agree`.
            elif payload and self.is_chief:
                self._signals.hear(payload.decode())
            if kind == _END:
                self._ends(link, payload)

    def _ends(self, link: _Link, reason: bytes) -> None:
        """Lets the main thread end by itself, unless it waits for TensorFlow."""
        if not reason or self._over:
            self._over = True
            self._watcher.close()
            return
        if self.is_chief:
            others = [other for other in self._links if other is not link]
            for other in others:
                with contextlib.suppress(OSError):
                    other.send(_END, _ended(link, reason).encode())
        time.sleep(_GRACE)
        if not self._over:
            _leave(_ended(link, reason))

    def _lost(self, link: _Link, why: str) -> None:
        if self._over:
            return
        message = f"{link.name} is gone: {why}; {GO_ON}"
        self._end(message)
        _leave(message)


def _watched(links: Sequence[_Link]) -> watcher.Watcher:
    """Returns a process that ends this one where its own threads cannot run."""
    closed = {
        link.fileno(): f"{link.name} is gone: its connection is closed; {GO_ON}"
        for link in links
    }
    names = " or ".join(link.name for link in links)
    silence = SILENCE + _GRACE
    silent = (
        f"{names} is gone: nothing of this worker has run for {silence:.0f} s; {GO_ON}"
    )
    return watcher.Watcher(silence, 2 * _GRACE, closed, silent)


def _leave(message: str) -> NoReturn:
    """Ends the process from any thread: the main one may wait for TensorFlow for ever."""
    stopping.say(f"error: {message}")
    os._exit(LOST)


def _ended(link: _Link, reason: bytes) -> str:
    message = reason.decode(errors="replace")
    return message if GO_ON in message else f"{link.name} has ended: {message}"


def check_free(cluster: Cluster) -> None:
    """Raises ValueError if TensorFlow's port of this worker is taken."""
    with _listening(cluster, int(cluster.addresses[cluster.index].rpartition(":")[2])):
        pass


def _listening(cluster: Cluster, port: int) -> socket.socket:
    """Listens on a port; waits a little for a process that is just ending."""
    deadline = time.monotonic() + _GRACE
    while True:
        try:
            return socket.create_server(("", port), **_ADDRESSES)
        except OSError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"{cluster.name(cluster.index)} cannot listen on port {port} "
                    f"({error.strerror}); end the process that does, or choose other ports "
                    "(TF_CONFIG, --workers_port)"
                ) from error
        time.sleep(_RETRY)


def _gathered(cluster: Cluster, port: int, wait: float) -> list[_Link]:
    """Waits, as the chief, until the others have come; returns their links in order."""
    links: dict[int, _Link] = {}
    deadline = time.monotonic() + wait
    with _listening(cluster, port) as server:
        while missing := [
            i for i in range(1, len(cluster.addresses)) if i not in links
        ]:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                raise _late(cluster, missing, wait, links.values()) from None
            if greeted := _greeted(cluster, connection, links):
                links[greeted[0]] = greeted[1]
    return [links[index] for index in sorted(links)]


def _late(
    cluster: Cluster, missing: Sequence[int], wait: float, come: Any
) -> LostError:
    names = " and ".join(map(cluster.name, missing))
    message = f"{names} not here after {wait:g} s (--workers_wait); {GO_ON}"
    for link in come:
        with contextlib.suppress(OSError):
            link.send(_END, message.encode())
        link.close()
    return LostError(message)


def _greeted(
    cluster: Cluster, connection: socket.socket, links: Mapping[int, _Link]
) -> tuple[int, _Link] | None:
    """Returns the index and link of a worker that has come; None for anything else."""
    link = _Link("a worker", connection)
    connection.settimeout(_GRACE)
    with contextlib.suppress(OSError, ValueError, struct.error):
        kind, size = _HEADER.unpack(link._read(_HEADER.size))
        if kind == _GREETING and size < _PIECE:
            magic, index, addresses = json.loads(link._read(size))
            if magic == _MAGIC:
                message = _unfit(cluster, index, addresses, links)
                if not message:
                    link.name = cluster.name(index)
                    connection.settimeout(SILENCE)
                    return index, link
                link.send(_END, message.encode())
    link.close()
    return None


def _unfit(
    cluster: Cluster, index: int, addresses: Sequence[str], links: Mapping[int, _Link]
) -> str:
    if tuple(addresses) != cluster.addresses:
        return (
            f"its cluster is {', '.join(cluster.addresses)}, and that of worker {index} is "
            f"{', '.join(addresses)}"
        )
    if index in links:
        return f"{cluster.name(index)} is there already: two processes have its index"
    return ""


def _joined(cluster: Cluster, port: int, wait: float) -> list[_Link]:
    """Connects to the chief, which may come later; returns the one link."""
    host = cluster.addresses[0].rpartition(":")[0].strip("[]")
    deadline = time.monotonic() + wait
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=_GRACE)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise LostError(
                    f"{cluster.name(0)} does not answer on port {port} after {wait:g} s "
                    f"(--workers_wait): {error}; {GO_ON}"
                ) from error
        time.sleep(_RETRY)
    link = _Link(cluster.name(0), connection)
    greeting = json.dumps([_MAGIC, cluster.index, cluster.addresses])
    link.send(_GREETING, greeting.encode())
    return [link]


def handle_signals_again() -> None:
    """Sets this process's handlers anew: TensorFlow takes SIGTERM for itself when workers join."""
    for number in stopping.NUMBERS:
        handler = signal.getsignal(number)
        if callable(handler) or handler is signal.SIG_IGN:
            signal.signal(number, handler)
