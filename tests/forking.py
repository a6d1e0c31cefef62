"""Python programs as children of a process that has imported TensorFlow and our packages.

A child is what `python -m MODULE` is, but for the seconds that these imports take: it is forked
before TensorFlow computes anything. All children of one worker have one seed of Python's hashes.
Their plots are files of a few bytes.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT, pictures

# All that commands share but what defines flags, which each command does for itself.
IMPORTED = (
    "matplotlib.figure",
    "keras_trellis.export",
    "trainers.drawing.experiment",
    "trainers.language.experiment",
    "trainers.sequences.experiment",
)


class Forks:
    """Starts programs; the process that forks them begins with the first one."""

    def __init__(self):
        self._server = None

    def start(self, *arguments, env=None, cwd=None):
        """Starts `python ARGUMENTS` for `-c`, `-m` or a file; returns a `Fork`."""
        streams = [tempfile.NamedTemporaryFile("w+") for _ in range(2)]
        request = {
            "arguments": [*map(str, arguments)],
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "streams": [stream.name for stream in streams],
        }
        return Fork(self, self.ask(request), streams)

    def run(self, *arguments, timeout=300, **options):
        """Runs a program to its end; returns what `subprocess.run` does, with texts."""
        process = self.start(*arguments, **options)
        output, errors = process.communicate(timeout)
        return subprocess.CompletedProcess(
            arguments, process.returncode, output, errors
        )

    def ask(self, request):
        """Returns the server's answer to a request."""
        if self._server is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            command = [sys.executable, "-m", "tests.forking"]
            self._server = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        self._server.stdin.write(f"{json.dumps(request)}\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def close(self):
        """Ends the process that forks."""
        if self._server is not None:
            self._server.communicate(timeout=60)


class Fork:
    """A program that was started, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, forks, pid, streams):
        self._forks, self.pid, self._streams = forks, pid, streams
        self.returncode = None

    def communicate(self, timeout=300):
        """Waits for the end; returns what the program wrote to stdout and to stderr."""
        ended = os.pidfd_open(self.pid)
        in_time, _, _ = select.select([ended], [], [], timeout)
        os.close(ended)
        if not in_time:
            os.kill(self.pid, signal.SIGKILL)
        self.returncode = self._forks.ask({"pid": self.pid})
        assert in_time, f"the program took longer than {timeout} seconds"
        texts = [Path(stream.name).read_text() for stream in self._streams]
        for stream in self._streams:
            stream.close()
        return texts


def main():
    """Forks what is asked for, until there is nobody to ask."""
    for name in IMPORTED:
        importlib.import_module(name)
    pictures.make_plain()
    gc.freeze()  # else each child's end copies and frees all of it, in two seconds
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            _, status = os.waitpid(request["pid"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            return become(**request)
        print(pid, flush=True)
    return None


def become(arguments, env, cwd, streams):
    """Turns this process into a program."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in enumerate(streams, start=1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kind, *rest = arguments
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    main()
