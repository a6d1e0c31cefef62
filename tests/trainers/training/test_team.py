"""What workers tell one another before the first step; two of them in one process."""

import socket
import types
from concurrent import futures

import numpy as np
import pytest

from tests.trainers.training.test_workers import free_ports
from trainers.training import cluster, workers


@pytest.fixture
def ports(monkeypatch):
    monkeypatch.setattr(workers, "_GRACE", 0.2)
    return free_ports(3)


def member(ports, index):
    return cluster.Cluster(tuple(f"localhost:{port}" for port in ports[:2]), index)


def each(ports, act):
    """Lets both workers act in threads; returns what each returns or raises."""

    def joined(index):
        try:
            with workers.Team(member(ports, index), ports[2], 20) as team:
                return act(team)
        except (workers.LostError, ValueError) as error:
            return error

    with futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(joined, range(2)))


def test_the_chief_decides(ports):
    step = (7, {"a": np.arange(3.0), "b": np.float64(0.1)})

    def act(team):
        team.compare({"units": 4, "rates": (1, 0.1)})
        found = team.share(step if team.is_chief else None)
        return team.agree(team.index), found[0], found[1]["a"].tolist(), found[1]["b"]

    assert each(ports, act) == [(0, 7, [0.0, 1.0, 2.0], 0.1)] * 2


def test_what_differs_is_named_on_both(ports):
    found = each(ports, lambda team: team.compare({"units": team.index, "depth": 1}))
    told = f"worker 1 (localhost:{ports[1]}) has units 1, and the chief has 0"
    assert all(isinstance(error, workers.DifferentError) for error in found)
    assert all(told in str(error) and "depth" not in str(error) for error in found)


@pytest.mark.parametrize("received", [None, "SIGTERM"])
def test_the_reason_of_one_is_told_to_the_other(ports, received):
    def act(team):
        if not team.is_chief:
            team._signals = types.SimpleNamespace(received=received, heard=received)
            raise ValueError("no such file")
        team.compare({})

    chief, _ = each(ports, act)
    assert f"worker 1 (localhost:{ports[1]}) has ended: no such file" in str(chief)


def test_a_worker_that_does_not_come_is_named(ports):
    with pytest.raises(workers.LostError, match="worker 1 .* not here after 0.3 s"):
        workers.Team(member(ports, 0), ports[2], 0.3)
    with pytest.raises(workers.LostError, match="worker 0, the chief .* does not ans"):
        workers.Team(member(ports, 1), ports[2], 0.3)


def test_a_port_that_is_taken_is_named(ports):
    for port in ports[::2]:  # TensorFlow's, and that for the others
        with socket.create_server(("", port)):
            told = f"worker 0, the chief .* cannot listen on port {port} "
            with pytest.raises(ValueError, match=told):
                workers.Team(member(ports, 0), ports[2], 0.3)
