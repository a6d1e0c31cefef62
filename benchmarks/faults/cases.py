"""What can go wrong, as cases; the name of a case is enough to repeat it.

A case is `KIND:PROGRAM:HOW:...`, such as `errors:train:EIO-once:write:run/metrics.csv:2`: the
second write to that file fails. A `*` stands for a time or a random number in a file's name.
"""

import collections
import dataclasses
import errno
import fnmatch
import random
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.faults import outcomes, programs, stores
from benchmarks.faults.processes import Disturbance, Runner
from benchmarks.faults.programs import PROGRAMS, Program, Templates
from benchmarks.faults.shim import Action, Fault

# The share of each kind among the cases.
KINDS = {
    "kills": 3,
    "stops": 2,
    "errors": 9,
    "damage": 4,
    "denied": 2,
    "memory": 2,
    "drawn": 3,
    "pairs": 1,
    "workers": 1,
    "stores": 1,
}
_PASSING = [*stores.FAULTS, "denied-lasting", "none"]
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
# What happens to a worker, with its share of the cases, and the signal that does it.
TO_WORKERS = {
    "killed": (4, signal.SIGKILL),
    "stopped": (2, signal.SIGTERM),
    "paused": (1, signal.SIGSTOP),
    "cut-off": (1, signal.SIGUSR1),
}
_FULL = ("ENOSPC", "EDQUOT")  # further errors of operations that take space
# How memory runs out: the bytes that are left, or -1, where an allocation of Python fails.
MEMORY = {"raised": -1, "left-0": 0, "left-4M": 4 << 20, "left-64M": 64 << 20}
FITS = 4096  # bytes of a file that a full disk still takes: a result, but no checkpoint
_READING = ("open", "read", "stat", "list")
# Operations that fail in a folder that is read-only, and in one that cannot even be read.
_FOREIGN = (
    "@(openwrite|unlink|rename|mkdir)",
    "@(open|openwrite|list|unlink|rename|mkdir)",
)
_UNIQUE = re.compile(r"(?<=events\.out\.tfevents\.).*|[0-9a-f]{20,}")


@dataclasses.dataclass(frozen=True)
class Operation:
    """A file operation of an undisturbed run.

    Attributes:
        name: as shim.c calls it.
        path: of the file, a pattern.
        at: its number among those on the file, from 1.
        takes_space: whether a full disk refuses it.
    """

    name: str
    path: str
    at: int
    takes_space: bool


@dataclasses.dataclass(frozen=True)
class Profile:
    """An undisturbed run of a program.

    Attributes:
        operations: its file operations, in order.
        calls: the calls of Python functions.
        expected: what it leaves.
        ending: what it prints last; see `ending`.
        files: the files that it begins with, and their sizes.
        seconds: of its processor time.
        requests: how many it sends to an object store.
    """

    operations: list[Operation]
    calls: int
    expected: outcomes.Values
    ending: list[str]
    files: dict[str, int]
    seconds: float
    requests: int = 0


def profile(
    program: Program, templates: Templates, runner: Runner, place: Path
) -> Profile:
    """Runs a program with nothing to disturb it.

    Raises:
        programs.PreparationError: it fails.
    """
    folder = templates.copy(program, place / "folder")
    program.begin(runner, folder)
    files = {}
    for name in outcomes.contents(folder):
        files[name] = (folder / name).stat().st_size
    before = outcomes.read(folder)
    strays = {name: before[name] for name in before if _is_stray(name)}
    log = place / "operations"
    if program.store:
        return _in_store(program, runner, folder, log)
    commands = program.commands(folder)
    ends = runner.together([(command, Disturbance(log=log)) for command in commands])
    ended = ends[0]
    if any(end.status for end in ends):
        raise programs.PreparationError(f"{program.name} fails undisturbed: {ends}")
    lines = log.read_text().splitlines()
    log.unlink()
    return Profile(
        list(operations(lines)),
        ended.calls,
        {**strays, **outcomes.read(folder)},
        ending(ended.output, folder),
        files,
        ended.seconds,
    )


