"""What all commands have in common: how they end."""

import ast
import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from trainers.cli import command
from trainers.training import stopping
from trainers.training.workdir import NotKeptError, WorkdirError

ROOT = Path(__file__).parents[3]
COMMANDS = sorted(
    path
    for path in (ROOT / "trainers").glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)


def test_the_docs_list_every_status():
    text = (
        (ROOT / "docs" / "reference" / "run.md")
        .read_text()
        .split("## Exit statuses")[1]
        .split("\n## ")[0]
    )
    told = [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    signals = [128 + number for number in (*stopping.NUMBERS, 13)]
    assert told == sorted([*command.Status, *signals])


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_every_command_is_started_alike(path):
    """Not by `app.run`, whose process ends with a traceback where it is told to."""
    (block,) = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == "__name__ == '__main__'"
    ]
    assert ast.unparse(block.body[-1]).startswith("command.start(")


@pytest.mark.parametrize(
    "error, status",
    [
        (ValueError("what"), 2),
        (OSError("what"), 2),
        (OSError(errno.EDQUOT, "what"), 4),
        (ImportError("what"), 2),
        (WorkdirError("what"), 2),
        (NotKeptError("what"), 4),
        (MemoryError("what"), 2),
        (tf.errors.UnavailableError(None, None, "what\n of gs://bucket"), 2),
        (tf.errors.ResourceExhaustedError(None, None, "what\nand a graph"), 2),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "A graph:\n OOM when allocating what\nit"
            ),
            2,
        ),
    ],
    ids=repr,
)
def test_an_error_is_a_line_and_a_status(capsys, error, status):
    def fails():
        raise error

    assert command.exit_status(["it"], fails) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "what" in line


def behind(first, error):
    """An error that a library raises where it met another."""
    try:
        try:
            raise first
        except Exception:
            raise error  # noqa: B904
    except Exception as raised:
        return raised


HIDDEN = [
    behind(MemoryError("hidden"), TypeError("no signature fits")),
    behind(behind(MemoryError("hidden"), TypeError("binding")), KeyError("what")),
    behind(tf.errors.ResourceExhaustedError(None, None, "hidden"), KeyError("what")),
]


@pytest.mark.parametrize("error", HIDDEN, ids=repr)
def test_memory_that_ran_out_behind_an_error_is_told(capsys, error):
    def fails():
        raise error

    assert command.exit_status(["it"], fails) == 2
    assert "memory has run out (hidden)" in capsys.readouterr().err


def test_what_a_file_is_blamed_for_stays_so(capsys):
    """A damaged file may ask for more memory than there is."""

    def fails():
        raise behind(MemoryError("much"), ValueError("file.npz is damaged"))

    assert command.exit_status(["it"], fails) == 2
    assert capsys.readouterr().err == "error: file.npz is damaged\n"


SHORT = """
import resource
from trainers.cli import command
from trainers.training import resources

def fails():
    raise KeyError("could not create a primitive")

def short():
    size = resources.fields(resources._STATUS, 1024)["VmSize"]
    resource.setrlimit(resource.RLIMIT_AS, (size + (32 << 20), -1))
    fails()

assert not resources.is_short()
print(command.exit_status(["it"], short))
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
command.exit_status(["it"], fails)
"""


def test_a_process_that_gets_no_more_memory_says_so(forks):
    ended = forks.run("-c", SHORT, cwd=ROOT, timeout=120)
    assert ended.stdout == "2\n" and ended.returncode == 1
    told, *traced = ended.stderr.splitlines()
    assert "memory has run out" in told and "could not create a primitive" in told
    assert traced[-1] == "KeyError: 'could not create a primitive'"


