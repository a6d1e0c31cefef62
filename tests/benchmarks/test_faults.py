"""The benchmark of faults: the library that makes them, the names of cases, and a minute of it."""

import collections
import dataclasses
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.faults import cases, drawing, outcomes, shim, trial
from benchmarks.faults.__main__ import KINDS, USUAL, format_finding, table
from benchmarks.faults.processes import Ended
from benchmarks.faults.programs import PROGRAMS, Templates
from benchmarks.faults.shim import Action, Fault
from tests import ROOT
from trainers.studies import journal

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform != "linux",
    reason="file operations are let fail on Linux with a C compiler, cc",
)
NO_SPACE = errno.ENOSPC


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def try_with(library, tmp_path):
    """Runs lines of Python with a fault, in the folder `watched`; returns status, stdout, files."""
    watched = tmp_path / "watched"
    watched.mkdir()

    def run(fault, lines, log=None):
        program = f"""
            import ctypes, errno, os, pathlib
            from benchmarks.faults import shim
            from benchmarks.faults.shim import Action, Fault
            here = pathlib.Path({str(watched)!r})
            shim.log_to(os.open({str(log or "/dev/null")!r}, os.O_CREAT | os.O_WRONLY))
            shim.arm(here, {fault})

            def told(call, *arguments):
                try:
                    print(call(*arguments))
                except OSError as error:
                    print(errno.errorcode[error.errno])
            """
        program = textwrap.dedent(program) + textwrap.dedent(lines)
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(ROOT), shim.VARIABLE: str(library)},
            capture_output=True,
            text=True,
        )
        assert not ended.stderr
        return (
            ended.returncode,
            ended.stdout.split(),
            sorted(p.name for p in watched.iterdir()),
        )

    run.folder = watched
    return run


WRITE = """
file = os.open(here / "a", os.O_CREAT | os.O_WRONLY)
told(os.write, file, b"12345678")
told(os.write, file, b"12345678")
told(os.fsync, file)
os.close(file)
print("end")
"""


@pytest.mark.parametrize(
    "action, content", [("BEFORE", b"12345678"), ("AFTER", b"1234567812345678")]
)
def test_a_process_is_killed_before_or_after_an_operation(try_with, action, content):
    status, output, _ = try_with(f"Fault(Action.{action}, 9, 'write', 'a', 2)", WRITE)
    assert status == -signal.SIGKILL and "end" not in output
    assert (try_with.folder / "a").read_bytes() == content


@pytest.mark.parametrize(
    "fault, told, content",
    [
        ("Fault()", ["8", "8", "None", "end"], 16),
        (
            f"Fault(Action.ONCE, {NO_SPACE}, 'write', 'a', 1)",
            ["ENOSPC", "8", "None", "end"],
            8,
        ),
        (f"Fault(Action.ONCE, {errno.EIO}, 'sync')", ["8", "8", "EIO", "end"], 16),
        (
            f"Fault(Action.LASTING, {NO_SPACE}, 'write', 'a', 2)",
            ["8", "ENOSPC", "ENOSPC", "end"],
            8,
        ),
        (
            f"Fault(Action.MATCHING, {errno.EIO}, 'write')",
            ["EIO", "EIO", "None", "end"],
            0,
        ),
        ("Fault(Action.SHORT, 0, 'write', 'a', 2)", ["8", "4", "None", "end"], 12),
        (
            f"Fault(Action.FITS, {NO_SPACE}, 'openwrite', 'a', fits=10)",
            ["8", "ENOSPC", "None", "end"],
            8,
        ),
        (
            f"Fault(Action.ONCE, {NO_SPACE}, 'write', 'b', 1)",
            ["8", "8", "None", "end"],
            16,
        ),
    ],
)
def test_an_operation_fails_once_or_from_then_on(try_with, fault, told, content):
    status, output, _ = try_with(fault, WRITE)
    assert (status, output) == (0, told)
    assert (try_with.folder / "a").stat().st_size == content


NAMES = """
told(os.mkdir, here / "folder")
told(os.open, here / "folder" / "x", os.O_CREAT | os.O_WRONLY)
told(os.rename, here / "folder" / "x", here / "y")
told(lambda: os.stat(here / "y") and "found")
told(os.listdir, here / "folder")
told(os.unlink, here / "y")
told(os.rmdir, here / "folder")
"""


