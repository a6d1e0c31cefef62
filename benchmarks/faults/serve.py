"""Serves a model by the server's own application, swaps its version, and asks it.

    python -m benchmarks.faults.serve --model=MODELS/NAME --new=FOLDER [--requests=2,20]

A folder is copied beside the version that is served, file by file, until the server has swapped
them. Before, meanwhile and after, each answer must be that of the runtime. What lies between a
client and the application, sockets, is the tests'.
"""

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

from absl import flags

from benchmarks.faults import bodies
from keras_trellis.serving import runtime, versions
from keras_trellis.serving.server.app import make_app
from keras_trellis.serving.server.service import Service
from keras_trellis.serving.server.settings import Limits
from trainers.cli import command

FLAGS = flags.FLAGS
WORDS = [f"word{number}" for number in range(10)]
PATIENCE = 0.2  # in place of 30 seconds
SECONDS = 8.0  # until the new version must be served
_TRIES = 3  # of a request that memory ran out for

flags.DEFINE_string("model", None, "The folder of a model, with one version.")
flags.DEFINE_string("new", None, "The folder that becomes its next version.")
flags.DEFINE_list(
    "requests", [], "A seed and a number: so many requests that no client should send."
)


class _Server:
    """The application, called as uvicorn calls it.

    Args:
        service: what it serves.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._app = make_app(service, None, None)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        """Returns the status and the body of an answer."""
        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"},
            **{"method": method, "scheme": "http", "path": path, "headers": headers},
            **{"raw_path": path.encode(), "query_string": b"", "root_path": ""},
            **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)},
        }
        unread = [{"type": "http.request", "body": body, "more_body": False}]
        answered: list[dict] = []
        stays = asyncio.Event()

        async def receive() -> dict:
            if unread:
                return unread.pop()
            await stays.wait()  # the client does not leave
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            answered.append(message)

        await self._app(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in answered[1:])
        return answered[0]["status"], text.decode()

    async def score(self) -> list[float]:
        """Returns the scores of a text, which must be the runtime's.

        Raises:
            AssertionError: they are others.
            ValueError: the server has no answer, again and again.
        """
        body = json.dumps({"texts": [" ".join(WORDS[:4])]}).encode()
        for _ in range(_TRIES):
            status, text = await self.ask("POST", "/score", body)
            if status == 200:
                model = self.service.versions.current.model
                bodies.check(model, "/score", body, status, text)
                return [score["total"] for score in json.loads(text)["scores"]]
            if status not in (500, 503):  # what a server may say whose memory ran out
                break
        raise ValueError(f"the server does not answer: {status}, {text.strip()}")


@contextlib.asynccontextmanager
async def _serving(path: Path) -> AsyncIterator[_Server]:
    """Serves a model while the context lasts."""
    service = Service(path, Limits(slots=4, poll=0.02, threads=1), lambda line: None)
    try:
        service.begin()
        yield _Server(service)
    finally:
        service.give_up()
        service.join()


async def _copied(server: _Server, new: Path, folder: Path) -> None:
    """Copies a version as `cp` does; the server goes on answering.

    Raises:
        ValueError: the copy is not served at last.
    """
    folders = [new]
    for source in folders:  # not `rglob`: it passes over what it may not list
        (folder / source.relative_to(new)).mkdir(exist_ok=True)
        for path in sorted(source.iterdir()):
            if path.is_dir():
                folders.append(path)
                continue
            shutil.copyfile(path, folder / path.relative_to(new))
            await server.score()
    end = time.monotonic() + SECONDS
    while server.service.versions.current.folder.name != folder.name:
        if time.monotonic() > end:
            runtime.load(folder)  # raises what is wrong with it
            raise ValueError(f"{folder} is whole, and is not served")
        await asyncio.sleep(0.02)


async def _hostile(server: _Server, seed: int, count: int) -> None:
    """Asks what no client should, at once; each answer must be right."""
    model = server.service.versions.current.model
    cases = bodies.Cases(server.service.name, seed, WORDS)

    async def asked(number: int) -> None:
        path, body = cases.case(number)
        answer = await server.ask("POST", path, body)
        try:
            bodies.check(model, path, body, *answer)
        except Exception as error:
            raise AssertionError(f"request {number}: {path} {body!r}") from error

    await asyncio.gather(*map(asked, range(count)))


async def _work() -> None:
    path, new = Path(FLAGS.model), Path(FLAGS.new)
    async with _serving(path) as server:
        await server.score()
        if FLAGS.requests:
            await _hostile(server, *map(int, FLAGS.requests))
        await _copied(server, new, path / "2")
        scores = await server.score()
        status, health = await server.ask("GET", "/readyz")
    if status != 200:
        raise ValueError(f"the server is not ready: {health}")
    print(f"version 2 gives {scores}")


def main(argv: list[str]) -> int:
    """Serves; returns the exit status."""
    versions._PATIENCE = PATIENCE
    return command.exit_status(argv, lambda: asyncio.run(_work()))


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return command.parse(argv, lambda: command.require("model", "new"))


if __name__ == "__main__":
    command.start(main, parse_flags)
