"""Runs whose folder is in an object store: they end as on a disk, whatever happens on the way."""

import functools
import json
import multiprocessing
import os
import random
import signal

import pytest

from tests.trainers.training import toy
from trainers.data.stores import to_path

LIMIT = 100  # seconds; a client of Google's store waits up to 32 before it asks again
WHOLE = "--whole=1"  # windows of one length, whose steps are traced once
FILES = {"config.json", "curves.png", "metrics.csv", "result.json"}
CHECKPOINTS = ["best.npz", "step-00000018.npz", "step-00000020.npz"]


@pytest.fixture(scope="module")
def forking():
    """A process that has imported everything, from which others are forked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([toy.__name__])
    return context


def _become(environment, *arguments):
    os.environ.update(environment)
    toy.in_files(*arguments)


class Training:
    """Trains in processes of their own; `process` is the newest one."""

    def __init__(self, forking, store, folder):
        self._forking, self._store, self._folder = forking, store, folder
        self.process = None

    def start(self, name, *flags):
        out, err = (self._folder / f"{name}.{kind}" for kind in ("out", "err"))
        arguments = ([f"--workdir={self._store.url}/{name}", *flags, WHOLE], out, err)
        target = functools.partial(_become, self._store.environment, *arguments)
        self.process = self._forking.Process(target=target)
        self.process.start()
        return self.process, out, err

    def run(self, name, *flags):
        """Returns the exit status, the last line of the output as JSON, and the errors."""
        process, out, err = self.start(name, *flags)
        process.join(LIMIT)
        process.kill()
        process.join()
        lines = out.read_text().splitlines()
        found = json.loads(lines[-1]) if process.exitcode == 0 else None
        return process.exitcode, found, err.read_text()

    def names(self, name):
        """Returns the names of the objects of a run, its events aside."""
        folder = to_path(f"{self._store.url}/{name}")
        inside = {each.name for each in folder.iterdir() if not each.is_dir()}
        return inside, [each.name for each in (folder / "checkpoints").iterdir()]


@pytest.fixture
def training(forking, store, tmp_path):
    return Training(forking, store, tmp_path)


@pytest.fixture(scope="module")
def expected(forking, tmp_path_factory):
    """What the run comes to on a disk."""
    folder = tmp_path_factory.mktemp("disk")
    files = folder / "out", folder / "err"
    arguments = ([f"--workdir={folder / 'run'}", WHOLE], *files)
    process = forking.Process(target=toy.in_files, args=arguments)
    process.start()
    process.join()
    return json.loads(files[0].read_text().splitlines()[-1])


def _same(found, expected):
    return all(found[name] == expected[name] for name in ("variables", "result"))


def test_a_run_in_a_store_ends_as_on_a_disk(training, expected):
    status, found, _ = training.run("quiet")
    assert status == 0 and _same(found, expected)
    assert training.names("quiet") == (FILES, CHECKPOINTS)


@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_is_killed_and_a_store_that_fails_change_no_bit(
    store, training, expected, seed
):
    draw = random.Random(f"{store.scheme} {seed}")
    begin = len(store.requests)
    kill_at, after = draw.randint(1, 60), draw.random() < 0.5
    kinds = ["busy", "slow", "dropped", "unanswered", "cut", "stale"]
    faults = {draw.randint(1, 120): draw.choice(kinds) for _ in range(3)}

    def fault(number, method, path):
        if number - begin == kill_at:
            os.kill(training.process.pid, signal.SIGKILL)
            return "unanswered" if after else "dropped"
        return faults.get(number - begin)

    store.fault = fault
    name = f"killed{seed}"
    first, _, _ = training.run(name)
    assert first == -signal.SIGKILL
    # A listing of the time before the kill may make it refuse; it changes nothing then.
    found = next(filter(None, (training.run(name)[1] for _ in range(3))))
    assert _same(found, expected), (kill_at, after, faults)
    assert training.names(name) == (FILES, CHECKPOINTS)


# The client of the other store waits for a minute at each request.
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_store_that_is_away_for_a_while_costs_checkpoints_alone(
    store, training, expected
):
    away = []

    def fault(number, method, path):
        if away or method == "PUT" and "step-00000006" in path:
            away.append(path)
        return "busy" if 0 < len(away) <= 40 else None

    store.fault = fault
    status, found, _ = training.run("away")
    assert len(away) > 40
    assert status == 0 and _same(found, expected)
    assert training.names("away") == (FILES, CHECKPOINTS)


def test_the_last_process_to_come_has_the_folder(store, training, tmp_path):
    begin = len(store.requests)
    taken = []

    def fault(number, method, path):
        if number - begin == 30 and not taken:
            lock = to_path(f"{store.url}/taken/lock")
            taken.append(lock.read_bytes())
            lock.write_bytes(b"process 1 on another\n")

    store.fault = fault
    status, _, errors = training.run("taken")
    assert taken[0].startswith(f"process {training.process.pid} on ".encode())
    assert status == 1 and "TakenError: process 1 on another has taken" in errors
    lock = to_path(f"{store.url}/taken/lock")
    assert lock.read_bytes() == b"process 1 on another\n"
    process, out, _ = training.start("taken")
    process.join()
    assert "was last held by process 1 on another; if it" in out.read_text()
    assert not lock.exists()
