"""Commands as children of a process that has imported everything.

A child is what `python -m MODULE FLAGS` is, but for the seconds that importing TensorFlow takes: it
is forked from a process that has done so, runs the module's `main`, and ends with its status.

A process in which TensorFlow computes already has more of what a child needs, but a child of it has
none of TensorFlow's threads, on which graphs run. Commands that need these are forked by another
process, in which TensorFlow has not begun. A process has one backend of Keras. So commands that
compute on JAX are forked by a third one, `benchmarks.faults.on_jax`, in which JAX has not begun.
"""

import contextlib
import ctypes
import dataclasses
import mmap
import multiprocessing
import os
import resource
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import IO

import tqdm
from absl import flags

from benchmarks.faults import shim
from trainers.training import stopping

LIMIT_SECONDS = 60.0  # a command takes one second; after this it counts as hung
_MILLISECONDS = 200  # between two looks whether a child has ended
_LONGEST = 15.0  # seconds for what a command has begun to end
_SHORT = 0.01  # seconds of a pause
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
# Whether the fault has come, and how many calls were counted.
_FACTS = struct.Struct("qq")


@dataclasses.dataclass(frozen=True)
class Command:
    """The command of a child process.

    Attributes:
        module: run as `python -m` runs it.
        arguments: its flags.
        folder: only operations below it can go wrong.
        graphs: whether it runs any.
        on_jax: whether Keras computes with JAX.
        environment: variables of its own.
    """

    module: str
    arguments: Sequence[str]
    folder: Path
    graphs: bool = False
    on_jax: bool = False
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """What goes wrong while a command runs.

    Attributes:
        fault: a file operation that goes wrong.
        call: the number of the Python function call at which a signal comes, from 1; 0: none.
        signal: its number. SIGSTOP: the process goes on when those beside it have ended. SIGUSR1:
            all connections of the process end. SIGUSR2: memory runs out.
        memory: how many bytes are left then; -1: a MemoryError comes there, and none after it.
        log: a file that lists the operations; None: no list.
        delay: seconds before the command begins.
    """

    fault: shim.Fault = shim.Fault()
    call: int = 0
    signal: int = 0
    memory: int = 0
    log: Path | None = None
    delay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        status: its exit status; after a signal 128 plus its number, as in a shell.
        output: what it wrote to stdout.
        errors: what it wrote to stderr.
        seconds: of its processor time.
        hung: whether it took too long and was killed.
        begun: whether the fault has come; always true for a killed child.
        calls: how many calls of Python functions there were.
        outlived: whether a process that it began went on for seconds after it.
    """

    status: int
    output: str
    errors: str
    seconds: float
    hung: bool
    begun: bool
    calls: int
    outlived: bool = False


class _Child:
    """A running command."""

    def __init__(self, command: Command, disturbance: Disturbance) -> None:
        self.pauses = disturbance.signal == signal.SIGSTOP
        self._facts = mmap.mmap(-1, _FACTS.size)
        self._facts[:] = _FACTS.pack(1, 0)
        self._streams = [os.memfd_create(name) for name in ("stdout", "stderr")]
        sys.stdout.flush()
        sys.stderr.flush()
        # What a killed child has begun becomes this process's, which then sees its end.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _become(command, disturbance, self._streams, self._facts)
            finally:  # the child must never go on as a copy of its parent
                os._exit(1)

    def wait(self, limit: float = LIMIT_SECONDS) -> Ended:
        """Waits for the end; kills the child after the limit."""
        descriptor = os.pidfd_open(self._pid)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + limit
        ended = []
        while not ended and time.monotonic() < deadline:
            if self.pauses:
                os.kill(self._pid, signal.SIGCONT)
            ended = poll.poll(_MILLISECONDS)
        hung = not ended
        if hung:
            os.kill(self._pid, signal.SIGKILL)
        _, status, usage = os.wait4(self._pid, 0)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(status)
        begun, calls = _FACTS.unpack(self._facts)
        self._facts.close()
        output, errors = (_drained(stream) for stream in self._streams)
        return Ended(
            128 - code if code < 0 else code,
            output,
            errors,
            usage.ru_utime + usage.ru_stime,
            hung,
            bool(begun),
            calls,
            _outlived(self._pid),
        )


def _outlived(group):
    """Returns whether processes of a group go on; ends them."""
    deadline = time.monotonic() + _LONGEST
    while time.monotonic() < deadline:
        try:
            os.waitpid(-group, os.WNOHANG)
        except ChildProcessError:
            return False
        time.sleep(_SHORT)
    os.killpg(group, signal.SIGKILL)
    return True


class Runner:
    """Runs commands; make it before TensorFlow computes anything.

    Those that need graphs, and those on JAX, are forked by processes of its own, which it makes for
    that.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        context.Process(target=fork_when_asked, args=(theirs,), daemon=True).start()
        self._on_jax: connection.Connection | None = None

    def run(self, command: Command, disturbance: Disturbance | None = None) -> Ended:
        """Runs a command to its end."""
        (ended,) = self.together([(command, disturbance or Disturbance())])
        return ended

    def together(self, commands: Sequence[tuple[Command, Disturbance]]) -> list[Ended]:
        """Runs commands at once, to their ends."""
        if any(command.on_jax for command, _ in commands):
            self._on_jax = asked = self._on_jax or _begin_on_jax()
        elif any(command.graphs for command, _ in commands):
            asked = self._connection
        else:
            return _run_here(commands)
        asked.send(commands)
        return asked.recv()


