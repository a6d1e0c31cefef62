"""The process that imports everything, and its forks, which try cases."""

import contextlib
import functools
import gc
import importlib
import io
import itertools
import multiprocessing
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from pathlib import Path

import tensorflow as tf
from absl import flags
from etils import epath

from benchmarks.faults import cases, processes, quick, trial
from benchmarks.faults.cases import Profile
from benchmarks.faults.processes import Runner
from benchmarks.faults.programs import PROGRAMS, Templates
from benchmarks.faults.trial import Finding
from trainers.cli import config_flags

# The commands import these; their processes then need not.
from trainers.sequences.experiment import SequenceExperiment
from trainers.tasks import config as configs
from trainers.training import runs, workers

_SILENCE = 4.0  # in place of half a minute, so that a paused worker is missed sooner


def findings(
    given: Sequence[str],
    *,
    kinds: Sequence[str],
    only: Sequence[str],
    seed: int,
    deadline: float,
    most: int | None,
    lanes: int,
    folder: Path,
) -> Iterator[Finding]:
    """Tries cases in processes of their own; yields the finding of each.

    Args:
        given: the cases; if empty, the seed draws them.
        kinds: the kinds of drawn cases.
        only: the programs of drawn cases; if empty, all that have some.
        seed: the seed of the draw.
        deadline: the value of `time.monotonic` after which no case begins.
        most: the most cases; None: as many as there is time for.
        lanes: how many cases run at once.
        folder: for their files.
    """
    needed = [case.split(":")[1] for case in given] or cases.programs_with(kinds, only)
    _prepare(needed)
    runners = [processes.Runner() for _ in range(lanes)]  # before TensorFlow computes
    _warm_up(folder)
    templates = Templates(folder / "templates")
    profiles = _Profiles(templates, runners[0], folder / "profile")

    def chosen():
        if given:
            return iter(given)
        return cases.drawn(needed, profiles, kinds, seed, most)

    if most and not given:
        list(chosen())  # which makes the profiles that are needed
    else:
        for name in needed:
            profiles[name]
    gc.collect()
    gc.freeze()  # so that children share what they only read

    trying = functools.partial(trial.tried, profiles=profiles, templates=templates)
    receivers = []
    for lane, runner in enumerate(runners):
        place = folder / f"lane{lane}"
        alone = functools.partial(trying, runner=runner, place=place)
        mine = itertools.islice(chosen(), lane, None, lanes)
        receivers.append(_begin(mine, alone, deadline))
    yield from _received(receivers)


def _prepare(names: Sequence[str]) -> None:
    """Makes this process one whose forks run programs: they need not import anything."""
    processes.limit_core_files()
    workers.SILENCE = _SILENCE
    quick.install()
    for name in names:
        for module in PROGRAMS[name].imports:
            importlib.import_module(module)


class _Profiles(dict):
    """The profiles of programs, each made when it is first asked for."""

    def __init__(self, templates: Templates, runner: Runner, place: Path) -> None:
        super().__init__()
        self._templates, self._runner, self._place = templates, runner, place

    def __missing__(self, name: str) -> Profile:
        program = PROGRAMS[name]
        self._templates.make(program, self._runner)
        made = cases.profile(program, self._templates, self._runner, self._place)
        self[name] = made
        return made


def _begin(mine, trying, deadline):
    """Begins a process that tries cases; returns the end of its pipe."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    context.Process(target=_lane, args=(mine, trying, deadline, sender)).start()
    sender.close()
    return receiver


def _received(receivers):
    while receivers:
        for receiver in connection.wait(receivers):
            try:
                yield receiver.recv()
            except EOFError:
                receivers.remove(receiver)


def _lane(mine, trying, deadline, sender):
    """Tries one case after another."""
    for case in mine:
        if time.monotonic() > deadline:
            break
        try:
            finding = trying(case)
        except Exception:  # try the other cases all the same
            finding = Finding(
                case, wrong=[f"the benchmark failed: {traceback.format_exc()}"]
            )
        sender.send(finding)
    sender.close()


def _warm_up(folder):
    """Trains once in this process, so that children have what TensorFlow and Python prepare.

    Functions run op by op, because tracing them would take longer than all steps of these runs.
    With one thread TensorFlow computes in the calling thread, the only one that a child has.
    """
    warnings.filterwarnings(
        "ignore", "Even though the `tf.config.experimental_run_functions"
    )
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.run_functions_eagerly(True)
    values = flags.FlagValues()
    for name in ("task", "preset"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    config_flags.parse(["", *quick.flags()], values)
    with (
        tempfile.TemporaryDirectory(dir=folder) as run,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        load = functools.partial(
            SequenceExperiment, values.config, None, epath.Path(run)
        )
        runs.train(load, values.config, epath.Path(run), "none", rules=configs)
