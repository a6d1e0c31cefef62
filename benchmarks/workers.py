"""Contenders that take turns, each in a process of its own.

Each contender has its own memory and its own threads. They take turns, A B C A B C ..., so that
other work on the machine disturbs all of them alike. Ratios taken round by round hold even where
times do not, and those of processor times hold best.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import resource
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from trainers.training import resources

# Why contenders are left out.
DIED = "its process died"
FAILED = "it failed"

# Numbers by name, of a contender or of a row; they pickle.
Facts = dict[str, Any]


class Contender(NamedTuple):
    """What a process runs.

    Attributes:
        step: runs one step and returns when it is done.
        facts: what is known of the contender; a step may add to it. It must pickle.
        learn: returns further facts after the last step.
        prepare: runs before each step, and is no part of it.
    """

    step: Callable[[], Any]
    facts: Facts
    learn: Callable[[], Facts] = dict
    prepare: Callable[[], Any] | None = None


class Reading(NamedTuple):
    """One step.

    Attributes:
        seconds: from its beginning to its end.
        processor_seconds: of all threads of the process, and of the processes that it started and
            waited for. What else runs on the machine hardly disturbs them.
        bytes: the most memory that it held above the process at rest: after building and tracing,
            before the first step, or after `Contender.prepare`. None on systems without Linux's
            /proc.
    """

    seconds: float
    processor_seconds: float
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
        the results, and the reason for each contender that cannot run.
    """
    with Processes(threads) as processes:
        return processes.measure(builds, setting, warmup=warmup, rounds=rounds)


class Processes:
    """A process for each contender, which stays for the next setting.

    One that fails is left out, and the next setting has another process.

    Args:
        threads: as for `measure`.
    """

    def __init__(self, threads: int) -> None:
        self.results: Results = {}
        self.left_out: dict[str, str] = {}
        self._threads = threads
        self._pools: dict[str, ProcessPoolExecutor] = {}

    def __enter__(self) -> Processes:
        """Returns the processes, which start as they are needed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes."""
        for pool in self._pools.values():
            pool.shutdown()

    def measure(
        self, builds: Mapping[str, Build], setting: Any, *, warmup: int, rounds: int
    ) -> tuple[Results, dict[str, str]]:
        """Runs contenders in turn; see the function of this name."""
        self.results = {}
        self.left_out = {}
        self.build(builds, setting)
        for count in range(warmup + rounds):
            line = f"\rround {count + 1} of {warmup + rounds}"
            print(line, end="", file=sys.stderr, flush=True)
            for result, reading in self.ask(_step):
                result.readings.append(reading)
        print(file=sys.stderr)
        for result, facts in self.ask(_learn):
            result.facts.update(facts or {})
            del result.readings[:warmup]
        return self.results, self.left_out

    def build(self, builds: Mapping[str, Build], setting: Any) -> None:
        """Builds one contender after the other: they share cores and memory."""
        for name, build in builds.items():
            facts = self._call(name, _build, build, setting)
            if facts is not None:
                self.results[name] = Result(facts, [])

    def ask(self, function: Callable[[], Any]) -> Iterator[tuple[Result, Any]]:
        """Calls a function in one process after the other; yields results and answers."""
        for name, result in list(self.results.items()):
            yield result, self._call(name, function)

    def _pool(self, name: str) -> ProcessPoolExecutor:
        if name not in self._pools:
            spawn = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(1, spawn, _limit_threads, (self._threads,))
            self._pools[name] = pool
        return self._pools[name]

    def _call(self, name: str, *call: Any) -> Any:
        """Calls a function in a process; returns None if its contender is left out."""
        try:
            return self._pool(name).submit(_guarded, *call).result()
        except BrokenProcessPool:
            self.left_out[name] = DIED
        except LeftOutError as reason:
            self.left_out[name] = str(reason)
        self._pools.pop(name).shutdown()  # one that failed may not be sound
        self.results.pop(name, None)
        return None


# In a contender's process


def _guarded(call, *arguments):
    """Calls a function; what goes wrong leaves the contender out."""
    try:
        return call(*arguments)
    except LeftOutError:
        raise
    except ModuleNotFoundError as error:
        raise LeftOutError(f"not installed: {error}") from None
    except Exception as error:
        reason = f"{FAILED}: {type(error).__name__}: {error}"
        raise LeftOutError(textwrap.shorten(reason, 300)) from None


def _build(build, setting):
    global _contender
    _contender = None  # that of the setting before, whose memory the next one needs
    _contender = build(setting)
    _come_to_rest(trim=True)
    return _contender.facts


def _come_to_rest(trim=False):
    global _rest
    gc.collect()
    if trim:
        # Otherwise what building has freed counts as held, and other contenders lack it.
        with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
            ctypes.CDLL(None).malloc_trim(0)
    _rest = resources.resident("VmRSS")


def _step():
    if _contender.prepare is not None:
        _contender.prepare()
        _come_to_rest()
    _forget_peak()
    start, processor_start = time.perf_counter(), _processor_time()
    _contender.step()
    processor_seconds = _processor_time() - processor_start
    seconds = time.perf_counter() - start
    peak = resources.resident("VmHWM")
    known = peak is not None and _rest is not None
    held = max(peak - _rest, 0) if known else None
    return Reading(seconds, processor_seconds, held)


def _processor_time():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _learn():
    return _contender.facts | _contender.learn()


def _limit_threads(threads):
    """Limits the cores and threads of this process, before it imports anything else."""
    if hasattr(os, "sched_setaffinity"):  # some thread pools obey only this
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    os.environ.update(dict.fromkeys(names, str(threads)))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def _forget_peak():
    """Resets the peak of the process to its present memory (proc(5), clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then the peak includes tracing and compiling