def fork_when_asked(asking: connection.Connection) -> None:
    """Runs the commands that come from another process, until that ends."""
    with contextlib.suppress(EOFError):
        while True:
            asking.send(_run_here(asking.recv()))


def _begin_on_jax():
    """Begins the process that forks commands on JAX; returns what asks it."""
    ours, theirs = multiprocessing.Pipe()
    library = shim.library()
    environment = {
        **os.environ,
        **{"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", shim.VARIABLE: str(library)},
        # All its children compile the same programs.
        "JAX_COMPILATION_CACHE_DIR": str(library.parent / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-m", "benchmarks.faults.on_jax", str(number)]
        subprocess.Popen(command, env=environment, pass_fds=[number])
    return ours


def _run_here(commands):
    children = [_Child(*command) for command in commands]
    ends = {}
    for child in sorted(children, key=lambda child: child.pauses):
        ends[child] = child.wait()
    return [ends[child] for child in children]


def _drop_connections(*_):
    """Ends all connections of this process, as a network does that is gone."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it is no socket, or not connected
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.shutdown(socket.SHUT_RDWR)


def _run_short(left):
    """Lets this process have so many bytes more, or raises a MemoryError for -1."""
    if left < 0:
        raise MemoryError
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + left, most)
    )


def _drained(stream):
    with os.fdopen(stream, "rb") as file:
        file.seek(0)
        return file.read().decode(errors="replace")


def _become(command, disturbance, streams, facts):
    """Turns this process into the command, and ends it."""
    os.setpgid(0, 0)
    time.sleep(disturbance.delay)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(command.environment, HOME=str(command.folder))
    if disturbance.log:
        shim.log_to(os.open(disturbance.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    shim.arm(command.folder, disturbance.fault)
    status = _module_status(command.module, command.arguments, disturbance)
    facts[:] = _FACTS.pack(shim.begun() or disturbance.call > 0, shim.calls())
    _end(status)


def _module_status(module, arguments, disturbance):
    """Runs a module as a new process would, and returns its exit status."""
    sys.argv = [module, *arguments]
    _forget_flags()
    # tqdm's lock is in memory that forked processes share. A killed one keeps it for ever.
    tqdm.tqdm.set_lock(threading.RLock())
    # This process may ignore the signal, as one started in the background does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, _drop_connections)
    signal.signal(signal.SIGUSR2, lambda *_: _run_short(disturbance.memory))
    # As `trainers` does where Python begins with a command.
    stopping.listen(importing=True)
    status = _exit_status(lambda: _main(module, disturbance))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def _end(status):
    for (
        thread
    ) in threading.enumerate():  # as Python does, which ends those of executors first
        ends = thread.daemon or thread.name.startswith("requests")
        if thread is not threading.current_thread() and not ends:
            thread.join()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


class Fork:
    """Stands for `subprocess.Popen` of `python -m MODULE FLAGS`: a fork needs no imports.

    Nothing goes wrong in it. Its signals come from its parent, or from the end of that.

    Args:
        args: the command.
        stdout: the file of its output.
        stderr: has to be `subprocess.STDOUT`.
        pass_fds: the descriptors that it keeps.
        env: its environment.
    """

    def __init__(
        self,
        args: Sequence[str],
        stdout: IO[str],
        stderr: int,
        pass_fds: Sequence[int],
        env: Mapping[str, str],
    ) -> None:
        assert stderr == subprocess.STDOUT
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _become_child(args, stdout.fileno(), pass_fds, env)
            finally:
                os._exit(1)

    def wait(self) -> int:
        """Waits for the end; returns the exit status."""
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def terminate(self) -> None:
        """Sends SIGTERM."""
        os.kill(self._pid, signal.SIGTERM)


def _become_child(args, output, retained, environment):
    shim.stop_counting()
    shim.log_to(-1)
    shim.arm(Path(environment["HOME"]), shim.Fault())
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    for number in (1, 2):
        os.dup2(output, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in retained:
            with contextlib.suppress(OSError):  # that of the listing is closed
                os.close(int(name))
    os.environ.clear()
    os.environ.update(environment)
    _, _, module, *arguments = args
    _end(_module_status(module, arguments, Disturbance()))


_known_flags: set[str] = set()


def _forget_flags():
    """Removes the flags of this benchmark, or of the command that has forked this process."""
    known = _known_flags or {name for name in flags.FLAGS if not _is_ours(name)}
    flags.FLAGS.remove_flag_values([name for name in flags.FLAGS if name not in known])
    flags.FLAGS.unparse_flags()
    _known_flags.update(known)


def _is_ours(name):
    return "benchmarks" in flags.FLAGS.find_module_defining_flag(name, "")


def _main(module, disturbance):
    if disturbance.call or disturbance.log:
        shim.count_calls(disturbance.call, disturbance.signal)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        shim.stop_counting()


def _exit_status(main):
    """Returns the exit status that Python would have after `main`."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 128 + signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def limit_core_files() -> None:
    """Keeps killed children from leaving core files."""
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    )
