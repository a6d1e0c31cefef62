"""Which run a file belongs to, and which program trained it from which step on."""

import functools
import importlib.metadata
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).parents[2]


class Program(NamedTuple):
    """A version of this package.

    Attributes:
        version: that of the package's metadata.
        commit: in a clone, the commit, with "-dirty" where files differ from it; else None.
    """

    version: str
    commit: str | None

    def __str__(self) -> str:
        return f"{self.version} (commit {self.commit})" if self.commit else self.version


class Trained(NamedTuple):
    """By which program a run was trained from a step on."""

    step: int
    program: Program


class Identity(NamedTuple):
    """The run of a folder.

    Attributes:
        run_id: an id that no other run has. It is no function of the seed, since two runs of one
            seed are two.
        trained: the programs that have trained the run, in the order of their first steps.
    """

    run_id: str
    trained: tuple[Trained, ...] = ()

    def by(self, program: Program, step: int) -> "Identity":
        """Returns the identity of the run that goes on from a step under a program."""
        former = tuple(entry for entry in self.trained if entry.step < step)
        if not former or former[-1].program != program:
            former += (Trained(step, program),)
        return self._replace(trained=former)

    def news(self, step: int) -> list[str]:
        """Returns a line if another program trains the run from this step on than before."""
        *former, last = self.trained
        if step == 0 or last.step != step:
            return []
        # A release before 0.2 kept no record.
        before = former[-1].program if former else "of an earlier release"
        return [
            f"trained by keras_trellis {before} until step {step}, and by {last.program} from here "
            "on"
        ]

    def value(self) -> dict[str, Any]:
        """Returns the value to keep in JSON."""
        trained = [
            {"step": entry.step, **entry.program._asdict()} for entry in self.trained
        ]
        return {"id": self.run_id, "trained": trained}


def new() -> Identity:
    """Returns the identity of a new run."""
    return Identity(uuid.uuid4().hex)


def from_value(value: Any) -> Identity:
    """Returns the identity in a value of JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        trained = tuple(
            Trained(int(entry["step"]), Program(entry["version"], entry["commit"]))
            for entry in value["trained"]
        )
        return Identity(str(value["id"]), trained)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{value!r} is no identity of a run ({error!r})") from error


@functools.cache
def program() -> Program:
    """Returns the version of the package at work."""
    try:
        version = importlib.metadata.version("keras_trellis")
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        version = "of an unknown version"
    return Program(version, _commit())


def _commit() -> str | None:
    if not (_ROOT / ".git").exists():  # a user's own repository may hold .venv
        return None
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        process = subprocess.run(
            command,
            cwd=_ROOT,
            # Git may not write the index of a clone in which somebody is at work.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None
