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
import json
import sys
from typing import Any

import numpy as np

from keras_trellis.serving import runtime
from tests.serving.serving import Server, events

CLIENTS = 8
GROWTH = 2**25  # bytes: what the allocator and new sizes of batches may take
FLAGS = ("--slots=6", "--queue=500", "--body-bytes=20000", "--prompt-tokens=500")
STATUSES = {400, 404, 405, 413}
HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "a",
    "\x00",
    "\ud800",
    "\u202e<script>",
    "a " * 600,
    "\U0001f600" * 50,
    [],
    [[]],
    ["a", 3],
    [None],
    [1, 2.5],
    [10**30],
    ["a"] * 40,
    {},
    {"a": [{}]},
]
PATHS = ("/v1/completions", "/v1/completions", "/score", "/next", "/tokenize")


class Cases:
    """Requests to the server.

    Args:
        name: of the model.
        seed: what they are drawn from.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name, self._seed = name, seed

    def case(self, number: int) -> tuple[str, dict[str, Any], bytes]:
        """Returns a path, the fields of a request, and the bytes of it."""
        random = np.random.default_rng([self._seed, number])
        path = PATHS[random.integers(len(PATHS))]
        fields = self._good(random, path)
        for name in [*fields, "other"]:
            if random.random() < 0.1:
                fields[name] = HOSTILE[random.integers(len(HOSTILE))]
        body = json.dumps(fields).encode()
        if random.random() < 0.1:
            body = body[: random.integers(len(body))] + random.bytes(5)
        if random.random() < 0.02:
            body = b"[" * random.integers(30_000)
        return path, fields, body

    def _good(self, random: np.random.Generator, path: str) -> dict[str, Any]:
        text = " ".join(random.choice([*"abcdefghij", "zz", "\n"], random.integers(40)))
        if path != "/v1/completions":
            extra = {"/score": "alternatives", "/next": "count"}.get(path)
            rest = {} if extra is None else {extra: int(random.integers(1, 4))}
            return {"texts": [text, "a b"], **rest}
        return {
            "model": self._name,
            "prompt": text,
            "max_tokens": int(random.integers(20)),
            "seed": int(random.integers(2**62)),
            "temperature": float(random.choice([0.0, 0.7, 1.0])),
            "top_k": int(random.integers(5)),
            "n": int(random.integers(1, 3)),
            "stop": [str(random.choice(["a b", "\n", "c"]))],
            "stream": bool(random.random() < 0.3),
        }


class Client:
    """Asks a server, and compares with the runtime.

    Args:
        port: the server's.
        model: the runtime's.
    """

    def __init__(self, port: int, model: runtime.LanguageModel) -> None:
        self._port, self._model = port, model
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def check(self, path: str, fields: dict[str, Any], body: bytes) -> None:
        """Asks, and raises AssertionError where what comes back is wrong."""
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            assert response.status in STATUSES, (response.status, text)
            error = json.loads(text)["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert 0 < len(error["message"]) < 1000 and "\n" not in error["message"]
            return
        fields = json.loads(body)
        kind = response.headers.get_content_type()
        if path == "/v1/completions":
            self._check_texts(fields, _texts(text, kind))
        elif path == "/score":
            self._check_scores(fields, json.loads(text)["scores"])
        else:
            answer = json.loads(text)["next" if path == "/next" else "ids"]
            assert len(answer) == len(fields["texts"])

    def _check_texts(self, fields: dict[str, Any], texts: list[str]) -> None:
        # As in OpenAI's protocol, null stands for the default.
        fields = {name: value for name, value in fields.items() if value is not None}
        prompt, count = fields["prompt"], fields.get("n", 1)
        length = fields.get("max_tokens", 16)
        if not isinstance(prompt, str) or "seed" not in fields:
            return
        assert len(texts) == count
        expected = [""] * count
        if length:
            expected = self._model.complete(
                [prompt] * count,
                max_length=length,
                seed=[fields["seed"] + index for index in range(count)],
                temperature=fields.get("temperature", 1.0),
                top_k=min(fields.get("top_k", 0), 100),
                stop=fields.get("stop", []),
                forbidden_ids=[-1],
            ).text
        assert texts == expected

    def _check_scores(
        self, fields: dict[str, Any], scores: list[dict[str, Any]]
    ) -> None:
        expected = self._model.score(fields["texts"])
        totals = [score["total"] for score in scores]
        np.testing.assert_allclose(totals, expected.total, rtol=1e-4, atol=1e-4)


def _texts(text: str, kind: str) -> list[str]:
    if kind == "application/json":
        return [choice["text"] for choice in json.loads(text)["choices"]]
    *parts, end = events(text)
    assert end == "[DONE]"
    texts: dict[int, str] = {}
    for part in parts:
        for choice in json.loads(part)["choices"]:
            index = choice["index"]
            texts[index] = texts.get(index, "") + choice["text"]
    return [texts[index] for index in sorted(texts)]


def ask(server: Server, model: runtime.LanguageModel, cases: Cases, numbers: range):
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
    cases = Cases(folder.rstrip("/").rpartition("/")[2], seed)
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
