"""Replaces a worker of pytest-xdist once it has grown, and fails a run in which one grew too far.

TensorFlow keeps what it has compiled for as long as its process lives. So a worker that holds much
memory ends after its test, and pytest-xdist starts another for the tests that are left, as it does
where a worker has crashed. This plugin keeps that end from being counted as a crash. Its summary
names each worker's memory, and the files that took longest.
"""

import collections
import os
from pathlib import Path

import pytest

GIB = 2**30
_PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
# A new worker takes ten seconds to its first test. Three have half of the machine's memory.
REPLACED_FROM = min(4 * GIB, max(2 * GIB, _PHYSICAL // 6))
MOST = REPLACED_FROM + GIB
# More than any run takes; pytest-xdist ends a run at four a worker by default.
REPLACEMENTS = 1000
SLOWEST = 20  # files that the summary names
# The outcome of the test that a replaced worker was about to begin; another worker runs it.
RESCHEDULED = "rescheduled"


def memory(field: str) -> int:
    """Returns this process's `VmRSS` or `VmHWM` (the peak), bytes; 0 on systems without /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = status.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


class Worker:
    """Hooks of a worker: it ends between two tests, with its fixtures torn down."""

    def __init__(self) -> None:
        self._leaving = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if self._leaving and nextitem is not None:
            os._exit(0)
        if nextitem is None or memory("VmRSS") < REPLACED_FROM:
            return None
        self._leaving = True
        # Without a next item pytest tears down the fixtures of modules and of the session, too.
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        if (
            report.when == "teardown"
        ):  # a test may have replaced what reads files until here
            report.worker_peak = memory("VmHWM")
            report.worker_leaves = self._leaving
        return report


class Controller:
    """Hooks of the process that starts the workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._leaving: set[str] = set()
        self._peaks: dict[str, int] = {}
        self._seconds: collections.Counter[str] = collections.Counter()
        self._too_large: dict[
            str, str
        ] = {}  # a worker's test after which it held too much

    def pytest_runtest_logreport(self, report):
        self._seconds[report.location[0]] += report.duration
        if not hasattr(report, "worker_peak"):
            return
        worker = report.node.gateway.id
        self._peaks[worker] = report.worker_peak
        if report.worker_peak > MOST:
            self._too_large.setdefault(worker, report.nodeid)
        if report.worker_leaves:
            self._leaving.add(worker)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node):
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if node.gateway.id in self._leaving and terminal:
            peak = self._peaks[node.gateway.id] / GIB
            terminal.write(f"\n{node.gateway.id} held {peak:.1f} GiB and is replaced: ")

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem, report, sched):
        if report.node.gateway.id in self._leaving:
            report.outcome = RESCHEDULED
            sched.mark_test_pending(crashitem)

    def pytest_report_teststatus(self, report):
        return ("", "", "") if report.outcome == RESCHEDULED else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self._too_large and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if not self._peaks:
            return
        peaks = [f"{name} {peak / GIB:.1f}" for name, peak in self._peaks.items()]
        terminalreporter.write_line(
            f"Peak memory of the workers, GiB: {', '.join(peaks)}"
        )
        terminalreporter.write_line(
            f"Seconds of the slowest of {len(self._seconds)} files, "
            f"which took {self._seconds.total():.0f} together:"
        )
        for path, seconds in self._seconds.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:6.0f} {path}")
        for worker, test in self._too_large.items():
            terminalreporter.write_line(
                f"FAILED: {worker} held more than {MOST / GIB:g} GiB at the end of {test}",
                red=True,
            )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    if not is_worker and hasattr(config.option, "maxworkerrestart"):
        config.option.maxworkerrestart = config.option.maxworkerrestart or str(
            REPLACEMENTS
        )
    hooks = Worker() if is_worker else Controller(config)
    config.pluginmanager.register(hooks, "workers' memory")