class Broken(io.StringIO):
    """Cannot be written."""

    def __init__(self, number):
        super().__init__()
        self.error = OSError(number, os.strerror(number))

    def flush(self):
        if self.getvalue():
            self.truncate(0)  # as the system does with what it was given
            raise self.error


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    "number, status, told",
    [
        (errno.EPIPE, 141, ""),
        (
            errno.ENOSPC,
            4,
            "error: the output cannot be written ([Errno 28] No space left",
        ),
        (errno.EIO, 4, "error: the output cannot be written ([Errno 5]"),
    ],
)
def test_an_output_that_cannot_be_written(
    monkeypatch, capsys, number, status, told, flush
):
    monkeypatch.setattr(sys, "stdout", Broken(number))
    assert command.exit_status(["it"], lambda: print("text", flush=flush)) == status
    error = capsys.readouterr().err
    assert error.startswith(told) and len(error.splitlines()) == bool(told)


def test_nobody_reads_errors_either(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Broken(errno.EPIPE))
    assert command.fail("what", command.Status.REFUSED) == 2


def test_a_pipe_that_is_closed_and_a_disk_that_is_full_end_a_process_quietly():
    """In one process after the other, with what Python does at its end."""
    lines = "[print(number) for number in range(100_000)]"
    program = f"""
from absl import flags
from trainers.cli import command
command.start(lambda argv: command.exit_status(argv, lambda: {lines} and None), flags.FLAGS)
"""
    line = [sys.executable, "-c", program]
    pipes = {"stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen(line, stdout=subprocess.PIPE, **pipes) as process:
        process.stdout.readline()
        process.stdout.close()
        assert (said(process.stderr.read()), process.wait(60)) == ([], 141)
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, timeout=60, **pipes)
    assert done.returncode == 4
    assert said(done.stderr) == [
        "error: the output cannot be written ([Errno 28] No space left on device)"
    ]


@pytest.mark.parametrize(
    "ending", ["raise AttributeError('it')", "raise ValueError('it')", "pass"]
)
def test_a_signal_ends_a_command_whatever_becomes_of_its_exception(ending, forks):
    """C code may make another one of it, or take it for the answer to a question."""
    program = f"""
import signal
from absl import flags
from trainers.cli import command

def work():
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException:
        {ending}

command.start(lambda argv: command.exit_status(argv, work), flags.FLAGS)
"""
    done = forks.run("-c", program)
    assert (said(done.stderr), done.returncode) == (["stopped by SIGTERM"], 143)


def said(error):
    """The lines that are not TensorFlow's, of the machine, on being imported."""
    return [
        line
        for line in error.splitlines()
        if not re.match(r"WARNING: All log|[IWE]0000", line)
    ]


WITHOUT_THREADS = """
import os, _thread
from trainers.cli import command

def refuse(*_):
    raise RuntimeError("can't start new thread")

def work(argv):
    raise AssertionError("it has no thread that ends it with its parent")

theirs, _ = os.pipe()
os.environ["{variable}"] = str(theirs)
_thread.start_new_thread = refuse
command.start(work, list)
"""


def test_a_child_without_a_thread_that_ends_it_with_its_parent_does_not_begin(forks):
    with stopping.ending_with_this() as arguments:
        (variable,) = arguments["env"].keys() - os.environ.keys()
    code = WITHOUT_THREADS.format(variable=variable)
    ended = forks.run("-c", code, cwd=ROOT, timeout=120)
    assert ended.returncode == 2
    assert "memory has run out (can't start new thread)" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


WITHIN_AN_IMPORT = """
from trainers.training import stopping

stopping.listen(importing=True)
print("before")
raise MemoryError
"""
BEFORE_THE_WORK = """
from trainers.cli import command

def parse(argv):
    raise MemoryError

print("before")
command.start(lambda argv: 0, parse)
"""


@pytest.mark.parametrize("code", [WITHIN_AN_IMPORT, BEFORE_THE_WORK])
def test_memory_that_runs_out_outside_of_the_work_is_told(code, forks):
    ended = forks.run("-c", code, cwd=ROOT, timeout=120)
    assert (ended.stdout, ended.returncode) == ("before\n", 2)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: memory has run out")


def test_another_error_within_an_import_has_its_traceback(forks):
    code = WITHIN_AN_IMPORT.replace("MemoryError", "KeyError")
    ended = forks.run("-c", code, cwd=ROOT, timeout=120)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "KeyError"
