"""Runs a benchmark as a user does."""

import json

from tests import ROOT

# The command, but for its contenders and what it exports for them: these processes are forked, and
# so need not import TensorFlow.
_FORKED = """
import importlib, multiprocessing, sys, types
from absl import app
from benchmarks import workers
forking = multiprocessing.get_context("fork")
workers.multiprocessing = types.SimpleNamespace(get_context=lambda kind: forking)
command = importlib.import_module(f"benchmarks.{sys.argv.pop(1)}")
export = getattr(command, "export", None)

def export_elsewhere(*arguments):
    process = forking.Process(target=export, args=arguments)
    process.start()
    process.join()

command.export = export_elsewhere
command.define_flags()
app.run(command.main)
"""


def run(forks, name, *flags):
    """Returns the ended process of `python -m benchmarks.NAME`."""
    return forks.run("-m", f"benchmarks.{name}", *flags, cwd=ROOT, timeout=400)


def measured(forks, folder, name, *flags, spawned=False):
    """Returns the result of a command that must end well, and what it printed.

    Args:
        forks: the fixture.
        folder: for the result.
        name: of the command.
        flags: of the command.
        spawned: starts the contenders as the command does, which takes seconds for each.
    """
    path = folder / "result.json"
    flags = (f"--json={path}", *flags)
    if spawned:
        ended = run(forks, name, *flags)
    else:
        ended = forks.run("-c", _FORKED, name, *flags, cwd=ROOT, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(path.read_text()), ended.stdout
