"""Commands as children of a process that has imported everything.

A child is what `python -m MODULE FLAGS` is, but for the seconds that importing TensorFlow takes: it
is forked from a process that has done so, runs the module's `main`, and ends with its status.

A process in which TensorFlow computes already has more of what a child needs, but a child of it has
none of TensorFlow's threads, on which graphs run. Commands that need these are forked by another
process, in which TensorFlow has not begun.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import resource
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from benchmarks.faults import shim
from trainers.training import stopping

LIMIT_SECONDS = 60  # a command takes one second; after this it counts as hung
HUNG = 128 + signal.SIGALRM
KILLED = 128 + signal.SIGKILL


@dataclasses.dataclass(frozen=True)
class Program:
    """A command, and the folder in which it begins.

    Attributes:
        name: what cases call it.
        module: run as `python -m` runs it.
        arguments: its flags; `{folder}` stands for the folder.
        prepare: fills the empty folder.
        share: its share of the cases.
        graphs: whether it runs TensorFlow's graphs.
    """

    name: str
    module: str
    arguments: Sequence[str]
    prepare: Callable[["Runner", Path], None]
    share: int
    graphs: bool = False


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """What goes wrong while a command runs.

    Attributes:
        fault: a file operation that goes wrong.
        call: the number of the Python function call at which a signal comes, from 1; 0: none.
        signal: its number.
        log: a file that lists the operations, and then the number of calls; None: no list.
        delay: seconds before the command begins.
    """

    fault: shim.Fault = shim.Fault()
    call: int = 0
    signal: int = 0
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
    """

    status: int
    output: str
    errors: str
    seconds: float


class Runner:
    """Runs commands; make it before TensorFlow computes anything.

    Those that need graphs are forked by a process of its own, which it makes for that.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        context.Process(target=_fork_when_asked, args=(theirs,), daemon=True).start()

    def run(self, program: Program, folder: Path, disturbance: Disturbance | None = None) -> Ended:
        """Runs a command in its folder; only operations below it can go wrong."""
        (ended,) = self.together(program, folder, [disturbance or Disturbance()])
        return ended

    def together(
        self, program: Program, folder: Path, disturbances: Sequence[Disturbance]
    ) -> list[Ended]:
        """Runs a command as often as there are disturbances, at once, to their ends."""
        if not program.graphs:
            return _run_here(program, folder, disturbances)
        self._connection.send((program, folder, disturbances))
        return self._connection.recv()


def _fork_when_asked(connection):
    while True:
        connection.send(_run_here(*connection.recv()))


def _run_here(program, folder, disturbances):
    children = [_begun(program, folder, each) for each in disturbances]
    return [_ended(*child) for child in children]


def _begun(program, folder, disturbance):
    """Begins a child; returns its number, and what will be its stdout and its stderr."""
    streams = [os.memfd_create(name) for name in ("stdout", "stderr")]
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            _become(program, folder, disturbance, streams)
        finally:  # the child must never go on as a copy of its parent
            os._exit(1)
    return child, streams


def _ended(child, streams):
    """Waits for the end of a child."""
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    output, errors = (_drained(stream) for stream in streams)
    seconds = usage.ru_utime + usage.ru_stime
    return Ended(128 - code if code < 0 else code, output, errors, seconds)


def _drained(stream):
    with os.fdopen(stream, "rb") as file:
        file.seek(0)
        return file.read().decode(errors="replace")


def _become(program, folder, disturbance, streams):
    """Turns this process into the command, and ends it."""
    time.sleep(disturbance.delay)
    signal.alarm(LIMIT_SECONDS)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["HOME"] = str(folder)
    sys.argv = [program.module, *(each.format(folder=folder) for each in program.arguments)]
    flags.FLAGS.remove_flag_values([name for name in flags.FLAGS if _is_ours(name)])
    flags.FLAGS.unparse_flags()
    if disturbance.log:
        log = os.open(disturbance.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        shim.log_to(log)
    shim.arm(folder, disturbance.fault)
    # This process may ignore the signal, as one started in the background does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopping.listen(importing=True)  # as `trainers` does where Python begins with a command
    status = _status_of(program.module, disturbance)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for thread in threading.enumerate():  # as Python does
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if disturbance.log:
        os.write(log, f"{shim.calls()}\n".encode())
    os._exit(status)


def _is_ours(name):
    return "benchmarks" in flags.FLAGS.find_module_defining_flag(name, "")


def _status_of(module, disturbance):
    """Runs a module, and returns the exit status that Python would have."""
    if disturbance.call or disturbance.log:
        shim.count_calls(disturbance.call, disturbance.signal)
    try:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        finally:
            shim.stop_counting()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def limit_core_files() -> None:
    """Keeps killed children from leaving core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
