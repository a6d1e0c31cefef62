"""Clients of the server, all at once, beside one batch of as many rows in the same runtime."""

import concurrent.futures
import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.workers import Facts

_PAUSE = 0.01  # seconds between two questions of what the server serves
_PROMPT = 8  # tokens


class Load(NamedTuple):
    """What clients ask.

    Attributes:
        folder: of the model.
        clients: how many ask at once.
        new_tokens: how many tokens each answer has.
        requests: how many each client asks for in a round, one after the other.
        stream: whether the answers are streams.
    """

    folder: str
    clients: int
    new_tokens: int
    requests: int
    stream: bool = False

    def prompts(self, words: Sequence[str]) -> list[str]:
        """Returns a prompt for each client."""
        places = range(0, _PROMPT * 7, 7)
        return [
            " ".join(words[(31 * client + place) % len(words)] for place in places)
            for client in range(self.clients)
        ]


def measure(load: Load, rounds: int) -> Facts:
    """Measures a batch and the clients, in turns; sees that the answers are the same.

    Returns:
        tokens a second of either, and a second of the processor, round by round, and the seconds of
        each answer of `/v1/models` meanwhile.

    Raises:
        AssertionError: an answer is another one than the batch's.
    """
    import numpy as np

    from keras_trellis.serving import runtime

    model = runtime.load(load.folder)
    prompts = load.prompts(model.tokenizer.tokens[2:])
    how = {"max_length": load.new_tokens, "forbidden_ids": [-1]}
    facts: Facts = {"batch": [], "server": [], "models_seconds": []}
    facts |= {"batch_processor": [], "server_processor": []}
    tokens = load.clients * load.new_tokens
    asked_tokens = load.requests * tokens
    with _server(load.folder) as port:
        for number in range(rounds + 1):  # the first one warms up
            begin, processor = time.perf_counter(), time.process_time()
            answer = model.complete(prompts, seed=np.arange(load.clients), **how)
            batch = time.perf_counter() - begin
            batch_processor = time.process_time() - processor
            with _models(port) as seconds:
                begin, processor = time.perf_counter(), _processor_seconds(port)
                texts = _asked(port, load, prompts)
                server = time.perf_counter() - begin
                server_processor = _processor_seconds(port) - processor
            assert all(text == answer.text for text in texts), "another answer"
            if number:
                facts["batch"].append(tokens / batch)
                facts["batch_processor"].append(tokens / batch_processor)
                facts["server"].append(asked_tokens / server)
                facts["server_processor"].append(asked_tokens / server_processor)
                facts["models_seconds"] += seconds
    return facts


def _processor_seconds(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    match = re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
    assert match is not None, "this system does not tell"
    return float(match[1])


def _asked(port: int, load: Load, prompts: Sequence[str]) -> list[list[str]]:
    """Returns the clients' answers to each of their requests."""

    def ask(client: int) -> list[str]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        body = {
            "model": load.folder.rpartition("/")[2],
            "prompt": prompts[client],
            "max_tokens": load.new_tokens,
            "seed": client,
            "stream": load.stream,
        }
        texts = []
        for _ in range(load.requests):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            texts.append(_text(answer.read(), load.stream))
        connection.close()
        return texts

    with concurrent.futures.ThreadPoolExecutor(load.clients) as pool:
        answers = pool.map(ask, range(load.clients))
    return [list(texts) for texts in zip(*answers, strict=True)]


def _text(answer: bytes, stream: bool) -> str:
    if not stream:
        return json.loads(answer)["choices"][0]["text"]
    parts = answer.decode().split("\n\n")[:-2]  # `[DONE]` and nothing
    events = (json.loads(part.removeprefix("data: ")) for part in parts)
    return "".join(event["choices"][0]["text"] for event in events)


@contextlib.contextmanager
def _models(port: int) -> Iterator[list[float]]:
    """Asks for `/v1/models` again and again in the context; yields the seconds of the answers."""
    command = [sys.executable, "-m", "benchmarks.clients", str(port)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    asking = subprocess.Popen(command, text=True, **pipes)
    assert asking.stdout is not None
    asking.stdout.readline()  # it has begun
    seconds: list[float] = []
    yield seconds
    answered, _ = asking.communicate("")
    seconds += json.loads(answered)


@contextlib.contextmanager
def _server(folder: str) -> Iterator[int]:
    """Starts the server; yields its port."""
    command = [sys.executable, "-m", "keras_trellis.serving", folder, "--port=0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        match = re.search(r"http://[\d.]+:(\d+)", server.stdout.readline())
        if match is None:
            raise RuntimeError("the server does not start")
        yield int(match[1])
    finally:
        server.terminate()
        server.wait()


def main(port: int) -> None:
    """Asks until standard input ends, and prints the seconds of each answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    ended, seconds = threading.Event(), []
    threading.Thread(
        target=lambda: (sys.stdin.read(), ended.set()), daemon=True
    ).start()
    print(flush=True)
    while not ended.wait(_PAUSE):
        begin = time.perf_counter()
        connection.request("GET", "/v1/models")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]))
