"""Several workers, each a process on this machine: what they end with, and what if one dies."""

import contextlib
import json
import multiprocessing
import signal
import socket

import numpy as np
import pytest

from tests.trainers.training import toy
from trainers.training import followers, workers

LIMIT = 60  # seconds; after this a worker hangs
WHOLE = "--whole=1"  # windows of one length, whose steps are traced once


@pytest.fixture(scope="module")
def forking():
    """A process that has imported everything, from which others are forked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([toy.__name__])
    return context


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


def together(forking, folder, extra, *flags):
    """Runs two workers to their ends; returns the exit status and the outputs of each.

    `extra` has further flags by worker.
    """
    ports = ["--ports", *map(str, free_ports(3))]
    started, files = [], []
    for index in range(2):
        own = [f"--workdir={folder / 'run'}", f"--index={index}", *ports, *flags, WHOLE]
        files.append([folder / f"{name}{index}" for name in ("out", "err")])
        for file in files[-1]:
            file.unlink(missing_ok=True)
        arguments = (own + extra.get(index, []), *files[-1])
        started.append(forking.Process(target=toy.in_files, args=arguments))
        started[-1].start()
    for process in started:
        process.join(LIMIT)
        process.kill()
        process.join()
    return [
        (process.exitcode, out.read_text(), err.read_text())
        for process, (out, err) in zip(started, files, strict=True)
    ]


def result(output):
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def undisturbed(forking, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    ends = together(forking, folder, {})
    assert [status for status, _, _ in ends] == [0, 0]
    return folder, [output for _, output, _ in ends]


def test_two_workers_of_a_replica_end_as_one_of_two(forking, undisturbed, tmp_path):
    files = tmp_path / "out", tmp_path / "err"
    flags = [f"--workdir={tmp_path / 'run'}", "--replicas=2", WHOLE]
    process = forking.Process(target=toy.in_files, args=(flags, *files))
    process.start()
    process.join(LIMIT)
    one = result(files[0].read_text())
    for output in undisturbed[1]:
        found = result(output)
        assert found["first"] == one["first"]  # to the bit
        assert found["result"] == one["result"]
        for variable, expected in zip(
            found["variables"], one["variables"], strict=True
        ):
            np.testing.assert_allclose(variable, expected, rtol=0, atol=1e-6)


def test_the_chief_alone_prints_and_writes(undisturbed):
    folder, (chief, other) = undisturbed
    assert "epoch 4/4" in chief and len(other.splitlines()) == 1
    assert not (folder / followers.NoWorkdir.path.name).exists()


def test_workers_that_die_or_are_stopped_go_on_to_the_same_end(
    forking, undisturbed, tmp_path
):
    at = "--at_call=4"
    chief, other = together(forking, tmp_path, {1: [at]})
    assert (chief[0], other[0]) == (workers.LOST, -signal.SIGKILL)
    assert "error: worker 1 (localhost:" in chief[2] and " is gone: " in chief[2]
    chief, other = together(forking, tmp_path, {0: [at]})
    assert (chief[0], other[0]) == (-signal.SIGKILL, workers.LOST)
    assert "error: worker 0, the chief (localhost:" in other[2]
    ends = together(forking, tmp_path, {1: [at, f"--signal={signal.SIGTERM.value}"]})
    stopped = [result(output) for _, output, _ in ends]
    assert [each["result"]["finished"] for each in stopped] == [False, False]
    assert stopped[0]["result"]["step"] == stopped[1]["result"]["step"] < 20
    assert "stopped by SIGTERM after step" in ends[0][1]
    ends = together(forking, tmp_path, {})
    for (status, output, _), expected in zip(ends, undisturbed[1], strict=True):
        assert status == 0
        assert result(output)["variables"] == result(expected)["variables"]
        assert result(output)["cost"]["weight"] == result(expected)["cost"]["weight"]


def test_the_watcher_waits_for_longer_than_a_team_does(monkeypatch):
    """It ends a process whose own threads cannot run; these notice a lost worker before."""
    made = []
    monkeypatch.setattr(workers.watcher, "Watcher", lambda *given: made.append(given))
    workers._watched([])
    (silence, *_) = made[0]
    assert silence > workers.SILENCE
