"""What the server does for a request, without HTTP: rows are made, queued and awaited."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats import manifest
from keras_trellis.serving.failures import Failures
from keras_trellis.serving.rows import Outcome, Row
from keras_trellis.serving.runtime import LanguageModel
from keras_trellis.serving.server.errors import ApiError, check_limit, late
from keras_trellis.serving.server.listener import Listener
from keras_trellis.serving.server.metrics import Metrics
from keras_trellis.serving.server.schemas import TextRequest
from keras_trellis.serving.server.settings import Limits
from keras_trellis.serving.slots import Slots
from keras_trellis.serving.versions import Served, Versions
from keras_trellis.serving.worker import ClosedError, FullError, Worker

_RETRY = {"Retry-After": "1"}  # seconds
_AT_ONCE = 4096  # characters that are cut into tokens while other requests wait
_THREADS = 4  # for what would keep other requests waiting


class Prompt(NamedTuple):
    """A text as the model reads it.

    Attributes:
        text: the text.
        ids: int32 `[T]`, the line break before it first.
        words: the text of each id after the line break, as the text has it.
        unknown: how many of them the vocabulary does not have.
    """

    text: str
    ids: np.ndarray
    words: list[str]
    unknown: int


class Work(NamedTuple):
    """The rows of a request.

    Attributes:
        served: the version that advances them.
        prompts: the texts.
        rows: the rows, as many for each text.
        listener: whom news of them concern.
    """

    served: Served
    prompts: list[Prompt]
    rows: list[Row]
    listener: Listener

    async def news(self) -> None:
        """Waits for news of a row.

        Raises:
            ApiError: a row has no answer.
            ClientGoneError: nobody reads the answer.
        """
        await self.listener.wait()
        self._check()

    async def ended(self) -> None:
        """Waits for the end of all rows; raises what `news` does."""
        try:
            while not all(row.outcome for row in self.rows):
                await self.news()
        finally:
            self.cancel()
        self._check()

    def cancel(self) -> None:
        """Lets rows end that have not."""
        for row in self.rows:
            row.cancelled = True

    def _check(self) -> None:
        for row in self.rows:
            if row.outcome is Outcome.LATE:
                raise late(self.listener.seconds)
            if row.outcome is Outcome.FAILED:
                raise ApiError(500, "the model has failed in this step; ask again")
            if row.outcome is Outcome.CANCELLED:
                raise ApiError(503, "the server is being stopped; ask again later")


class Service:
    """A model that is served.

    Args:
        path: the folder of a model, or of one of its versions.
        limits: what it takes on.
        report: takes a sentence on each version that is loaded, and on what fails.

    Attributes:
        name: the model's.
        limits: what it takes on.
        failures: what has failed, and went on.
        metrics: what it has done.
        versions: the version served.
        stopping: whether it is about to end.

    Raises:
        ManifestError: there is no version that can be served.
    """

    def __init__(
        self, path: Path, limits: Limits, report: Callable[[str], None]
    ) -> None:
        self.limits = limits
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(_THREADS, "requests")
        self.failures = Failures(report)
        self.metrics = Metrics(
            waiting=lambda: self.versions.current.worker.waiting,
            busy=lambda: self.versions.current.worker.busy,
            version=lambda: _number(self.versions.current.number),
            failures=self.failures,
        )
        path = path.resolve()
        self.versions = Versions(
            path, self._start, limits.slots, limits.threads, report, self.failures
        )
        is_version = (path / manifest.NAME).is_file()
        self.name = path.parent.name if is_version else path.name

    def begin(self) -> None:
        """Looks for new versions, and lets rows tell the event loop that runs now of their news."""
        self._loop = asyncio.get_running_loop()
        # All of them now: a request that begins a thread hangs where there is no memory for it
        # (https://github.com/python/cpython/issues/140746).
        together = threading.Barrier(_THREADS)
        for _ in range(_THREADS):
            self._threads.submit(together.wait)
        self.versions.begin(self.limits.poll)

    async def aside(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns what a function returns, while other requests go on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    def problem(self) -> str | None:
        """Returns why it does not do all that it should; None if it does."""
        return self.versions.current.worker.problem() or self.versions.problem()

    async def submit(self, request: TextRequest, listener: Listener) -> Work:
        """Queues the rows of a request.

        Raises:
            ApiError: the request cannot be answered.
        """
        while True:
            served = self.versions.current
            prompts = await self.read(served.model, request)
            ids = [prompt.ids for prompt in prompts]
            rows = request.rows(served.model, self.limits, ids)
            for row in rows:
                row.listener, row.deadline = listener, listener.deadline
            try:
                served.worker.submit(rows)
            except FullError as error:
                message = f"the server is busy: {error}; ask again later"
                raise ApiError(429, message, headers=_RETRY) from None
            except ClosedError as error:
                if self.stopping or served is self.versions.current:
                    message = f"the server does not answer: {error}"
                    raise ApiError(503, message) from None
                continue  # another version has taken its place
            return Work(served, prompts, rows, listener)

    async def answered(self, request: TextRequest, listener: Listener) -> Work:
        """Returns the rows of a request, all of which have ended; raises what they do."""
        work = await self.submit(request, listener)
        await work.ended()
        return work

    async def read(self, model: LanguageModel, request: TextRequest) -> list[Prompt]:
        """Returns the texts of a request as the model reads them.

        Raises:
            ApiError: it cannot read one, or they are too many or too long.
        """
        name, texts = request.listed()
        if not 1 <= len(texts) <= self.limits.rows:
            message = (
                f"`{name}` must have from 1 to {self.limits.rows} texts, see --rows of the server. "
                f"Received: {len(texts)}"
            )
            raise ApiError(400, message, param=name)
        if sum(map(len, texts)) <= _AT_ONCE:
            prompts = _read(model, name, texts)
        else:
            prompts = await self.aside(_read, model, name, texts)
        longest = max(len(prompt.ids) - 1 for prompt in prompts)
        must = f"`{name}` must have at most {{}} tokens"
        code = "context_length_exceeded"
        check_limit(self.limits, "prompt_tokens", longest, must, param=name, code=code)
        return prompts

    def give_up(self) -> None:
        """Ends all rows that are open."""
        self.stopping = True
        self.versions.stop()

    def join(self) -> None:
        """Waits for the end of the workers, after `give_up`."""
        self.versions.join()
        self._threads.shutdown(wait=False)

    def _start(self, slots: Slots) -> Worker:
        return Worker(slots, self.limits.queue, self._deliver, self.metrics)

    def _deliver(self, rows: Sequence[Row]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_wake, rows)


def _read(model: LanguageModel, name: str, texts: Sequence[Any]) -> list[Prompt]:
    try:
        return [_prompt(model, name, text) for text in texts]
    except ValueError as error:
        message = str(error).replace("`texts`", f"`{name}`")
        raise ApiError(400, message, param=name) from None


def _prompt(model: LanguageModel, name: str, text: Any) -> Prompt:
    tokenizer = model.tokenizer
    if isinstance(text, str):
        encoded = tokenizer.encode([text])
        ids, words = encoded.ids[0], encoded.words[0]
        unknown = int(encoded.unknown[0])
    else:
        ids = model.vocabulary.tokens(name, text)
        words = [tokenizer.tokens[index] for index in ids]
        unknown, text = 0, tokenizer.decode(tokenizer.eos_id, ids.tolist())
    begun = np.concatenate([np.array([tokenizer.eos_id], np.int32), ids])
    return Prompt(text, begun, words, unknown)


def _wake(rows: Sequence[Row]) -> None:
    for listener in {row.listener for row in rows}:
        listener.wake()


def _number(name: str) -> float:
    """Returns the number of a version; NaN if its folder's name is none."""
    return float(name) if name.isascii() and name.isdecimal() else float("nan")
