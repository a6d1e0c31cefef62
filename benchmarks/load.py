"""How long clients wait for `score`, many at a time, over gRPC on loopback.

    python -m benchmarks.load --server=HOST:PORT --name=MODEL --json=load.json
    python -m benchmarks.load --json=load.json

The first line asks a server that is there, such as TensorFlow Serving; words that its model does
not know must be ones that it takes. The second exports a model of random weights and starts the
tests' server with it. A client, `trainers.serving.remote.Grpc`, sends a request when it has the
answer to the last.
"""

import contextlib
import dataclasses
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

from absl import app, flags

from benchmarks import exported, report, workers
from benchmarks.workers import Contender, Result

FLAGS = flags.FLAGS
SERVER = "tests.serving.model_server"
PERCENTILES = (50, 95, 99)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A server, and what is asked of it.

    Attributes:
        address: HOST:PORT.
        name: the model's.
        text: what is to be scored.
        requests: how many in all, at least.
        clients: how many ask at the same time.
        deadline: seconds that a request may take.
    """

    address: str
    name: str
    text: str
    requests: int
    clients: int
    deadline: float


def score(setting: Setting) -> Contender:
    """All requests a step; what each took is learned, step by step."""
    import numpy as np

    from trainers.serving import remote

    text = np.array([setting.text], object)
    clients = [
        remote.Grpc(setting.address, setting.name, setting.deadline) for _ in range(setting.clients)
    ]
    pool = futures.ThreadPoolExecutor(setting.clients)
    waits: list[list[float]] = []

    def ask(client: Any) -> list[float]:
        count = math.ceil(setting.requests / setting.clients)
        return [_timed(lambda: client.predict("score", {"text": text})) for _ in range(count)]

    def step() -> None:
        waits.append([seconds for each in pool.map(ask, clients) for seconds in each])

    return Contender(step, {}, lambda: {"waits": waits})


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(setting: Setting, result: Result) -> dict[str, Any]:
    """Returns the row of a number of clients."""
    waits = result.facts["waits"][-len(result.readings) :]  # the first round does not count
    return {
        "clients": setting.clients,
        "seconds": report.seconds(result.readings),
        "waits": waits,
        "percentiles": percentiles([wait for each in waits for wait in each]),
    }


def percentiles(waits: Sequence[float]) -> list[float]:
    """Returns those of `PERCENTILES`."""
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return [cuts[each - 1] for each in PERCENTILES]


def table(found: dict[str, Any]) -> str:
    """Returns the result as a Markdown table."""
    titles = ("clients", "requests/s", *(f"p{each}, ms" for each in PERCENTILES))
    return report.markdown(titles, [_cells(each) for each in found["rows"]])


def _cells(each: dict[str, Any]) -> list[str]:
    requests = sum(map(len, each["waits"]))
    return [
        str(each["clients"]),
        f"{requests / sum(each['seconds']):,.1f}",
        *(f"{1e3 * seconds:,.1f}" for seconds in each["percentiles"]),
    ]


@contextlib.contextmanager
def started(folder: str) -> Iterator[str]:
    """Yields the address of the tests' server with a model, for as long as the context lasts.

    Raises:
        RuntimeError: it does not start.
    """
    command = [sys.executable, "-m", SERVER, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline().split()  # type: ignore[union-attr]
            if not line:
                raise RuntimeError(f"the server ended: {' '.join(command)}")
            yield line[0]
        finally:
            server.terminate()


@contextlib.contextmanager
def _served(threads: int) -> Iterator[tuple[str, str]]:
    """Yields the address and the name of the model to ask."""
    if FLAGS.server:
        yield FLAGS.server, FLAGS.name
        return
    with exported.from_flags(threads) as model:
        exported.write(model)
        with started(str(model.path())) as address:
            yield address, model.path().name


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("server", None, "HOST:PORT of a gRPC server; none: one is started.")
    flags.DEFINE_string("name", None, "What the model is called on --server.")
    flags.DEFINE_list("clients", ["1", "4", "16"], "How many ask at the same time.")
    flags.DEFINE_integer("requests", 320, "A round, of all clients.", lower_bound=1)
    flags.DEFINE_integer("words", 20, "Of the text in a request.", lower_bound=1)
    flags.DEFINE_float("deadline", 60, "Seconds that a request may take.", lower_bound=0)
    exported.define_flags(units=512, depth=20)
    report.define_flags(rounds=3)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    if bool(FLAGS.server) != bool(FLAGS.name):
        raise app.UsageError(
            "`server` and `name` go together. "
            f"Received: --server={FLAGS.server} --name={FLAGS.name}"
        )
    here = report.begin(argv)
    asked = {name: FLAGS[name].value for name in ("requests", "words")}
    with _served(here["threads"]) as (address, name):
        text = " ".join(["w1"] * FLAGS.words)
        settings = [
            Setting(address, name, text, FLAGS.requests, clients, FLAGS.deadline)
            for clients in report.integers("clients")
        ]
        each, left_out = workers.measure_each(
            {"score": score}, settings, threads=here["threads"], rounds=FLAGS.rounds
        )
    found = {"setting": asked, **here, "left_out": left_out}
    pairs = zip(settings, each, strict=True)
    found["rows"] = [row(setting, results["score"]) for setting, results in pairs if results]
    report.end(found, table)
    return int(bool(left_out))


if __name__ == "__main__":
    define_flags()
    app.run(main)
