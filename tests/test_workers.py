"""A run of pytest-xdist whose workers are replaced, and one in which they grow too far."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = """
import os, pathlib, pytest

@pytest.fixture(scope="module")
def module():
    yield
    pathlib.Path(f"ended-{os.getpid()}").touch()

@pytest.mark.parametrize("name", range(6))
def test(name, module):
    pathlib.Path(f"ran-{name}-{os.getpid()}").touch()
"""


@pytest.fixture
def run(tmp_path):
    """Returns a function that runs `TESTS` with constants of the plugin set."""

    def run(more: str = "", **constants: float) -> subprocess.CompletedProcess:
        settings = [f"workers.{name} = {value}" for name, value in constants.items()]
        (tmp_path / "conftest.py").write_text(
            "\n".join(["from tests import workers", *settings])
        )
        (tmp_path / "test_it.py").write_text(TESTS + more)
        options = [
            "-q",
            "-n2",
            "--dist=worksteal",
            "-p",
            "tests.workers",
            "--rootdir=.",
        ]
        command = [sys.executable, "-m", "pytest", *options, "--import-mode=importlib"]
        environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run


def test_every_test_runs_once_and_fixtures_end_where_workers_are_replaced(
    run, tmp_path
):
    ended = run(REPLACED_FROM=0)
    assert ended.returncode == 0, ended.stdout
    assert re.search("^6 passed", ended.stdout, re.MULTILINE), ended.stdout
    assert re.search(r"gw\d held \d\.\d GiB and is replaced", ended.stdout)
    ran = [path.name.split("-")[1:] for path in tmp_path.glob("ran-*")]
    assert sorted(name for name, _ in ran) == list("012345")
    processes = {process for _, process in ran}
    assert len(processes) > 2
    assert processes == {path.name.split("-")[1] for path in tmp_path.glob("ended-*")}


def test_a_worker_that_grows_too_far_fails_the_run(run):
    ended = run(MOST=1)
    assert ended.returncode == 1
    assert re.search(
        r"^FAILED: gw\d held more than .* at the end of test_it.py", ended.stdout, re.M
    )


def test_a_crash_is_still_one(run):
    ended = run("\n\ndef test_crash():\n    os.abort()\n", REPLACED_FROM=10**15)
    assert ended.returncode == 1
    assert "1 failed, 6 passed" in ended.stdout
