r"""Changes the sources a little, one place at a time, and asks the tests whether they notice.

    python -m tools.mutate                      tries the mutants of tools/mutants.csv
    python -m tools.mutate --draw=300 --seed=1  draws others in their place, and tries them

A mutant is one change of a file: a comparison turned, a number one higher, two arguments swapped, a
statement removed. Each is tried in a process of its own, by the tests of `COVER`; the first that
fails kills it, and stands beside it in the table from then on, so that it is asked first. With
`--lines=FILE` the tests that reach its lines try it first, the shortest before the others; which
these are is in the file, or is found out and written to it, in some twenty minutes. A mutant that
computes what the source does is `equivalent`, with a reason that a person has written. The command
ends with status 1 if a mutant survives or is gone, or if more than a tenth are equivalent.

It needs a system with `fork`: a process that has imported TensorFlow tries a mutant in seconds.
"""

import argparse
import ast
import collections
import contextlib
import csv
import dataclasses
import gc
import importlib
import importlib.util
import io
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("mutants.csv")
MOST_EQUIVALENT = 0.1

_LIBRARY, _TRAINERS, _SERVING = "tests/keras_trellis", "tests/trainers", "tests/serving"
_LAYER = f"{_LIBRARY}/layers/test_trellis.py"
_WHOLE = f"{_LIBRARY}/engine/test_whole.py"
_GATED = f"{_LIBRARY}/recurrent/test_gated.py"
_MODEL = f"{_LIBRARY}/models/test_language_model.py"
_SOLVED = (
    f"{_LIBRARY}/core/test_equilibrium.py",
    f"{_LIBRARY}/layers/test_equilibrium.py",
)
_LOOP = (f"{_TRAINERS}/training/test_loop.py", f"{_TRAINERS}/training/test_runs.py")
# What plausibly covers a file: the tests of the longest beginning of its path, after the test file
# of its own name.
COVER: Mapping[str, Sequence[str]] = {
    "keras_trellis/core/": (_WHOLE, _LAYER, f"{_LIBRARY}/core/test_network.py"),
    "keras_trellis/core/checks": (f"{_LIBRARY}/test_arguments.py", _LAYER, _GATED),
    "keras_trellis/core/equilibrium": _SOLVED,
    "keras_trellis/core/fixed_point": _SOLVED,
    "keras_trellis/core/schedule": (f"{_LIBRARY}/engine/test_schedule.py", _WHOLE),
    "keras_trellis/core/recurrence": (
        _GATED,
        f"{_LIBRARY}/recurrent/test_tensorized.py",
        f"{_LIBRARY}/test_as_keras_rnn.py",
    ),
    "keras_trellis/formats/": (
        f"{_LIBRARY}/formats/test_manifest.py",
        f"{_SERVING}/test_runtime.py",
        f"{_SERVING}/test_server.py",
    ),
    "keras_trellis/formats/pieces": (
        f"{_TRAINERS}/data/test_pieces.py",
        f"{_SERVING}/test_runtime.py",
    ),
    "keras_trellis/formats/philox": (f"{_LIBRARY}/formats/test_draws.py",),
    "keras_trellis/formats/sampling": (
        f"{_LIBRARY}/formats/test_draws.py",
        f"{_SERVING}/test_slots.py",
        f"{_SERVING}/test_runtime.py",
    ),
    "keras_trellis/formats/tokenizer": (
        f"{_TRAINERS}/data/test_printed.py",
        f"{_TRAINERS}/data/test_tokens.py",
        f"{_SERVING}/test_runtime.py",
    ),
    "keras_trellis/layers/": (
        _LAYER,
        f"{_LIBRARY}/layers/test_hooks.py",
        f"{_LIBRARY}/layers/test_inputs.py",
        f"{_LIBRARY}/layers/test_portable_stream.py",
        f"{_LIBRARY}/test_as_keras_rnn.py",
        "tests/contract/test_unseen_steps.py",
    ),
    "keras_trellis/layers/inputs": (
        _LAYER,
        "tests/contract/test_decoding.py",
        "tests/contract/test_unseen_steps.py",
    ),
    "keras_trellis/layers/recurrent": (_GATED,),
    "keras_trellis/models/": (
        _MODEL,
        f"{_LIBRARY}/models/test_classifier.py",
        f"{_LIBRARY}/models/test_composed.py",
        f"{_LIBRARY}/models/test_generation.py",
    ),
    "keras_trellis/models/generation": (_MODEL,),
    "keras_trellis/models/streamed/": (
        f"{_LIBRARY}/models/test_streamed.py",
        "tests/contract/test_streamed.py",
        "tests/formats/test_streamed.py",
    ),
    "keras_trellis/serving/": (
        f"{_SERVING}/test_slots.py",
        f"{_SERVING}/test_runtime.py",
        f"{_SERVING}/test_versions.py",
        f"{_SERVING}/test_server.py",
        f"{_SERVING}/test_loaders.py",
    ),
    "keras_trellis/serving/server/settings": (
        "tests/docs/test_server_page.py",
        f"{_SERVING}/test_server_life.py",
    ),
    "keras_trellis/serving/server/": (
        f"{_SERVING}/test_server.py",
        f"{_SERVING}/test_server_life.py",
    ),
    "trainers/data/": (
        f"{_TRAINERS}/data/test_files.py",
        f"{_TRAINERS}/data/test_encoding.py",
        f"{_TRAINERS}/test_bad_inputs.py",
    ),
    "trainers/data/table": (
        f"{_TRAINERS}/data/test_tables.py",
        f"{_TRAINERS}/data/test_table_series.py",
    ),
    "trainers/training/": _LOOP,
    "trainers/training/checkpoints": (
        f"{_TRAINERS}/training/test_checkpoints.py",
        f"{_TRAINERS}/training/test_identity.py",
    ),
    "trainers/training/experiment": (
        f"{_TRAINERS}/sequences/test_modeling.py",
        f"{_TRAINERS}/test_series.py",
    ),
    "trainers/training/followers": (f"{_TRAINERS}/training/test_workers.py",),
    "trainers/training/hold": (
        f"{_TRAINERS}/training/test_identity.py",
        f"{_TRAINERS}/training/test_workdir.py",
    ),
    "trainers/training/trainer": (
        f"{_TRAINERS}/training/test_stages.py",
        f"{_TRAINERS}/training/test_changes.py",
        *_LOOP,
    ),
}
# What a process imports before it forks; nothing of ours, which the forks read from their own tree.
_IMPORTS = ("numpy", "keras", "tensorflow", "pytest", "hypothesis", "matplotlib.figure")

