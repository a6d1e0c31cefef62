"""Bad input is told in one line, before anything is written: the table in `bad_inputs`."""

import contextlib
import hashlib
import importlib
import logging
import re
import shlex
import signal

import numpy as np
import pytest

from tests.fresh_flags import fresh_flags
from tests.trainers.bad_inputs import (
    comparisons,
    config,
    corpora,
    drawings,
    folders,
    images,
    learned,
    names,
    recordings,
    serving,
    studies,
    texts,
    uses,
    weights,
)
from trainers.authors import released

TABLES = (
    names,
    uses,
    config,
    texts,
    images,
    weights,
    folders,
    serving,
    studies,
    corpora,
    comparisons,
    drawings,
    learned,
    recordings,
)
ROWS = [row for table in TABLES for row in table.ROWS]
SECONDS = 60  # a row that waits for a pipe would wait for ever
COMMANDS = (
    *("lm", "pixels", "evaluate", "generate", "export", "import_weights", "verify"),
    *("report", "parameters", "client", "demo", "tune", "compare", "draw", "batch"),
    *("meta", "meta_evaluate", "series"),
)
MODULES = {name: importlib.import_module(f"trainers.{name}") for name in COMMANDS}
MAINS = {
    name: getattr(module, "main", None) or module.run
    for name, module in MODULES.items()
}


class Hung(BaseException):
    """A row took too long."""


@contextlib.contextmanager
def limited(seconds):
    """Raises Hung in what takes longer, waiting for a pipe included."""

    def end(*_):
        raise Hung(f"{seconds} seconds")

    former = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def contents(folder):
    """Returns of each file in a folder what would differ if it were written to."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        digest = None
        if path.is_file() and not path.is_symlink():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_ino, digest)
    return found


def run(row, folder):
    """Runs a row's command in this process; returns the exit status."""
    module = MODULES[row.command]
    argv = [row.command, *shlex.split(row.flags.replace("{dir}", str(folder)))]
    with fresh_flags(module), limited(SECONDS):
        try:
            return MAINS[row.command](module.parse_flags(argv))
        except SystemExit as exit:
            return exit.code


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def told(home, own_settings, tmp_path, monkeypatch, capsys, caplog):
    """Runs a row; returns its exit status, what it printed, and its warnings and errors."""

    def told(row):
        write(tmp_path, row.files)
        before = contents(tmp_path)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(home))
        for name, value in row.environment.items():
            monkeypatch.setenv(name, value)
        # In place of torch, which the tests do without.
        read = np.load
        monkeypatch.setattr(released, "read_state_dict", lambda f: dict(read(f)))
        status = run(row, tmp_path)
        assert contents(tmp_path) == before
        printed = capsys.readouterr()
        warnings = [
            r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING
        ]
        return status, printed.out, [*warnings, *printed.err.splitlines()]

    return told


def pattern(line, folder):
    escaped = re.escape(line.replace("{dir}", str(folder)))
    return escaped.replace(re.escape("{any}"), ".*")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_line_says_what_is_wrong_and_nothing_is_written(row, told, tmp_path):
    status, out, lines = told(row)
    if row.warning:
        assert lines.pop(0).startswith(row.warning)
    assert len(lines) == 1, lines
    assert re.fullmatch(pattern(f"error: {row.line}", tmp_path), lines[0]), lines[0]
    assert (status, out) == (row.status, row.out)


def test_the_table_is_long_and_each_row_has_a_name_of_its_own():
    names = [row.name for row in ROWS]
    assert len({*names}) == len(names) >= 200
    assert all(re.fullmatch("[a-z0-9]+(_[a-z0-9]+)+", name) for name in names)
