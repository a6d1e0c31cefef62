"""What a run on several workers costs: sums on loopback beside a formula, and checkpoints.

python -m benchmarks.scale --rounds=20 --json=docs/benchmarks/scale.json
"""

import contextlib
import math
import multiprocessing
import operator
import os
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from benchmarks import report

FLAGS = flags.FLAGS
SIZES = [4**power for power in range(5, 14)]  # bytes of gradients, 1 KiB to 64 MiB
TENSORS = 16  # among which they are divided
WORKERS = 2
CHECKPOINT_BYTES = 2**28
Point = Mapping[str, float]


class Link(NamedTuple):
    """The connection between workers.

    Attributes:
        latency: seconds of a sum of nothing.
        bandwidth: bytes a second that a worker sends.
    """

    latency: float
    bandwidth: float


def sent(size: float, workers: int) -> float:
    """Returns the bytes that each worker sends to sum messages of a size around a ring."""
    return 2.0 * (workers - 1) / workers * size


def sum_seconds(size: float, workers: int, link: Link) -> float:
    """Returns the seconds of a sum over workers."""
    return link.latency + sent(size, workers) / link.bandwidth


def fit(points: Sequence[Point], workers: int) -> Link:
    """Returns the link with the least squares of relative errors.

    Args:
        points: each with the `bytes` of a message and its `seconds`.
        workers: how many there were.
    """
    seconds = np.array([point["seconds"] for point in points])
    moved = np.array([sent(point["bytes"], workers) for point in points])
    terms = np.stack([1.0 / seconds, moved / seconds], axis=1)
    (latency, slowness), *_ = np.linalg.lstsq(terms, np.ones(len(points)), rcond=None)
    return Link(float(latency), 1.0 / float(slowness))


def best_interval(checkpoint: float, between_losses: float) -> float:
    """Returns the seconds between checkpoints that lose least (Young 1974).

    Args:
        checkpoint: seconds for which a checkpoint stops training.
        between_losses: mean seconds between two losses of a worker.
    """
    return math.sqrt(2.0 * checkpoint * between_losses)


def lost_share(
    interval: float, checkpoint: float, restart: float, between_losses: float
) -> float:
    """Returns the share of a run's time that checkpoints and lost workers take."""
    repeated = interval / 2.0 + restart
    return checkpoint / interval + repeated / between_losses


def main(argv: Sequence[str]) -> None:
    """Measures, and prints a table."""
    here = report.begin(argv)
    points = _measured_sums(FLAGS.rounds)
    link = fit(points, WORKERS)
    result = {
        **here,
        "workers": WORKERS,
        "points": points,
        "link": link._asdict(),
        "checkpoint": _measured_checkpoint(),
        "left_out": {},
    }
    report.end(result, table(result))


def table(result: Mapping[str, Any]) -> str:
    """Returns the sums as a Markdown table."""
    link, workers = Link(**result["link"]), result["workers"]
    rows = []
    for point in result["points"]:
        computed = sum_seconds(point["bytes"], workers, link)
        row = {
            "bytes of gradients": report.number(point["bytes"]),
            "measured, ms": f"{1e3 * point['seconds']:.2f}",
            "by the formula, ms": f"{1e3 * computed:.2f}",
        }
        rows.append(row)
    return report.table(rows, {name: operator.itemgetter(name) for name in rows[0]})


def _measured_sums(rounds):
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("", 0))) for _ in range(WORKERS)
        ]
        ports = [server.getsockname()[1] for server in servers]
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    processes = [
        context.Process(target=_sum, args=(ports, index, rounds, sender))
        for index in range(WORKERS)
    ]
    for process in processes:
        process.start()
    points = receiver.recv()
    for process in processes:
        process.join()
    return points


def _sum(ports, index, rounds, sender):
    """Sums messages of each size with the other workers; the first worker tells the times."""
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    import tensorflow as tf

    from trainers.training import cluster, strategies

    addresses = tuple(f"localhost:{port}" for port in ports)
    strategy = strategies.get_strategy("none", cluster.Cluster(addresses, index))

    @tf.function
    def total(size):
        def replica_sum():
            gradients = [tf.ones([size // 4 // TENSORS])] * TENSORS
            context = tf.distribute.get_replica_context()
            sums = context.all_reduce("SUM", gradients)
            return tf.add_n([gradient[0] for gradient in sums])

        return strategy.run(replica_sum)

    points = []
    for size in SIZES:
        total(size)
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            total(size).numpy()
            times.append(time.perf_counter() - began)
        points.append({"bytes": size, "seconds": min(times)})
    if index == 0:
        sender.send(points)


def _measured_checkpoint():
    """Writes a checkpoint; returns its bytes, and its seconds with and without the disk."""
    from trainers.training import checkpoints

    arrays = {"weights": np.zeros(CHECKPOINT_BYTES // 4, "float32")}
    began = time.perf_counter()
    copied = {name: array.copy() for name, array in arrays.items()}
    copying = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        store = checkpoints.Checkpoints(Path(folder))
        began = time.perf_counter()
        store.save(1, copied)
        writing = time.perf_counter() - began
        store.close()
    return {"bytes": CHECKPOINT_BYTES, "copying": copying, "writing": writing}


if __name__ == "__main__":
    report.define_flags(rounds=20)
    app.run(main)
