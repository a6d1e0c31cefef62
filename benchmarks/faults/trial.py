"""Tries a case: disturbs a command, gives it again, and compares what it leaves.

Given again undisturbed, the same command must finish, and leave what an undisturbed run leaves, bit
for bit. Before that, no command may have said anything untrue.
"""

import dataclasses
import fnmatch
import random
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from benchmarks.faults import cases, drawing, outcomes, stores
from benchmarks.faults.cases import Profile
from benchmarks.faults.processes import Disturbance, Runner
from benchmarks.faults.programs import PROGRAMS, Program, Templates
from keras_trellis.formats import manifest
from trainers.cli.command import Status

# Lines that libraries log; they are no messages of ours.
_LOGGED = re.compile(
    r"[IWEF]\d{4} .*|WARNING: All log.*|\d{4}-\d\d-\d\d .*|.*Warning: .*|  .*"
)
# What a run says if its records are incomplete.
_RECORDS_NAMED = re.compile(
    r"records in .* cannot be written|metrics.csv is not as a run writes it"
    r"|(drawing.gif|tensorboard/drawings) cannot be written"
)
_BEST = "run/checkpoints/best.npz"
_BEST_FILES = re.compile(
    r"run/result\.json|run/checkpoints/step-\d+\.npz differs \(best\)$"
)
# Files that every command writes, or that can be made again.
_LIVING = re.compile(
    r"(.*/)?[^/]*\block|\.cache/.*|.*\.log|study/(trials\.csv|study\.md|best\.json|.*\.png)"
)
# The weights of a trial, which are removed once it has ended.
_TRIAL_FILES = re.compile(r".*/trials/\d+/checkpoints/")
# Where C++ finds no memory, it ends the process.
_SHORT = [how for how, left in cases.MEMORY.items() if left >= 0]
_CHECKPOINT = re.compile(r"run/checkpoints/step-\d+\.npz")