_ByTest = dict[str, list[Any]]
"""For each test how many seconds it takes, and which lines of each file it reaches."""

# Where a lane's tree has what `_Reached` writes.
_REACHED = "reached"

_TURNED: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_OTHER: Mapping[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change of a file.

    Attributes:
        file: its path in the repository.
        scope: the dotted name of the function or class that is changed; "": the module itself.
        kind: what is changed.
        before: the source that is replaced.
        after: what replaces it.
        nth: which of the places of its scope with this source it is, from 0.
        verdict: `killed`, `survived`, `gone` or `equivalent`; "": it has not been tried.
        by: the test that fails, or why the mutant is equivalent.
    """

    file: str
    scope: str
    kind: str
    before: str
    after: str
    nth: int
    verdict: str = ""
    by: str = ""


@dataclasses.dataclass(frozen=True)
class _Place:
    """A place that may be changed, between two offsets of a source in bytes."""

    mutant: Mutant
    begin: int
    end: int


class _Source:
    """A source by the nodes of its syntax tree, whose columns are bytes."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def between(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Returns the offsets of a node's beginning and end."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Returns the source of a node."""
        begin, end = self.between(node)
        return self.data[begin:end].decode()


def places(file: str, source: str) -> list[_Place]:
    """Returns all places of a source that may be changed."""
    read = _Source(source)
    seen: collections.Counter[tuple[str, str, str]] = collections.Counter()
    found = []
    for node, scope in _nodes(ast.parse(source), ""):
        for kind, changed, after in _changes(node, read):
            key = scope, kind, read.text(changed)
            mutant = Mutant(file, *key, after, seen[key])
            seen[key] += 1
            found.append(_Place(mutant, *read.between(changed)))
    return found


def mutated(mutant: Mutant, source: str) -> str | None:
    """Returns a source with a mutant's change; None if it has no such place any more."""
    place = _place(mutant, source)
    return None if place is None else _applied(place, source)


def _place(mutant: Mutant, source: str) -> _Place | None:
    wanted = dataclasses.replace(mutant, verdict="", by="")
    return next(
        (place for place in places(mutant.file, source) if place.mutant == wanted), None
    )


def _applied(place: _Place, source: str) -> str:
    data = source.encode()
    after = place.mutant.after.encode()
    return (data[: place.begin] + after + data[place.end :]).decode()


def drawn(seed: int, count: int) -> list[Mutant]:
    """Returns mutants drawn at random: a file by its size, a kind, and a place of that kind."""
    generator = random.Random(seed)
    sources = {file: (ROOT / file).read_text() for file in _files()}
    weights = [len(source) for source in sources.values()]
    among = {file: places(file, source) for file, source in sources.items()}
    found: dict[Mutant, None] = {}
    while len(found) < count:
        (file,) = generator.choices(list(sources), weights)
        by_kind: dict[str, list[_Place]] = {}
        for place in among[file]:
            by_kind.setdefault(place.mutant.kind, []).append(place)
        if not by_kind:
            continue
        place = generator.choice(by_kind[generator.choice(sorted(by_kind))])
        with contextlib.suppress(SyntaxError):
            compile(_applied(place, sources[file]), file, "exec")
            found[place.mutant] = None
    return list(found)


def tests_of(file: str) -> list[str]:
    """Returns the test files that plausibly cover a file, its own first."""
    folder, _, name = file.rpartition("/")
    own = f"tests/{folder}/test_{name}"
    beginning = max((key for key in COVER if file.startswith(key)), key=len)
    tests = [own, *COVER[beginning]] if (ROOT / own).exists() else COVER[beginning]
    return list(dict.fromkeys(tests))


def _files() -> list[str]:
    """Returns the files that mutants are drawn from, as the repository has them."""
    command = ["git", "ls-files", "--", *{key.rpartition("/")[0] for key in COVER}]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    sources = (file for file in listed if file.endswith(".py"))
    return sorted(file for file in sources if not file.endswith("__init__.py"))


def _nodes(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, str]]:
    """Yields the nodes that may be changed, each with its scope."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope = f"{scope}.{node.name}".removeprefix(".")
    yield node, scope
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _says(child):
                yield from _nodes(child, scope)


def _says(node: ast.AST) -> bool:
    """Returns whether a node is for people, or for types: its change changes no computation."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(
        node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
    )


