"""What the server does for a request, without HTTP: rows are made, queued and awaited."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from keras_trellis.formats import manifest
from keras_trellis.serving.failures import Failures
from keras_trellis.serving.rows import Asked, Outcome, Row, continuations
from keras_trellis.serving.runtime import LanguageModel
from keras_trellis.serving.server.errors import ApiError, late
from keras_trellis.serving.server.guard import ClientGoneError, Listener
from keras_trellis.serving.server.metrics import Metrics
from keras_trellis.serving.server.schemas import CompletionRequest
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
    """

    served: Served
    prompts: list[Prompt]
    rows: list[Row]


MakeRows: TypeAlias = Callable[[LanguageModel, list[Prompt]], list[Row]]
"""From the model and the texts as it reads them to the rows of a request."""


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
            failures=self.failures.count,
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

    async def submit(
        self,
        name: str,
        texts: Sequence[Any],
        make: MakeRows,
    ) -> Work:
        """Queues the rows of a request.

        Args:
            name: the request's field that has the texts.
            texts: texts or their ids.
            make: returns the rows.

        Raises:
            ApiError: the request cannot be answered.
        """
        while True:
            served = self.versions.current
            prompts = await self.read(served.model, name, texts)
            rows = make(served.model, prompts)
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
            return Work(served, prompts, rows)

    async def read(
        self, model: LanguageModel, name: str, texts: Sequence[Any]
    ) -> list[Prompt]:
        """Returns texts as the model reads them.

        Raises:
            ApiError: it cannot read one, or they are too many or too long.
        """
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
        if longest > self.limits.prompt_tokens:
            message = (
                f"`{name}` must have at most {self.limits.prompt_tokens} tokens, see "
                f"--prompt-tokens of the server. Received: {longest}"
            )
            raise ApiError(400, message, param=name, code="context_length_exceeded")
        return prompts

    def completion_rows(
        self,
        model: LanguageModel,
        prompts: Sequence[Prompt],
        request: CompletionRequest,
        listener: Listener,
    ) -> list[Row]:
        """Returns the rows that answer `/v1/completions`, `n` for each prompt."""
        count = len(prompts) * request.n
        self._check_completion(request, prompts, count)
        first = secrets.randbits(63) if request.seed is None else request.seed
        seeds = [_int64(first + index) for index in range(request.n)] * len(prompts)
        settings = model.vocabulary.settings(
            count,
            max_length=max(request.max_tokens, 1),
            seed=seeds,
            temperature=request.temperature,
            top_k=min(request.top_k, model.vocabulary_size),
            top_p=request.top_p,
            stop=request.stop or [],
            forbidden_ids=() if request.allow_unknown else [-1],
            alternatives=request.logprobs or 0,
        )
        rows = []
        for index, one in enumerate(continuations(settings)):
            asked = Asked(
                prompts[index // request.n].ids,
                one if request.max_tokens else None,
                scored=request.echo and request.logprobs is not None,
                alternatives=int(one.alternatives[0]),
                deadline=listener.deadline,
            )
            rows.append(Row(asked, model.tokenizer, listener, request.stream))
        return rows

    def score_rows(
        self,
        model: LanguageModel,
        prompts: Sequence[Prompt],
        alternatives: int,
        listener: Listener,
    ) -> list[Row]:
        """Returns a row for each text, which scores its tokens."""
        self._check_listed(alternatives, sum(len(prompt.ids) for prompt in prompts))
        alternatives = min(alternatives, model.vocabulary_size)
        return [
            Row(
                Asked(
                    prompt.ids,
                    scored=True,
                    alternatives=alternatives,
                    deadline=listener.deadline,
                ),
                model.tokenizer,
                listener,
            )
            for prompt in prompts
        ]

    def next_rows(
        self,
        model: LanguageModel,
        prompts: Sequence[Prompt],
        count: int,
        listener: Listener,
    ) -> list[Row]:
        """Returns a row for each text, which has the most probable tokens after it."""
        count = min(count, model.vocabulary_size)
        return [
            Row(
                Asked(prompt.ids, after=count, deadline=listener.deadline),
                model.tokenizer,
                listener,
            )
            for prompt in prompts
        ]

    async def ended(self, work: Work, listener: Listener) -> None:
        """Waits for the end of all rows.

        Raises:
            ApiError: a row has no answer.
            ClientGoneError: nobody reads the answer.
        """
        try:
            while not all(row.outcome for row in work.rows):
                await listener.wait()
                if listener.gone:
                    raise ClientGoneError
        finally:
            cancel(work.rows)
        self.check(work.rows)

    def check(self, rows: Sequence[Row]) -> None:
        """Raises ApiError if a row has ended without an answer."""
        for row in rows:
            if row.outcome is Outcome.LATE:
                raise late(self.limits.deadline)
            if row.outcome is Outcome.FAILED:
                raise ApiError(500, "the model has failed in this step; ask again")
            if row.outcome is Outcome.CANCELLED:
                raise ApiError(503, "the server is being stopped; ask again later")

    def give_up(self) -> None:
        """Ends all rows that are open."""
        self.stopping = True
        self.versions.stop()

    def join(self) -> None:
        """Waits for the end of the workers, after `give_up`."""
        self.versions.join()
        self._threads.shutdown(wait=False)

    def _start(self, slots: Slots) -> Worker:
        observer = _Observer(self.metrics, self.failures)
        return Worker(slots, self.limits.queue, self._deliver, observer)

    def _deliver(self, rows: Sequence[Row]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_wake, rows)

    def _check_completion(
        self, request: CompletionRequest, prompts: Sequence[Prompt], count: int
    ) -> None:
        if request.max_tokens > self.limits.new_tokens:
            message = (
                f"`max_tokens` must be at most {self.limits.new_tokens}, see --new-tokens of the "
                f"server. Received: {request.max_tokens}"
            )
            raise ApiError(400, message, param="max_tokens")
        if count > self.limits.rows:
            message = (
                f"the prompts times `n` must be at most {self.limits.rows}, see --rows of the "
                f"server. Received: {count}"
            )
            raise ApiError(400, message, param="n")
        if request.best_of not in (None, request.n):
            message = (
                f"`best_of` must be `n`, or be left out. Received: {request.best_of}"
            )
            raise ApiError(400, message, param="best_of")
        tokens = request.max_tokens * count
        if request.echo:
            tokens += request.n * sum(len(prompt.ids) for prompt in prompts)
        self._check_listed(request.logprobs or 0, tokens)

    def _check_listed(self, alternatives: int, tokens: int) -> None:
        listed = alternatives * tokens
        if listed > self.limits.alternatives:
            message = (
                f"the tokens times alternatives of a request must be at most "
                f"{self.limits.alternatives}, see --alternatives of the server. Received: {listed}"
            )
            raise ApiError(400, message)


class _Observer:
    """Counts the work of a worker, and its failures."""

    def __init__(self, metrics: Metrics, failures: Failures) -> None:
        self.step = metrics.step
        self.ended = metrics.ended
        self._failures = failures

    def failed(self, error: Exception) -> None:
        self._failures.add("step", "a step has failed", error)


def cancel(rows: Sequence[Row]) -> None:
    """Lets rows end that have not."""
    for row in rows:
        row.cancelled = True


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


def _int64(number: int) -> int:
    """Returns a number in 64 bits, the least one after the greatest."""
    return (number + 2**63) % 2**64 - 2**63


def _number(name: str) -> float:
    """Returns the number of a version; NaN if its folder's name is none."""
    return float(name) if name.isascii() and name.isdecimal() else float("nan")
