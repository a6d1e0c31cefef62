"""Calls in threads of their own."""

import sys
import textwrap
import threading
import time

import pytest

from tests import ROOT
from trainers.data import threads

# Memory runs out but for a little, of which a thread needs more or less at each turn.
SHORT = textwrap.dedent(
    """
    import resource
    from pathlib import Path
    from trainers.data import threads

    threads._SECONDS = 0.05

    def run_short(left):
        held = Path("/proc/self/status").read_text().split("VmSize:")[1].split()[0]
        resource.setrlimit(resource.RLIMIT_AS, (1024 * int(held), -1))
        blocks, size = [], 1 << 20
        while size > 16:
            try:
                blocks.append(bytearray(size))
            except MemoryError:
                size //= 2
        objects = []
        try:
            while True:
                objects.append(object())
        except MemoryError:
            del objects[-left:]
        try:
            return threads.call(int, "3")
        except (MemoryError, RuntimeError):
            return None
        finally:
            del blocks, objects
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))

    threads.call(int, "3")  # its stack is kept for the next
    for left in range(800, 16_000, 800):
        run_short(left)
    print(threads.call(int, "3"))
    """
)


def test_what_a_function_does_its_caller_gets():
    assert threads.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.call(divmod, 7, 0)


def test_a_thread_that_ends_while_it_is_looked_for_has_its_result(monkeypatch):
    looked_for = threading.Event()

    def no_frames():
        looked_for.set()
        time.sleep(0.5)  # it ends meanwhile
        return {}

    monkeypatch.setattr(threads, "_SECONDS", 0.01)
    monkeypatch.setattr(sys, "_current_frames", no_frames)
    assert threads.call(looked_for.wait, 5)


def test_a_thread_without_memory_is_not_waited_for(forks):
    ended = forks.run("-c", SHORT, cwd=ROOT, timeout=120)
    assert ended.stdout == "3\n" and ended.returncode == 0, ended.stderr