def _changes(
    node: ast.AST, source: _Source
) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yields the changes of a node: the kind, what is replaced, and by what."""
    text = source.text
    match node:
        case ast.Compare(left=left, ops=[turned], comparators=[right]):
            yield (
                "turned",
                node,
                f"({text(left)} {_TURNED[type(turned)]} {text(right)})",
            )
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OTHER:
            if not (isinstance(left, ast.Constant) and isinstance(left.value, str)):
                other = _OTHER[type(operator)]
                yield "operator", node, f"({text(left)} {other} {text(right)})"
        case ast.Constant(value=bool(value)):
            yield "switched", node, str(not value)
        case ast.Constant(value=int() | float()):
            yield "one more", node, f"({text(node)} + 1)"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield (
                "and, or",
                node,
                f"({word.join(f'({text(value)})' for value in values)})",
            )
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", node, f"({text(operand)})"
        case ast.Call(func=called, args=[first, second], keywords=[]):
            starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            if not starred and text(first) != text(second):
                yield "swapped", node, f"{text(called)}({text(second)}, {text(first)})"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "removed", node, "pass"
        case ast.If(test=test, orelse=[]):
            yield "never", test, "False"


class _Lane:
    """A copy of the repository, in which one mutant after the other is tried."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self._temporary = folder / "tmp"
        self._output = folder / "output"
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for file in filter(None, listed.split("\0")):
            if (ROOT / file).is_file():
                (self.tree / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, self.tree / file)
        shared = ROOT.parent / "shared"
        if shared.is_dir():
            (folder / "shared").symlink_to(shared)
        self._began = 0.0
        self._pipe = self._process = -1
        self.mutant: Mutant | None = None

    def begin(self, mutant: Mutant, tests: Sequence[str]) -> bool:
        """Begins to try a mutant; returns whether the sources still have its place."""
        source = (ROOT / mutant.file).read_text()
        changed = mutated(mutant, source)
        if changed is None:
            return False
        (self.tree / mutant.file).write_text(changed)
        self.mutant = mutant
        self.run(["-x", *tests], _Told)
        return True

    def run(
        self, arguments: Sequence[str], plugin: Callable[[int, Path], object]
    ) -> None:
        """Begins to run pytest, in a fork, with a plugin of a pipe's end and the tree."""
        self._began = time.monotonic()
        self._pipe, pipe = os.pipe()
        sys.stdout.flush()
        self._process = os.fork()
        if self._process == 0:
            status = 99
            try:
                status = self._run(arguments, plugin, pipe)
            finally:
                os._exit(status)
        os.close(pipe)

    def outcome(self, seconds: float) -> tuple[list[str], int | None] | None:
        """Returns what the plugin said, and the exit status, None if it took too long.

        Returns None while the tests run.
        """
        process, status = os.waitpid(self._process, os.WNOHANG)
        is_late = not process and time.monotonic() - self._began > seconds
        if not process and not is_late:
            return None
        with contextlib.suppress(ProcessLookupError):  # and what the tests have started
            os.killpg(self._process, signal.SIGKILL)
        if is_late:
            os.waitpid(self._process, 0)
        with open(self._pipe) as pipe:
            lines = pipe.read().splitlines()
        shutil.rmtree(self._temporary, ignore_errors=True)
        return lines, None if is_late else os.waitstatus_to_exitcode(status)

    def ended(self, seconds: float) -> tuple[str, str] | None:
        """Returns the verdict on the mutant and its test; None while it is being tried."""
        outcome = self.outcome(seconds)
        if outcome is None:
            return None
        lines, status = outcome
        assert self.mutant is not None
        shutil.copy2(ROOT / self.mutant.file, self.tree / self.mutant.file)
        for line in lines:
            if line.startswith("failed "):
                return "killed", line.removeprefix("failed ")
        _, began, test = lines[-1].split(" ", 2) if lines else ("", self._began, "")
        if status is None:
            hangs = time.monotonic() - float(began) > seconds / 2
            return ("killed", test) if hangs and test else ("survived", "too slow")
        if status == 0:
            return "survived", ""
        if status == 4:  # pytest does not find what it is asked for
            return "survived", "its test is gone"
        # It, or its import, crashes.
        return "killed", test or tests_of(self.mutant.file)[0]

    def _run(
        self, arguments: Sequence[str], plugin: Callable[[int, Path], object], pipe: int
    ) -> int:
        """Runs pytest in this process, which is a fork; returns its status."""
        os.setsid()
        with open(self._output, "wb") as output, open(os.devnull, "rb") as nothing:
            for number, file in ((0, nothing), (1, output), (2, output)):
                os.dup2(file.fileno(), number)
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False))
        sys.stderr = sys.stdout
        os.chdir(self.tree)
        sys.path.insert(0, str(self.tree))
        os.environ["PYTHONPATH"] = str(self.tree)
        import pytest

        flags = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        flags.append(f"--basetemp={self._temporary}")
        plugins = [plugin(pipe, self.tree)]
        return int(pytest.main([*flags, *arguments], plugins=plugins))