@dataclasses.dataclass
class Finding:
    """The result of a case.

    Attributes:
        case: its name.
        refused: whether the command ended with a line that says what is wrong.
        different: how the end differs from that of an undisturbed run.
        lost: files that were there before, and are gone.
        wrong: what the command should not have said or done.
        statuses: the exit statuses, of the disturbed command first.
        messages: the last lines of each.
        seconds: of processor time.
    """

    case: str
    refused: bool = False
    different: list[str] = dataclasses.field(default_factory=list)
    lost: list[str] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)
    statuses: list[int] = dataclasses.field(default_factory=list)
    messages: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether nothing differs, is lost or wrong."""
        return not (self.different or self.lost or self.wrong)


def tried(
    case: str,
    profiles: Mapping[str, Profile],
    templates: Templates,
    runner: Runner,
    place: Path,
) -> Finding:
    """Tries a case.

    Args:
        case: its name.
        profiles: of the programs, by name.
        templates: the folders in which they begin.
        runner: runs their commands.
        place: a folder for this process alone.
    """
    kind, name, how, *rest = case.split(":")
    program = PROGRAMS[name]
    folder = templates.copy(program, place / "folder")
    program.begin(runner, folder)
    trial = _Trial(program, profiles[name], runner, folder, Finding(case))
    if kind == "damage":
        trial.damaged(how, *rest)
    elif kind == "pairs":
        trial.paired(how, *rest)
    elif kind == "drawn":
        trial.drawn(int(how))
    elif kind == "workers":
        trial.together(how, *rest)
    elif kind == "stores":
        trial.stored(how, *rest)
    else:
        trial.disturbed(cases.disturbance(how, rest), how)
    return trial.finding


class _Trial:
    """A case that is being tried."""

    def __init__(
        self,
        program: Program,
        profile: Profile,
        runner: Runner,
        folder: Path,
        finding: Finding,
    ) -> None:
        self._runner = runner
        self._program = program
        self._profile = profile
        self._folder = folder
        self.finding = finding
        self._command = program.command(folder)
        self._done = outcomes.progress(folder)
        self._before = outcomes.contents(folder)
        self._said = ""

    def disturbed(self, disturbance: Disturbance, how: str) -> None:
        ended = self._runner.run(self._command, disturbance)
        self._note(ended)
        self._check_end(ended, _statuses(how) | self._crashes(how))
        self._check_steps()
        if ended.status == 0:
            self.finding.wrong += [
                f"done, it says; but {line}" for line in self._differences()
            ]
        self._finish()

    def damaged(self, how: str, name: str, at: str) -> None:
        """Damages a file: a message must name it unless nothing changes, and it must be kept."""
        for path in self._folder.glob(name):
            _damage(path, how, int(at))
        self._before = outcomes.contents(self._folder)
        ended = self._runner.run(self._command)
        self._note(ended)
        self._check_end(ended, {Status.DONE, Status.REFUSED})
        match = re.search(fnmatch.translate(f"*{Path(name).name}*"), self._said)
        if ended.status:
            # Of other values, it is another run's.
            if not match and "belongs to" not in self._said:
                self.finding.wrong.append(f"the message does not name {name}")
            self._check_present(self._before)
            return
        if match and ("/checkpoints/" in name or name.endswith(".csv")):
            before = self._before
            self._check_present({key: before[key] for key in before if key == name})
        self.finding.different += self._differences(name)

    def drawn(self, seed: int) -> None:
        """Draws an input, which must be taken, or refused in a line."""
        assert self._program.draw is not None
        self._command = self._program.draw(self._command, random.Random(seed))
        self._before = outcomes.contents(self._folder)
        ended = self._runner.run(self._command)
        self._note(ended)
        self._check_end(ended, {Status.DONE, Status.REFUSED})
        self._check_present(self._before)
        if ended.status == 0:
            self._compare_end(ended)

    def paired(self, how: str, delay: str, call: str) -> None:
        """Runs two processes and may kill one; neither may disturb the other."""
        first = Disturbance(call=int(call), signal=signal.SIGKILL)
        second = Disturbance(delay=float(delay))
        pair = [(self._command, first), (self._command, second)]
        ends = self._runner.together(pair)
        allowed = {Status.DONE, Status.REFUSED}
        for ended, statuses in zip(ends, (_statuses("SIGKILL"), allowed), strict=True):
            self._note(ended)
            self._check_end(ended, statuses | allowed if how == "killed" else allowed)
        if how == "both" and all(ended.status for ended in ends):
            self.finding.wrong.append("each of two processes was refused")
        self._finish(compare=not self._program.shared)

    def together(self, how: str, index: str, call: str) -> None:
        """Disturbs one of several workers; the others must notice, and all go on."""
        _, number = cases.TO_WORKERS[how]
        at = Disturbance(call=int(call), signal=number)
        ends = self._together({int(index): at})
        killed = {Status.DONE, 128 + at.signal}
        for place, ended in enumerate(ends):
            self._check_end(ended, killed | {Status.WORKER_LOST})
            # To a worker that is cut off it is the other one that has gone.
            gone = index if place != int(index) else f"{1 - place}"
            lost = ended.status == Status.WORKER_LOST
            if lost and f"error: worker {gone}" not in ended.errors:
                self.finding.wrong.append(f"it does not name worker {gone}")
        if ends[int(index)].status and not any(
            ends[n].status for n in range(len(ends)) if n != int(index)
        ):
            self.finding.wrong.append("the others did not notice")
        self._check_steps()
        again = self._together({})
        for ended in again:
            self._check_end(ended, {Status.DONE})
        self._compare(again[0])

    def stored(self, how: str, at: str, call: str) -> None:
        """Lets a request to an object store go wrong, and may kill the process."""
        fault, _, lasting = how.partition("-")

        def request_fault(number, method, path):
            hit = number >= int(at) if lasting else number == int(at)
            return fault if hit and fault in stores.FAULTS else None

        with stores.serving(self._program.store) as store:
            environment = store.environment
            self._command = dataclasses.replace(self._command, environment=environment)
            store.fault = request_fault
            killed = Disturbance(call=int(call), signal=signal.SIGKILL)
            ended = self._runner.run(self._command, killed)
            self._note(ended)
            self._check_end(
                ended, _statuses("SIGKILL" if int(call) else how) | _statuses(how)
            )
            store.fault = lambda *_: None
            again = self._runner.run(self._command)
            self._note(again)
            self._check_end(again, {Status.DONE})
            stores.fetch(store, self._folder)
        self._compare(again)

    def _together(self, disturbances):
        commands = self._program.commands(self._folder)
        ends = self._runner.together(
            [
                (command, disturbances.get(index, Disturbance()))
                for index, command in enumerate(commands)
            ]
        )
        for ended in ends:
            self._note(ended)
        return ends

    def _finish(self, compare=True):
        """Gives the command again, and may compare the end with that of an undisturbed run."""
        again = self._runner.run(self._command)
        self._note(again)
        self._check_end(again, {Status.DONE})
        if compare:
            self._compare(again)

    def _compare(self, again):
        """Compares the end with that of an undisturbed run."""
        if again.status:
            self.finding.wrong.append("the command does not go on")
        self.finding.different += self._differences()
        self._compare_end(again)

    def _compare_end(self, again):
        before, after = self._profile.ending, cases.ending(again.output, self._folder)
        if before != after and not self._program.own_end:
            actual, expected = " ".join(after), " ".join(before)
            self.finding.different.append(f"it says {actual!r} instead of {expected!r}")

    def _note(self, ended):
        finding = self.finding
        finding.seconds += ended.seconds
        logs = [path.read_text() for path in self._folder.rglob("*.log")]
        self._said += "".join((ended.output, ended.errors, *logs))
        finding.statuses.append(ended.status)
        errors = ended.errors.splitlines()
        lines = [line for line in errors if not _LOGGED.fullmatch(line)]
        last = [*ended.output.splitlines()[-3:], *lines[-3:]]
        finding.messages.append(" | ".join(last)[-800:])
        finding.refused |= ended.status in (Status.REFUSED, Status.NOT_KEPT)

    def _check_end(self, ended, statuses):
        """Checks the exit status of a command, and that a refusal is one line."""
        wrong = self.finding.wrong
        if ended.hung:
            wrong.append("it hangs")
        if ended.outlived:
            wrong.append("a process that it began outlives it")
        if "Traceback" in ended.errors:
            wrong.append(f"a traceback: {ended.errors.strip().splitlines()[-1][:200]}")
        if ended.status not in statuses:
            wrong.append(f"exit status {ended.status}")
        errors = ended.errors.splitlines()
        lines = [line for line in errors if line.startswith("error: ")]
        due = Status.REFUSED <= ended.status <= max(Status)
        if len(lines) != int(due) and "Traceback" not in ended.errors:
            wrong.append(f"{len(lines)} lines of error with exit status {ended.status}")

    def _crashes(self, how):
        """Returns the statuses of crashes of TensorFlow's own code."""
        crashes = {128 + signal.SIGSEGV, 128 + signal.SIGABRT}
        return crashes if how in (*self._program.crashes, *_SHORT) else set()

    def _check_steps(self):
        """Checks that no checkpoint is older than before, and no journal shorter."""
        now = outcomes.progress(self._folder)
        for name, done in self._done.items():
            if now.get(name, -1) < done:
                lost = f"of {name}: {now.get(name, -1) + 1} to {done}"
                self.finding.lost.append(lost)

    def _check_present(self, before):
        """Checks that every file is still there, under any name."""
        now = set(outcomes.contents(self._folder).values())
        names = [name for name, digest in before.items() if digest not in now]
        self.finding.lost += [
            name
            for name in names
            if not _LIVING.fullmatch(name) and not _TRIAL_FILES.match(name)
        ]

    def _differences(self, damaged=""):
        """Returns how the folder differs from that of an undisturbed run."""
        left = outcomes.read(self._folder)
        differing = outcomes.differences(self._profile.expected, left)
        return [line for line in differing if not self._may_differ(line, damaged)]

    def _may_differ(self, difference, damaged):
        name, _, what = difference.partition(" ")
        # Itself, or as it was set aside; `*` stands for a number in the folder's name.
        if damaged and (
            fnmatch.fnmatch(name, f"{damaged}*") or fnmatch.fnmatch(damaged, name)
        ):
            return True
        folder, _, file = name.rpartition("/")
        if file == manifest.NAME and damaged.startswith(f"{folder}/"):  # names it
            return True
        if damaged == _BEST and damaged in self._said:
            return bool(_BEST_FILES.match(difference))  # it has told what is gone
        if name.endswith(".png") and f"/{name} cannot be written (" in self._said:
            return what == "is missing"
        if name == "left:" or _TRIAL_FILES.match(name):  # the next command clears it
            return len(self.finding.statuses) == 1
        if name.rpartition("/")[2].removesuffix(".unreadable") in outcomes.RECORDS:
            is_record = any(record in damaged for record in outcomes.RECORDS)
            return is_record or bool(_RECORDS_NAMED.search(self._said))
        if _CHECKPOINT.fullmatch(name):
            # The last one counts. One before it may be missing, or could not be removed.
            last = max(filter(_CHECKPOINT.fullmatch, self._profile.expected))
            return what in ("is new", "is missing") and name < last
        return False


def _damage(path, how, at):
    """Cuts a file at a byte, flips a bit of it, or removes it."""
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:at])
    else:
        drawing.flip_bit(path, at)


def _statuses(how):
    """Returns the exit statuses with which a command may end that is disturbed so."""
    if how in ("SIGKILL", "before", "after"):
        return {Status.DONE, 128 + signal.SIGKILL}
    if how in cases.SIGNALS:
        return {Status.DONE, 128 + signal.Signals[how]}
    return {Status.DONE, Status.REFUSED, Status.NOT_KEPT}
