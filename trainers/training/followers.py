"""What workers other than the chief have: a run without a folder, that writes nothing."""

from collections.abc import Callable
from typing import Any

from etils import epath

from trainers.training.workdir import Change


class NoWorkdir:
    """Stands for the folder, which the chief holds."""

    path = epath.Path("the chief's folder")

    def record(self, step: int, epoch: float) -> tuple[Change, ...]:
        """Returns (): the chief tells its changes."""
        del step, epoch
        return ()

    def check_held(self) -> None:
        """Does nothing: the chief holds the folder."""

    @property
    def pending(self) -> dict[str, Any]:
        """No fields: the chief compares the configs."""
        return {}


class NoCheckpoints:
    """Stands for `checkpoints.Checkpoints`; keeps nothing."""

    folder = NoWorkdir.path
    announce: Callable[[str], None] = print
    saved: int | None = None
    unwritten_best = None

    def restore(self) -> None:
        """Finds nothing; the chief's checkpoint comes by `Team.share`."""

    def begin(self, arrays: Any) -> None:
        """Does nothing."""

    def save(self, step: int, arrays: Any) -> bool:
        """Returns that nothing is left to be written."""
        del step, arrays
        return True

    def start_saving(self, step: int, arrays: Any) -> None:
        """Does nothing."""

    def save_best(self, arrays: Any, epoch: int | None = None) -> bool:
        """Returns that nothing is left to be written."""
        del arrays, epoch
        return True

    def write_best(self) -> bool:
        """Returns that nothing is left to be written."""
        return True

    def best_epoch(self, unsaid: int = 0) -> int:
        """Returns what the run takes for the best epoch."""
        return unsaid

    def remove_old(self) -> None:
        """Does nothing."""

    def wait(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class NoProgress:
    """Stands for `progress.Progress`; shows and records nothing."""

    def say(self, line: str) -> None:
        """Does nothing."""

    def advance(self, steps: int, seconds: float) -> None:
        """Does nothing."""

    def interval(self, *args: Any) -> None:
        """Does nothing."""

    def epoch(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""

    def flush(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