@pytest.mark.parametrize(
    "operation, line",
    [
        ("mkdir", 0),
        ("openwrite", 1),
        ("rename", 2),
        ("stat", 3),
        ("list", 4),
        ("unlink", 5),
    ],
)
def test_names_can_be_refused(try_with, operation, line):
    fault = f"Fault(Action.MATCHING, {errno.EACCES}, {operation!r})"
    _, output, _ = try_with(fault, NAMES)
    assert output[line] == "EACCES"


def test_a_lasting_failure_of_the_disk_leaves_nothing_and_a_full_one_reads(try_with):
    lines = """
        told(os.open, here / "a", os.O_CREAT | os.O_WRONLY)
        told(lambda: (here / "there").read_text())
        told(lambda: pathlib.Path("/proc/self/status").exists())
    """
    (try_with.folder / "there").write_text("read")
    for number, expected in ((errno.EIO, "EIO"), (NO_SPACE, "read")):
        _, output, _ = try_with(f"Fault(Action.LASTING, {number}, 'openwrite')", lines)
        assert output == [errno.errorcode[number], expected, "True"]


def test_c_streams_fail_too(try_with):
    """TensorFlow writes through these."""
    lines = """
        library = ctypes.CDLL(None, use_errno=True)
        library.fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(library.fopen(os.fsencode(here / "a"), b"w"))
        for _ in range(2):
            print(library.fwrite(b"1234", 1, 4, file), errno.errorcode.get(ctypes.get_errno()))
        print(library.fflush(file), library.fclose(file))
    """
    _, output, _ = try_with(f"Fault(Action.ONCE, {NO_SPACE}, 'write', 'a', 2)", lines)
    assert output == ["4", "None", "0", "ENOSPC", "0", "0"]
    assert (try_with.folder / "a").read_bytes() == b"1234"


def test_operations_are_told_in_order(try_with, tmp_path):
    try_with("Fault()", WRITE, log=tmp_path / "log")
    lines = [line.split("\t") for line in (tmp_path / "log").read_text().splitlines()]
    assert [name for name, *_ in lines] == [
        "openwrite",
        "write",
        "write",
        "sync",
        "close",
    ]
    assert {path for _, path, _ in lines} == {"a"}
    assert [takes for *_, takes in lines] == ["1", "1", "1", "1", "0"]


def test_a_signal_comes_at_a_call(try_with):
    lines = """
        shim.count_calls({at}, 9)
        for index in range(1000):
            print(index, flush=True)
        print(shim.calls())
    """
    counts = []
    for at in (0, 500, 500):
        status, output, _ = try_with("Fault()", lines.replace("{at}", str(at)))
        assert status == (-signal.SIGKILL if at else 0)
        counts.append(len(output))
    assert counts[0] == 1001 and int(output[-1]) < 999 and counts[1] == counts[2]


def test_a_command_that_is_killed_while_it_prints_makes_no_other_hang(try_with):
    _, output, _ = try_with(
        "Fault()",
        """
        import sys, tqdm
        from benchmarks.faults.processes import Command, Runner

        sys.path.insert(0, str(here))
        lines = "import os, tqdm; tqdm.tqdm.get_lock().acquire(); "
        (here / "killed.py").write_text(lines + "os.kill(os.getpid(), 9)")
        (here / "printing.py").write_text(lines + "print('printed')")
        tqdm.tqdm.get_lock()  # as the run that warms the parent up
        runner = Runner()
        print(runner.run(Command("killed", (), here)).status)
        print(runner.run(Command("printing", (), here)).output)
        """,
    )
    assert output == [str(128 + signal.SIGKILL), "printed"]


def test_a_process_that_outlives_its_command_is_seen_and_ended(try_with):
    _, output, _ = try_with(
        "Fault()",
        """
        import sys
        from benchmarks.faults import processes
        from benchmarks.faults.processes import Command, Runner

        sys.path.insert(0, str(here))
        lines = "import os, time; end = time.time() + {}; parent = os.fork()\\n"
        lines += "while not parent and time.time() < end: time.sleep(0.01)"
        processes._LONGEST = 3.0
        for name, seconds in (("short", 0.2), ("long", 60)):
            (here / f"{name}.py").write_text(lines.format(seconds))
            print(Runner().run(Command(name, (), here)).outlived)
        """,
    )
    assert output == ["False", "True"]


def test_without_a_compiler_there_is_a_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].startswith(
        "file operations are"
    )


