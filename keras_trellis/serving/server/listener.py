"""Whom news of a request's rows concern."""

from __future__ import annotations

import asyncio
import time

from keras_trellis.serving.server.errors import late

_LEEWAY = 2.0  # seconds for a step to end that began before a deadline


class ClientGoneError(Exception):
    """Nobody reads the answer."""


class Listener:
    """Waits for news of a request's rows.

    Args:
        seconds: for the answer, from now.

    Attributes:
        gone: whether the client has left.
        seconds: for the answer, from the beginning.
        deadline: until when the answer is wanted, by `time.monotonic`.
    """

    def __init__(self, seconds: float) -> None:
        self.gone = False
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Tells that there is news."""
        self._news.set()

    async def wait(self) -> None:
        """Waits for news.

        Raises:
            ClientGoneError: nobody reads the answer.
            ApiError: there is none, not even that a row is late: its step does not end.
        """
        left = self.deadline + _LEEWAY - time.monotonic()
        try:
            await asyncio.wait_for(self._news.wait(), max(left, 0))
        except asyncio.TimeoutError:
            raise late(self.seconds) from None
        self._news.clear()
        if self.gone:
            raise ClientGoneError