def _in_store(program, runner, folder, log):
    with stores.serving(program.store) as store:
        command = program.command(folder)
        command = dataclasses.replace(command, environment=store.environment)
        ended = runner.run(command, Disturbance(log=log))  # counts the calls
        requests = len(store.requests)
        stores.fetch(store, folder)
    if ended.status:
        raise programs.PreparationError(f"{program.name} fails undisturbed: {ended}")
    expected, last = outcomes.read(folder), ending(ended.output, folder)
    return Profile([], ended.calls, expected, last, {}, ended.seconds, requests)


def ending(output: str, folder: Path) -> list[str]:
    """Returns the words of an output from the line of a run's scores on, else of its last line.

    The lines may name the folder, which is left out, and be aligned by the length of its name.
    """
    lines = output.replace(str(folder), "FOLDER").splitlines()
    scores = [index for index, line in enumerate(lines) if line.startswith("best of ")]
    return " ".join(lines[scores[-1] if scores else -1 :]).split()


def operations(lines: Iterable[str]) -> Iterator[Operation]:
    """Yields the operations that shim.c has logged, one in each line."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    for line in lines:
        name, path, flags = line.split("\t")
        path = _UNIQUE.sub("*", path)
        seen[name, path] += 1
        yield Operation(name, path, seen[name, path], flags == "1")


def programs_with(kinds: Sequence[str], among: Sequence[str] = ()) -> list[str]:
    """Returns the names of the programs that have cases of some kinds.

    Args:
        kinds: the kinds.
        among: the names to choose from; none: all.
    """
    wanted = {_program_kind(kind) for kind in kinds}
    chosen = [PROGRAMS[name] for name in among] or PROGRAMS.values()
    return [program.name for program in chosen if program.kind in wanted]


def _program_kind(kind):
    """Returns the `Program.kind` of the programs that have cases of a kind."""
    return kind if kind in ("workers", "stores", "drawn") else ""


def every(
    kind: str, program: Program, profile: Profile, generator: random.Random
) -> list[str]:
    """Returns the cases of a kind for a program; at most a thousand where they are endless."""
    if _program_kind(kind) != program.kind:
        return []
    make_cases = {
        "kills": _kills,
        "stops": _stops,
        "errors": _errors,
        "damage": _damage,
        "denied": _denied,
        "memory": _memory,
        "drawn": _drawn,
        "pairs": _pairs,
        "workers": _workers,
        "stores": _stores,
    }[kind]
    cases = (
        f"{kind}:{program.name}:{rest}"
        for rest in make_cases(program, profile, generator)
    )
    return list(dict.fromkeys(cases))  # what is drawn may be drawn twice


def _kills(program, profile, generator):
    for index in range(1000):
        yield f"{SIGNALS[index % len(SIGNALS)]}:{generator.randint(1, profile.calls)}"


def _drawn(program, profile, generator):
    for _ in range(1000):
        yield str(generator.randrange(10**9))


def _stops(program, profile, generator):
    for operation in profile.operations:
        if operation.name not in _READING:
            for moment in ("before", "after"):
                yield f"{moment}:{operation.name}:{operation.path}:{operation.at}"


def _errors(program, profile, generator):
    for operation in profile.operations:
        for number in ("EIO", *(_FULL if operation.takes_space else ())):
            for long in ("once", "lasting"):
                yield f"{number}-{long}:{operation.name}:{operation.path}:{operation.at}"
        if operation.name == "write":
            yield f"short-write:{operation.name}:{operation.path}:{operation.at}"
        if operation.name == "openwrite":
            yield f"ENOSPC-large:{operation.name}:{operation.path}:{operation.at}"


def _damage(program, profile, generator):
    for name, size in profile.files.items():
        if size and not _is_stray(name):
            yield from (
                f"flip:{name}:{generator.randrange(8 * size)}" for _ in range(40)
            )
            yield from (f"cut:{name}:{generator.randrange(size)}" for _ in range(5))
            yield f"cut:{name}:0"
            yield f"gone:{name}:0"
    checkpoints = f"{programs.RUN}/checkpoints/step-????????.npz"
    if fnmatch.filter(profile.files, checkpoints):
        yield from (f"cut:{checkpoints}:{at}" for at in (0, 100, 1000))


def _denied(program, profile, generator):
    paths = {operation.path: None for operation in profile.operations}
    for path in paths:
        for operation in ("open", "openwrite", "unlink", "rename", "mkdir", "list"):
            if any(
                done.path == path and done.name == operation
                for done in profile.operations
            ):
                yield f"EACCES:{operation}:{path}:0"
    for folder in sorted({str(Path(path).parent) for path in paths} - {"."}):
        yield from (f"EACCES:{operations}:{folder}/*:0" for operations in _FOREIGN)


def _memory(program, profile, generator):
    for index in range(1000):
        how = list(MEMORY)[index % len(MEMORY)]
        yield f"{how}:{generator.randint(1, profile.calls)}"


def _pairs(program, profile, generator):
    for _ in range(100):
        delay = generator.uniform(0, profile.seconds)
        yield f"both:{delay:.3f}:0"
        yield f"killed:{delay:.3f}:{generator.randint(1, profile.calls)}"


def _workers(program, profile, generator):
    for _ in range(1000):
        shares = [share for share, _ in TO_WORKERS.values()]
        (how,) = generator.choices(list(TO_WORKERS), shares)
        index = generator.randrange(program.workers)
        yield f"{how}:{index}:{generator.randint(1, profile.calls)}"


def _stores(program, profile, generator):
    for _ in range(1000):
        how = generator.choice(_PASSING)
        killed = how == "none" or generator.random() < 0.5
        call = generator.randint(1, profile.calls) if killed else 0
        yield f"{how}:{generator.randint(1, profile.requests)}:{call}"


def _is_stray(name):
    base = Path(name).name
    data = name.startswith(f"{programs.DATA}/")
    return data or base in (*programs.STRAYS, *programs.STRAY_CHECKPOINTS)


def drawn(
    names: Sequence[str],
    profiles: Mapping[str, Profile],
    kinds: Sequence[str],
    seed: int,
    count: int | None = None,
) -> Iterator[str]:
    """Yields the cases of a seed, none of them twice.

    First come cases of each kind and of each program, so that a short run leaves none out; the
    others follow the shares of kinds and programs.

    Args:
        names: those of the programs.
        profiles: of the programs; one is asked for when a case of its program is drawn.
        kinds: the kinds of cases.
        seed: the seed.
        count: how many; None: all.
    """
    generator = random.Random(seed)
    left: dict[tuple[str, str], list[str] | None] = {
        (kind, name): None
        for kind in kinds
        for name in names
        if _program_kind(kind) == PROGRAMS[name].kind
    }
    untried = {member for pair in left for member in pair}
    given = 0
    while left and (count is None or given < count):
        new = {pair: len(untried & {*pair}) for pair in left}
        among = [pair for pair in left if new[pair] == max(new.values())]
        weights = [KINDS[kind] * PROGRAMS[name].share for kind, name in among]
        ((kind, name),) = generator.choices(among, weights)
        cases = left[kind, name]
        if cases is None:
            cases = every(kind, PROGRAMS[name], profiles[name], generator)
            generator.shuffle(cases)
            left[kind, name] = cases
        if not cases:
            del left[kind, name]
            continue
        yield cases.pop()
        given += 1
        untried -= {kind, name}


def disturbance(how: str, rest: list[str]) -> Disturbance:
    """Returns what goes wrong in a case, from the end of its name.

    Args:
        how: the third part of the name.
        rest: the parts after it.
    """
    if how in SIGNALS:
        return Disturbance(call=int(rest[0]), signal=signal.Signals[how])
    if how in MEMORY:
        return Disturbance(call=int(rest[0]), signal=signal.SIGUSR2, memory=MEMORY[how])
    operation, path, at = rest
    where = dict(operation=operation, path=path, at=int(at))
    if how in ("before", "after"):
        return Disturbance(Fault(Action[how.upper()], signal.SIGKILL, **where))
    number, _, long = how.partition("-")
    actions = {
        "once": Action.ONCE,
        "lasting": Action.LASTING,
        "large": Action.FITS,
        "write": Action.SHORT,
        "": Action.MATCHING,
    }
    value = getattr(errno, number, 0)
    return Disturbance(Fault(actions[long], value, **where, fits=FITS))