def test_a_case_is_repeated_by_what_is_told_of_it():
    finding = {
        "case": "errors:train:EIO-once:write:run/tensorboard/*:2",
        "wrong": ["exit status 1"],
        "lost": [],
        "different": [],
        "statuses": [1],
        "messages": ["no"],
        "refused": False,
    }
    lines = format_finding(finding).splitlines()
    assert lines[0] == f"python -m benchmarks.faults '--case={finding['case']}'"
    assert lines[1:] == ["  wrong: exit status 1", "  exit status 1: no"]
    rows = table({"cases": [finding, {**finding, "case": "kills:meta:SIGTERM:7"}]})
    one, both = "| 1 | 0 | 1 | 0 | 0 | 1 |", "| 2 | 0 | 2 | 0 | 0 | 2 |"
    kinds = ["killed at a random moment", "a file operation fails"]
    expected = [*((name, one) for name in kinds), ("all", both)]
    expected += [("meta", one), ("train", one), ("all", both)]
    found = [line for line in rows.splitlines() if line.endswith("|")]
    assert [line for line in found if line[-3].isdigit()] == [
        f"| {name} {numbers}" for name, numbers in expected
    ]


@pytest.fixture
def profile():
    lines = [
        "openwrite\trun/a\t1",
        "write\trun/a\t1",
        "write\trun/a\t1",
        "read\trun/b\t0",
    ]
    return cases.Profile(
        list(cases.operations(lines)), 1000, {}, [], {"run/b": 10}, 0.1, requests=50
    )


def test_a_seed_draws_the_same_cases_and_none_twice(profile):
    def drawn(seed, count):
        names = ["train", "together", "in-s3", "tables"]
        profiles = dict.fromkeys(names, profile)
        return list(cases.drawn([*profiles], profiles, [*KINDS], seed, count))

    assert drawn(1, 200) == drawn(1, 200) != drawn(2, 200)
    first = drawn(1, 200)
    assert len(set(first)) == 200 and {case.partition(":")[0] for case in first} == {
        *KINDS
    }
    workers = [case for case in first if case.startswith("workers:")]
    assert all(case.split(":")[1] == "together" for case in workers)
    assert cases.programs_with(["workers"]) == ["together"]
    assert cases.programs_with(["stores"])[:2] == ["in-s3", "in-gs"]
    assert cases.programs_with(["stores"], ["in-gs", "train"]) == ["in-gs"]
    assert not {"together", "in-s3", "in-gs"} & {*cases.programs_with(USUAL)}
    errors = cases.every("errors", PROGRAMS["train"], profile, random.Random(0))
    assert "errors:train:EDQUOT-lasting:write:run/a:2" in errors
    assert "errors:train:EIO-once:read:run/b:1" in errors
    assert not [case for case in errors if "ENOSPC" in case and ":read:" in case]


def test_every_seed_begins_with_a_case_of_each_kind_and_program(profile):
    names = ["train", "draw", "tune", "batch", "import", "tables"]
    profiles = dict.fromkeys(names, profile)
    for seed in range(20):
        first = list(cases.drawn(names, profiles, USUAL, seed, len(USUAL)))
        assert sorted(case.partition(":")[0] for case in first) == sorted(USUAL)
        assert {case.split(":")[1] for case in first} == {*names}


def test_only_programs_of_drawn_cases_are_prepared(profile):
    asked = collections.defaultdict(lambda: profile)
    found = list(cases.drawn([*PROGRAMS], asked, ["kills"], 3, 4))
    assert {*asked} == {case.split(":")[1] for case in found} and len(asked) == 4


def test_a_name_says_what_goes_wrong():
    fault = cases.disturbance("ENOSPC-lasting", ["write", "run/a", "2"]).fault
    assert fault == Fault(Action.LASTING, NO_SPACE, "write", "run/a", 2, cases.FITS)
    assert cases.disturbance("before", ["sync", "a", "1"]).fault.value == signal.SIGKILL
    killed = cases.disturbance("SIGTERM", ["77"])
    assert (killed.call, killed.signal, killed.fault.action) == (
        77,
        signal.SIGTERM,
        Action.NOTHING,
    )


