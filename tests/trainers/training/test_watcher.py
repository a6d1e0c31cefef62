"""A process whose threads cannot run is ended from outside."""

import pytest

from trainers.training import watcher

# `PyDLL` lets no other thread run meanwhile, as TensorFlow does.
PROGRAM = """
import ctypes, socket, time
from trainers.training.watcher import Watcher
here, there = socket.socketpair()
watching = Watcher({silence}, 0.2, {{here.fileno(): "it is closed"}}, "it is silent")
for _ in range(6):
    watching.sign()
    time.sleep(0.1)
{then}
print("late")
"""


@pytest.mark.parametrize(
    ("silence", "then", "status", "told"),
    [
        (30, "there.close(); ctypes.PyDLL(None).sleep(20)", watcher.ENDED, "closed"),
        (0.5, "ctypes.PyDLL(None).sleep(20)", watcher.ENDED, "silent"),
        (30, "ctypes.PyDLL(None).sleep(2); watching.close()", 0, ""),
        (0.5, "watching.close(); ctypes.PyDLL(None).sleep(2)", 0, ""),
        (30, "there.close(); import os; os._exit(3)", 3, ""),
    ],
)
def test_who_cannot_say_so_is_ended(forks, silence, then, status, told):
    done = forks.run("-c", PROGRAM.format(silence=silence, then=then), timeout=15)
    assert done.returncode == status
    assert [line for line in done.stderr.splitlines() if "error: " in line] == (
        [f"error: it is {told}"] if told else []
    )
    assert ("late" in done.stdout) == (status == 0)
