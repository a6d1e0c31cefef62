"""Contenders that take turns, each in a process of its own.

In a process of its own each contender has its own memory and thread pool. They take turns, A B C A
B C ..., so that other work on the machine disturbs all of them alike: ratios taken round by round
hold even where times do not.
"""

import contextlib
import gc
import multiprocessing
import os
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainers.training import costs

# Numbers by name, of a contender or of a row; they pickle.
Facts = dict[str, Any]


class Contender(NamedTuple):
    """What a worker runs.

    Attributes:
        step: runs one step and returns when it is done.
        facts: what is known before the first step; it must pickle.
        learn: returns further facts after the last step.
        memory: whether to measure the memory of a step above the process at rest. That has no
            meaning if steps have run before.
    """

    step: Callable[[], Any]
    facts: Facts
    learn: Callable[[], Facts] = dict
    memory: bool = True


class Reading(NamedTuple):
    """One step: its time, and the most memory that it held above the process at rest.

    A process is at rest after building and tracing, before the first step. The memory is None on
    systems without Linux's /proc.
    """

    seconds: float
    bytes: int | None


class Result(NamedTuple):
    """A contender's facts, and its readings by round."""

    facts: Facts
    readings: list[Reading]


Results = dict[str, Result]


class LeftOutError(Exception):
    """A contender cannot run here; the message says why."""


# A function of a setting; it imports what it needs only when it is called.
Build = Callable[[Any], Contender]


def measure(
    builds: Mapping[str, Build],
    setting: Any,
    *,
    threads: int,
    warmup: int,
    rounds: int,
) -> tuple[Results, dict[str, str]]:
    """Runs contenders in turn.

    Args:
        builds: for each name a function of `setting`, found by name in an importable module.
        setting: what the contenders are built for; it must pickle.
        threads: how many cores, and how many threads a pool, each contender gets.
        warmup: how many rounds do not count, before the others.
        rounds: how many rounds count.

    Returns:
        The results, and the reason for each contender that cannot run.
    """
    workers = {name: _Worker(build, setting, threads) for name, build in builds.items()}
    results: Results = {}
    left_out: dict[str, str] = {}

    @contextlib.contextmanager
    def leaving_out(name):
        try:
            yield
        except LeftOutError as reason:
            left_out[name] = str(reason)
            results.pop(name, None)
            workers.pop(name).stop()

    for name in builds:
        with leaving_out(name):
            results[name] = Result(workers[name].receive(), [])
    for count in range(warmup + rounds):
        print(f"\rround {count + 1} of {warmup + rounds}", end="", file=sys.stderr, flush=True)
        for name in list(workers):
            with leaving_out(name):
                results[name].readings.append(workers[name].receive("step"))
    print(file=sys.stderr)
    for name in list(workers):
        with leaving_out(name):
            results[name].facts.update(workers[name].receive("learn"))
            workers[name].stop()
    for result in results.values():
        del result.readings[:warmup]
    return results, left_out


def once(name: str, build: Build, setting: Any, threads: int) -> Result:
    """Runs a contender's one step in a process of its own, and returns its result.

    Args:
        name: what an error calls it.
        build: makes the contender of the setting.
        setting: see `measure`.
        threads: see `measure`.

    Raises:
        RuntimeError: it failed.
    """
    builds = {name: build}
    results, left_out = measure(builds, setting, threads=threads, warmup=0, rounds=1)
    if left_out:
        raise RuntimeError(f"{name}: {left_out[name]}")
    return results[name]


class _Worker:
    """A contender's process."""

    def __init__(self, build: Build, setting: Any, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, build, setting, threads), daemon=True
        )
        self._process.start()
        theirs.close()

    def receive(self, word: str | None = None) -> Any:
        """Sends a word and returns the answer; without a word, returns the facts."""
        try:
            if word is not None:
                self._connection.send(word)
            reply = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            raise LeftOutError(f"its process ended with exit code {code}") from None
        if isinstance(reply, LeftOutError):
            raise reply
        return reply

    def stop(self) -> None:
        self._connection.close()  # ends the loop of `_serve`
        self._process.join()


def _serve(connection, build, setting, threads):
    """Builds a contender, sends its facts, and answers the words "step" and "learn"."""
    limit_threads(threads)
    try:
        contender = build(setting)
        gc.collect()
        rest = costs.resident("VmRSS") if contender.memory else None
        connection.send(contender.facts)
        replies = {"step": lambda: _read(contender.step, rest), "learn": contender.learn}
        while True:
            connection.send(replies[connection.recv()]())
    except EOFError:
        pass
    except LeftOutError as reason:
        connection.send(reason)
    except ModuleNotFoundError as error:
        connection.send(LeftOutError(f"not installed: {error}"))
    except Exception as error:  # the others go on
        reason = f"it failed: {type(error).__name__}: {error}"
        connection.send(LeftOutError(textwrap.shorten(reason, 300)))


def _read(step, rest):
    forget_peak()
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    peak = costs.resident("VmHWM")
    if peak is None or rest is None:
        return Reading(seconds, None)
    return Reading(seconds, max(peak - rest, 0))


def limit_threads(threads: int) -> None:
    """Limits the cores and threads of this process; call it before any import."""
    if hasattr(os, "sched_setaffinity"):  # some thread pools obey only this
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    os.environ.update(dict.fromkeys(names, str(threads)))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def available_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def forget_peak() -> None:
    """Resets the peak of the process to its present memory (proc(5), clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then the peak includes tracing and compiling