def test_what_a_run_leaves_is_compared_but_for_times(tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    for index, folder in enumerate(folders):
        run = folder / "run" / "checkpoints"
        run.mkdir(parents=True)
        np.savez(run / "step-00000003.npz", a=np.arange(3), **{"cost/seconds": index})
        cost = {"weight": 3, "seconds": index, "peak_bytes": index}
        result = {"cost": cost, "summary": "all", "checksum": str(index)}
        (folder / "run" / "result.json").write_text(json.dumps(result))
        (folder / "run" / "metrics.csv").write_text(
            f"step,loss,tokens_per_second\n1,2,{index}\n"
        )
        (folder / "run" / "lock").write_text(str(index))
        writer = tf.summary.create_file_writer(str(folder / "run" / "tensorboard"))
        with writer.as_default():
            tf.summary.scalar("train/loss", 2.5, step=4)
            tf.summary.scalar("train/tokens_per_second", index, step=4)
        writer.close()
    one, other = map(outcomes.read, folders)
    assert not outcomes.differences(one, other)
    assert one["tensorboard"] == [(4, "train/loss", 2.5)]
    assert outcomes.progress(folders[0]) == {"steps in run": 3}
    (folders[1] / "run" / "metrics.csv").write_text(
        "step,loss,tokens_per_second\n1,3,1\n"
    )
    (folders[1] / "run" / ".a.part").write_text("")
    np.savez(folders[1] / "run" / "checkpoints" / "step-00000003.npz", a=np.arange(4))
    assert [
        each.split(" (")[0]
        for each in outcomes.differences(one, outcomes.read(folders[1]))
    ] == [
        "left: run/.a.part is new",
        "run/checkpoints/step-00000003.npz differs",
        "run/metrics.csv differs",
    ]


def test_a_study_is_compared_but_for_times(tmp_path):
    begun = {"event": "begun", "trial": 0, "values": {"rate": 0.1}, "version": "1"}
    ended = {"event": "ended", "trial": 0, "loss": 0.5, "run_id": "a"}
    lines = {
        "one": [begun, {"event": "worked", "trial": 0}, ended],
        "same": [{**begun, "version": "2"}, {**ended, "run_id": "b"}],
        "other": [begun, {**ended, "loss": 0.25}],
    }
    found = {}
    for number, (name, entries) in enumerate(lines.items()):
        study = tmp_path / name / "study"
        (study / "trials" / "0000" / "checkpoints").mkdir(parents=True)
        timed = [{**entry, "seconds": 1.0 + number} for entry in entries]
        (study / "journal.jsonl").write_bytes(journal.text(timed))
        (study / "study.md").write_text(f"--config_file={study}/best.json\n")
        found[name] = outcomes.read(tmp_path / name)
    assert not outcomes.differences(found["one"], found["same"])
    (line,) = outcomes.differences(found["one"], found["other"])
    assert line.startswith("study/journal.jsonl differs")
    # A study removes the weights of its trials.
    assert outcomes.progress(tmp_path / "one") == {"lines in study/journal.jsonl": 3}


class Scripted:
    """Runs no command: each call writes what it is to leave, and ends as it is to."""

    def __init__(self, *calls):
        self.calls = list(calls)

    def run(self, command, disturbance=None):
        status, errors, result = self.calls.pop(0)
        (command.folder / "run").mkdir(exist_ok=True)
        if result is None:
            (command.folder / "run" / "notes.txt").unlink(missing_ok=True)
        else:
            (command.folder / "run" / "result.txt").write_text(result)
        return Ended(status, "the end\n", errors, 0.1, False, True, 0)


def test_an_ending_has_the_scores_and_not_the_name_of_the_folder():
    def ending(folder, score):
        command = f"  evaluate --workdir={folder}"
        end = f"best of epoch 2: {score}\nsaved in {folder}; next:\n{command:40}# scores\n"
        return cases.ending(f"epoch 1\n{end}", Path(folder))

    assert ending("/a", 3.5) == ending("/folder/b", 3.5) != ending("/a", 3.6)
    assert cases.ending("1 file\n2 files\n", Path("/a")) == ["2", "files"]


DONE = (0, "", "right")


@pytest.mark.parametrize(
    "calls, found",
    [
        ([(137, "", "half"), DONE], {}),
        ([(2, "error: no space\n", "half"), DONE], {}),
        ([DONE, DONE], {}),
        (
            [(0, "", "half"), DONE],
            {"wrong": ["done, it says; but run/result.txt differs"]},
        ),
        (
            [(137, "", "half"), (0, "", "other")],
            {"different": ["run/result.txt differs"]},
        ),
        ([(137, "", None), DONE], {"different": ["run/notes.txt is missing"]}),
        ([(2, "", "half"), DONE], {"wrong": ["0 lines of error with exit status 2"]}),
        (
            [(1, "Traceback\nKeyError: 1\n", "half"), DONE],
            {"wrong": ["a traceback: KeyError: 1", "exit status 1"]},
        ),
        (
            [(137, "", "half"), (2, "error: no\n", "half")],
            {
                "wrong": ["exit status 2", "the command does not go on"],
                "different": ["run/result.txt differs"],
            },
        ),
    ],
)
def test_what_should_not_be_is_noticed(tmp_path, profile, calls, found):
    template = tmp_path / "templates" / "train" / "run"
    template.mkdir(parents=True)
    (template / "notes.txt").write_text("mine\n")
    expected = {"run/notes.txt": b"mine\n", "run/result.txt": b"right"}
    profile = dataclasses.replace(profile, expected=expected, ending=["the", "end"])
    how = "before:write:run/a:1" if calls[0][0] == 137 else "EIO-once:write:run/a:1"
    finding = trial.tried(
        f"errors:train:{how}",
        profiles={"train": profile},
        templates=Templates(tmp_path / "templates"),
        runner=Scripted(*calls),
        place=tmp_path,
    )
    actual = {name: getattr(finding, name) for name in ("wrong", "different", "lost")}
    assert {name: value for name, value in actual.items() if value} == found


@pytest.mark.parametrize(
    "call, wrong",
    [
        ((0, "", "any"), []),
        ((2, "error: row 3 has no id\n", "any"), []),
        ((2, "", "any"), ["0 lines of error with exit status 2"]),
        (
            (1, "Traceback\nKeyError: 1\n", "any"),
            ["a traceback: KeyError: 1", "exit status 1"],
        ),
    ],
)
def test_a_drawn_input_is_taken_or_refused_in_a_line(
    tmp_path, profile, monkeypatch, call, wrong
):
    drawn = []

    def draw(command, generator):
        drawn.append(generator.random())
        return command

    (tmp_path / "templates" / "train").mkdir(parents=True)
    program = dataclasses.replace(PROGRAMS["train"], draw=draw, own_end=True)
    monkeypatch.setitem(PROGRAMS, "train", program)
    finding = trial.tried(
        "drawn:train:5",
        profiles={"train": profile},
        templates=Templates(tmp_path / "templates"),
        runner=Scripted(call),
        place=tmp_path,
    )
    assert (finding.wrong, finding.lost) == (wrong, [])
    assert drawn == [random.Random(5).random()]


def test_what_is_drawn_differs_and_is_a_function_of_the_seed(tmp_path):
    changes = {
        "manifest.json": drawing.change_json,
        "table.csv": drawing.change_table,
    }
    entries = {"files": {"a": {"bytes": 3}}, "runtime": {"cache": [1, 2]}}
    for name, change in changes.items():
        path, seen = tmp_path / name, []
        for seed in [*range(20), 0]:
            if name == "table.csv":
                drawing.write_table(path, drawing.table(random.Random(0)))
            else:
                path.write_text(json.dumps(entries))
            change(path, random.Random(seed))
            seen.append(path.read_bytes())
        assert seen[0] == seen[-1] and len({*seen}) > 15


# By default without those whose folder takes long to prepare.
QUICK = (
    "tables",
    "train",
    "resume",
    "encode-on",
    "draw",
    "tune-on",
    "import-on",
    "meta-evaluate",
)


def test_what_is_disturbed_goes_on_as_if_nothing_had_happened(tmp_path):
    """A case of each kind and program; with FAULTS=all sixty."""
    result = tmp_path / "faults.json"
    most, names = (60, ()) if os.environ.get("FAULTS") == "all" else (len(QUICK), QUICK)
    command = ["benchmarks.faults", f"--most={most}", "--seconds=900", "--threads=1"]
    command += [f"--program={name}" for name in names]
    ended = subprocess.run(
        [sys.executable, "-m", *command, f"--json={result}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = json.loads(result.read_text())["cases"]
    assert ended.returncode == 0, ended.stdout
    assert len(found) == most
    assert {each["case"].partition(":")[0] for each in found} == {*USUAL}
    tried = {each["case"].split(":")[1] for each in found}
    assert tried == {*(names or cases.programs_with(USUAL))}


def test_workers_that_are_disturbed_at_random_go_on():
    command = ["benchmarks.faults", "--only=workers", "--most=1", "--threads=2"]
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.splitlines()[-1] == "| all | 1 | 0 | 1 | 0 | 0 | 0 |"


@pytest.mark.parametrize(
    "case",
    [
        "stores:in-s3:unanswered:20:0",
        "denied:draw:EACCES:mkdir:run/drawings:0",  # it says that it goes on without pictures
    ],
)
def test_a_run_goes_on_too(case):
    command = ["benchmarks.faults", f"--case={case}", "--threads=1"]
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.splitlines()[-1] == "| all | 1 | 0 | 1 | 0 | 0 | 0 |"