class _Told:
    """Tells through a pipe which test has begun, and which has failed."""

    def __init__(self, pipe: int, tree: Path) -> None:
        self._pipe = pipe

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        os.write(self._pipe, f"began {time.monotonic()} {nodeid}\n".encode())

    def pytest_runtest_logreport(self, report: object) -> None:
        if getattr(report, "failed", False):
            os.write(self._pipe, f"failed {getattr(report, 'nodeid', '')}\n".encode())


class _Reached:
    """Writes down which lines each test reaches that passes, and how long it takes."""

    def __init__(self, _: int, tree: Path) -> None:
        import coverage

        self._tree = tree
        self._seconds: collections.Counter[str] = collections.Counter()
        self._others: set[str] = set()
        sources = sorted({key.partition("/")[0] for key in COVER})
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, source=sources
        )
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._others.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        passed = {*self._seconds} - self._others
        lines: dict[str, dict[str, list[int]]] = {test: {} for test in passed}
        for measured in data.measured_files():
            file = Path(measured).relative_to(self._tree).as_posix()
            for line, tests in data.contexts_by_lineno(measured).items():
                for test in passed.intersection(tests):
                    lines[test].setdefault(file, []).append(line)
        found = {test: [self._seconds[test], lines[test]] for test in passed}
        (self._tree / _REACHED).write_text(json.dumps(found))


