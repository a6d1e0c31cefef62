"""Runs a benchmark as a user does."""

import json

from tests import ROOT


def run(forks, name, *flags):
    """Returns the ended process of `python -m benchmarks.NAME`."""
    return forks.run("-m", f"benchmarks.{name}", *flags, cwd=ROOT, timeout=400)


def measured(forks, folder, name, *flags):
    """Returns the result of a command that must end well, and what it printed."""
    path = folder / "result.json"
    ended = run(forks, name, f"--json={path}", *flags)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(path.read_text()), ended.stdout
