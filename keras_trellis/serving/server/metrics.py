"""What Prometheus reads of a server."""

from __future__ import annotations

import functools
from collections.abc import Callable

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from keras_trellis.serving.failures import Failures
from keras_trellis.serving.rows import Row

_NAMESPACE = "keras_trellis"  # begins each name
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60)
_STEP_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
_ROWS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts what a server does; the observer of its workers too.

    Args:
        waiting: returns how many rows wait for a slot.
        busy: returns how many rows have one.
        version: returns the number of the version served.
        failures: what has failed, and went on.
    """

    def __init__(
        self,
        waiting: Callable[[], float],
        busy: Callable[[], float],
        version: Callable[[], float],
        failures: Failures,
    ) -> None:
        self._failures = failures
        self._registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        counter = functools.partial(Counter, namespace=_NAMESPACE, registry=registry)
        gauge = functools.partial(Gauge, namespace=_NAMESPACE, registry=registry)
        histogram = functools.partial(
            Histogram, namespace=_NAMESPACE, registry=registry
        )
        self._requests = counter("requests", "Requests answered.", ["path", "status"])
        self._seconds = histogram(
            "request_seconds",
            "From a request's arrival to the end of its answer.",
            ["path"],
            buckets=_SECONDS,
        )
        self._tokens = counter("tokens", "Tokens read and written.", ["kind"])
        self._ended = counter("rows", "Rows that have ended.", ["outcome"])
        self._step_seconds = histogram(
            "step_seconds",
            "A step of all rows, with the chunk before it.",
            buckets=_STEP_SECONDS,
        )
        self._step_rows = histogram("step_rows", "Rows of a step.", buckets=_ROWS)
        for name, meaning, function in (
            ("rows_waiting", "Rows that wait for a slot.", waiting),
            ("slots_busy", "Rows that have a slot.", busy),
            ("version", "The number of the version served.", version),
        ):
            gauge(name, meaning).set_function(function)
        for kind, meaning in (
            ("version", "Versions that could not be loaded."),
            ("poll", "Looks for new versions that have failed."),
            ("step", "Steps that have failed."),
        ):
            count = functools.partial(failures.count, kind)
            gauge(f"{kind}_failures", meaning).set_function(count)

    def step(self, seconds: float, rows: int, read: int, written: int) -> None:
        """A step has been made; see `worker.Observer`."""
        self._tokens.labels("read").inc(read)
        self._tokens.labels("written").inc(written)
        self._step_seconds.observe(seconds)
        self._step_rows.observe(rows)

    def ended(self, row: Row) -> None:
        """A row has ended."""
        if row.outcome is not None:
            self._ended.labels(row.outcome.value).inc()

    def failed(self, error: Exception) -> None:
        """A step has failed."""
        self._failures.add("step", "a step has failed", error)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Returns all of it in Prometheus's form."""
        return prometheus_client.generate_latest(self._registry)
