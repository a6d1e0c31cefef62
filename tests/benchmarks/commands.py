"""Runs a benchmark as a user does."""

import json
import subprocess
import sys

from tests import ROOT


def run(name, *flags, **options):
    """Returns the ended process of `python -m benchmarks.NAME`."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *flags]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=400, **options
    )


def measured(folder, name, *flags):
    """Returns the result of a command that must end well, and what it printed."""
    path = folder / "result.json"
    ended = run(name, f"--json={path}", *flags)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(path.read_text()), ended.stdout
