"""What workers other than the chief have: a run without a folder, that writes nothing."""

from collections.abc import Callable
from typing import Any

from etils import epath


class Nothing:
    """Takes every call, and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class NoWorkdir(Nothing):
    """Stands for the folder, which the chief holds."""

    path = epath.Path("the chief's folder")
    # The chief compares the configs, and tells its changes.
    pending: dict[str, Any] = {}

    def record(self, step: int, epoch: float) -> tuple[()]:
        """Returns (): the chief tells its changes."""
        del step, epoch
        return ()


class NoCheckpoints(Nothing):
    """Stands for `checkpoints.Checkpoints`; keeps nothing.

    The chief's checkpoint comes by `Team.share`. What is saved here leaves nothing to be written.
    """

    folder = NoWorkdir.path
    announce: Callable[[str], None] = print
    saved: int | None = None
    unwritten_best = None

    def save(self, step: int, arrays: Any) -> bool:
        """Returns True."""
        del step, arrays
        return True

    def save_best(self, arrays: Any, epoch: int | None = None) -> bool:
        """Returns True."""
        del arrays, epoch
        return True

    def best_epoch(self, unsaid: int = 0) -> int:
        """Returns what the run takes for the best epoch."""
        return unsaid