def _read() -> list[Mutant]:
    with TABLE.open(newline="") as file:
        rows = csv.DictReader(file)
        return [Mutant(nth=int(row.pop("nth")), **row) for row in rows]


def _write(mutants: Sequence[Mutant]) -> None:
    part = TABLE.with_suffix(".part")
    with part.open("w", newline="") as file:
        names = [field.name for field in dataclasses.fields(Mutant)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(dataclasses.asdict, mutants))
    part.replace(TABLE)


def _try(
    mutants: list[Mutant],
    chosen: Sequence[int],
    lanes: int,
    seconds: float,
    lines: Path | None = None,
) -> None:
    """Tries some mutants, and notes what came of each."""
    for name in _IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    waiting = [index for index in chosen if mutants[index].verdict != "equivalent"]
    at_work: dict[_Lane, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        free = [_Lane(Path(folder) / f"{lane}") for lane in range(lanes)]
        reached: _ByTest = {}
        if lines is not None:
            files = {mutants[index].file for index in waiting}
            reached = _reached(files, lines, free)
        while waiting or at_work:
            while waiting and free:
                index, lane = waiting.pop(0), free.pop()
                mutant = mutants[index]
                killer = [mutant.by] if mutant.verdict == "killed" else []
                tests = _chosen(mutant, reached)
                if lane.begin(mutant, [*killer, *tests]):
                    at_work[lane] = index
                else:
                    free.append(lane)
                    _note(mutants, index, "gone", "")
            time.sleep(0.05)
            for lane in list(at_work):
                if (end := lane.ended(seconds)) is not None:
                    free.append(lane)
                    _note(mutants, at_work.pop(lane), *end)


def _reached(files: Collection[str], table: Path, lanes: Sequence[_Lane]) -> _ByTest:
    """Returns what the tests that may cover some files reach.

    Args:
        files: the files.
        table: what was found before, by test file; what it lacks is added.
        lanes: where tests run, all free.
    """
    known = json.loads(table.read_text()) if table.exists() else {}
    wanted = sorted({test for file in files for test in tests_of(file)})
    waiting = [test for test in wanted if test not in known]
    free, at_work = list(lanes), dict[_Lane, str]()
    while waiting or at_work:
        while waiting and free:
            lane = free.pop()
            at_work[lane] = waiting.pop(0)
            (lane.tree / _REACHED).unlink(missing_ok=True)
            lane.run([at_work[lane]], _Reached)
        time.sleep(0.05)
        for lane in list(at_work):
            if lane.outcome(math.inf) is not None:
                free.append(lane)
                written = lane.tree / _REACHED  # it is not there if the process crashed
                found = json.loads(written.read_text()) if written.exists() else {}
                known[at_work.pop(lane)] = found
                table.write_text(json.dumps(known))
                print(f"{len(waiting) + len(at_work)} test files left", flush=True)
    return {test: found for file in wanted for test, found in known[file].items()}


def _chosen(mutant: Mutant, reached: _ByTest) -> list[str]:
    """Returns the tests that try a mutant.

    They are those that reach its lines, the shortest first. After them come the files none of whose
    tests does: these may run it in another process. Lines of a module itself run when it is
    imported, which tells nothing.
    """
    files = tests_of(mutant.file)
    source = (ROOT / mutant.file).read_text()
    place = _place(mutant, source)
    if place is None or not mutant.scope:
        return files
    begin, end = (
        source.encode().count(b"\n", 0, offset) + 1
        for offset in (place.begin, place.end)
    )
    lines = range(begin, end + 1)
    found = [
        (seconds, test)
        for test, (seconds, by_file) in reached.items()
        if any(line in lines for line in by_file.get(mutant.file, ()))
    ]
    tests = [test for _, test in sorted(found)]
    seen = {test.partition("::")[0] for test in tests}
    return [*tests, *(file for file in files if file not in seen)]


def _note(mutants: list[Mutant], index: int, verdict: str, by: str) -> None:
    mutants[index] = mutant = dataclasses.replace(
        mutants[index], verdict=verdict, by=by
    )
    _write(mutants)
    change = f"{mutant.before!r:.50} -> {mutant.after!r:.50}"
    print(f"{verdict} {mutant.file} {mutant.scope} {change} {by}", flush=True)


def summary(mutants: Sequence[Mutant]) -> str:
    """Returns how many mutants came to what, as a table."""
    lines = ["| | mutants |", "|---|---:|"]
    for verdict in ("killed", "equivalent", "survived", "gone"):
        count = sum(mutant.verdict == verdict for mutant in mutants)
        lines.append(f"| {verdict} | {count} |")
    return "\n".join([*lines, f"| all | {len(mutants)} |"])


def is_good(mutants: Sequence[Mutant]) -> bool:
    """Returns whether each is killed, or is one of a few that are equivalent for a reason."""
    equivalent = [mutant for mutant in mutants if mutant.verdict == "equivalent"]
    told = all(mutant.by for mutant in equivalent)
    few = len(equivalent) <= MOST_EQUIVALENT * len(mutants)
    killed = sum(mutant.verdict == "killed" for mutant in mutants)
    return told and few and killed + len(equivalent) == len(mutants)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools.mutate", allow_abbrev=False)
    parser.add_argument("--draw", type=int, help="draw so many new mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--only", default="", help="the beginning of the files to try")
    parser.add_argument("--lanes", type=int, default=2, help="how many at a time")
    parser.add_argument("--seconds", type=float, default=300, help="for each mutant")
    parser.add_argument("--lines", type=Path, help="which tests reach which lines")
    parser.add_argument("--untried", action="store_true", help="those without verdict")
    options = parser.parse_args(arguments)
    if options.lines and not importlib.util.find_spec("coverage"):
        parser.error("--lines needs the package coverage: pip install coverage")
    if options.draw is not None:
        _write(drawn(options.seed, options.draw))
    elif not TABLE.exists():
        print(f"there is no {TABLE.name}; --draw=COUNT draws mutants", file=sys.stderr)
        return 2
    mutants = _read()
    chosen = [
        index
        for index, mutant in enumerate(mutants)
        if mutant.file.startswith(options.only)
        and not (options.untried and mutant.verdict)
    ]
    _try(mutants, chosen, options.lanes, options.seconds, options.lines)
    print(summary(mutants))
    return int(not is_good(mutants))


if __name__ == "__main__":
    sys.exit(main())
