"""Asks the server what no client should ask, and sees that it stays right.

    python -m tests.serving.fuzz_server --model=MODELS/NAME --requests=20000 --seed=0

Clients ask at once. Each case is one request: a good one in which some fields have been made
hostile, or bytes. What comes back is an error in the API's form, which is no fault of the server's
own; or it is an answer, and then the runtime's. A case is a function of the seed and of its number.
When it ends, the server's memory is what it was after the first tenth of the requests.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import sys

from benchmarks.faults import bodies
from keras_trellis.serving import runtime
from tests.serving.serving import Server

CLIENTS = 8
GROWTH = 2**25  # bytes: what the allocator and new sizes of batches may take
FLAGS = ("--slots=6", "--queue=500", "--body-bytes=20000", "--prompt-tokens=500")


class Client:
    """Asks a server, and compares with the runtime.

    Args:
        port: the server's.
        model: the runtime's.
    """

    def __init__(self, port: int, model: runtime.LanguageModel) -> None:
        self._port, self._model = port, model
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def check(self, path: str, body: bytes) -> None:
        """Asks, and raises AssertionError where what comes back is wrong."""
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        text = response.read().decode()
        bodies.check(self._model, path, body, response.status, text)


def ask(
    server: Server, model: runtime.LanguageModel, cases: bodies.Cases, numbers: range
):
    """Asks the cases of some numbers, each by one of the clients."""

    def work(first: int) -> None:
        client = Client(server.port, model)
        for number in numbers[first::CLIENTS]:
            case = cases.case(number)
            try:
                client.check(*case)
            except Exception as error:
                raise AssertionError(f"case {number}: {case}") from error

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(work, first) for first in range(CLIENTS)]:
            done.result()


def fuzz(folder: str, requests: int, seed: int) -> None:
    """Asks so many requests; raises AssertionError where something is wrong."""
    model = runtime.load(folder)
    server = Server(folder, *FLAGS)
    cases = bodies.Cases(folder.rstrip("/").rpartition("/")[2], seed)
    tenth = max(requests // 10, 1)
    try:
        ask(server, model, cases, range(tenth))
        before = server.measured("process_resident_memory_bytes")
        ask(server, model, cases, range(tenth, requests))
        grown = server.measured("process_resident_memory_bytes") - before
        assert server.answer("/healthz") == {"status": "ok"}
    finally:
        status = server.stop()
    assert status == 0 and "Traceback" not in server.printed, server.printed
    print(f"seed {seed}: {requests} cases; memory grew by {grown / 2**20:.1f} MiB")
    assert grown < GROWTH


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="the folder of a model")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    fuzz(options.model, options.requests, options.seed)


if __name__ == "__main__":
    sys.exit(main())
