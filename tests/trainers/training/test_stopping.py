"""Signals and outputs that end a command, in processes that import nothing of TensorFlow."""

import errno
import io
import os
import signal
import subprocess
import sys

import pytest

from trainers.training import stopping

WAIT = "print('ready', flush=True)\nwhile True: time.sleep(0.01)"


def program(body):
    return [sys.executable, "-c", f"import os, signal, sys, time, contextlib\n{body}"]


def start(body, **kwargs):
    """Starts a program, and waits until it says that it is ready."""
    head = "from trainers.training import stopping\n"
    pipes = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        **kwargs,
    }
    process = subprocess.Popen(program(head + body), **pipes)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", stopping.NUMBERS)
@pytest.mark.parametrize("importing", [False, True])
def test_a_signal_is_a_line_and_its_status(number, importing):
    process = start(f"stopping.listen(importing={importing})\n{WAIT}")
    process.send_signal(number)
    output = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert output == ("", f"stopped by {number.name}\n")


def test_the_command_of_a_module_listens_before_its_imports(tmp_path):
    (tmp_path / "tensorflow.py").write_text(f"import time\n{WAIT}")
    line = [sys.executable, "-m", "trainers.lm"]
    path = {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', os.getcwd())}"
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(line, env={**os.environ, **path}, **pipes)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "stopped by SIGINT\n")
    assert process.returncode == 130


@pytest.mark.parametrize("number", stopping.NUMBERS)
def test_what_was_ignored_stays_ignored(number):
    ignored = f"signal.signal({int(number)}, signal.SIG_IGN)\nstopping.listen()\n"
    process = start(f"{ignored}print('ready', flush=True)\nsys.stdin.readline()\nprint('on')",
                    stdin=subprocess.PIPE)  # fmt: skip
    process.send_signal(number)
    assert process.communicate("\n", timeout=30) == ("on\n", "")


SLOW_END = """
stopping.listen()
try:
    print('ready', flush=True)
    while True: time.sleep(0.01)
finally:
    print('ending', flush=True)
    with contextlib.suppress(BaseException):
        sys.stdin.readline()
    print('ended', flush=True)
"""


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGINT, 130),
        # As a terminal that is closed goes on to do.
        (signal.SIGINT, signal.SIGHUP, None),
        (signal.SIGTERM, signal.SIGTERM, None),  # as `timeout` does
    ],
)
def test_a_second_signal_ends_at_once_unless_it_is_the_first_again(
    first, second, status
):
    process = start(SLOW_END, stdin=subprocess.PIPE)
    process.send_signal(first)
    assert process.stdout.readline() == "ending\n"
    process.send_signal(second)
    if status is None:
        output, _ = process.communicate("\n", timeout=30)
        assert (output, process.returncode) == ("ended\n", 128 + first)
    else:
        assert process.wait(30) == status
        output, error = process.communicate()
        assert output == "" and "Traceback" not in error


def test_a_signal_within_a_finalizer_is_not_lost():
    """Python only tells of what is raised there, and would go on."""
    body = """
class Slow:
    def __del__(self):
        print('ready', flush=True)
        while True: time.sleep(0.01)
stopping.listen()
Slow()
print('went on')
"""
    process = start(body)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", "stopped by SIGTERM\n")
    assert process.returncode == 143


def test_streams_that_are_closed_do_not_lend_their_numbers_to_files(tmp_path):
    body = f"""
from trainers.training import stopping
for each in (0, 1, 2): os.close(each)
sys.stdout = sys.stderr = None
stopping.listen()
with open({str(tmp_path / "file")!r}, "w") as file:
    file.write(str(file.fileno() > 2))
print("nobody reads this")
print("nor this", file=sys.stderr)
"""
    done = subprocess.run(program(body), timeout=30)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "True"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_an_output_that_cannot_be_written_raises_nothing(monkeypatch, capfd, number):
    error, calls = OSError(number, os.strerror(number)), []

    class Broken(io.StringIO):
        def write(self, text):
            calls.append(text)
            raise error

    monkeypatch.setattr(sys, "stdout", Broken())
    signals = stopping.StopSignals()
    with signals.output():
        print("a")
        print("b", flush=True)
    assert calls == ["a"]
    told = capfd.readouterr().err
    if number == errno.EPIPE:
        assert signals.received == "SIGPIPE" and told == ""
        with pytest.raises(stopping.StoppedError) as stopped:
            signals.check()
        assert stopped.value.code == 141
        assert (
            capfd.readouterr().err == "the output is closed; the same command goes on\n"
        )
    else:
        assert signals.received is None
        assert told.startswith("the output cannot be written ([Errno 28]")
        assert len(told.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_with_its_parent_however_that_ends(number):
    child = program(
        "from trainers.training import stopping\nstopping.end_with_parent()\n" + WAIT
    )
    parent = start(
        "import subprocess\n"
        "with stopping.ending_with_this() as arguments:\n"
        f"    subprocess.Popen({child!r}, **arguments)\n"
        "    while True: time.sleep(0.01)"
    )
    parent.send_signal(number)
    parent.communicate(timeout=60)  # until both have closed the output
