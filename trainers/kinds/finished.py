"""A finished run, and the commands for what one does with it."""

import dataclasses

from etils import epath

Command = tuple[str, list[str]]
"""What a command does, and its module with its arguments."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """A finished run.

    Attributes:
        path: its folder.
        name: what its results are called.
        data_dir: the folder of its data files; None if it was given none.
    """

    path: epath.Path
    name: str
    data_dir: str | None

    @property
    def workdir(self) -> str:
        """The flag of its folder."""
        return f"--workdir={self.path}"

    @property
    def data(self) -> list[str]:
        """The flag of its data, if it has files."""
        return [f"--data_dir={self.data_dir}"] if self.data_dir else []

    @property
    def model(self) -> str:
        """The folder of its export."""
        return f"models/{self.name}"

    @property
    def export(self) -> Command:
        """The command that exports its model."""
        output = f"--output={self.model}"
        return "export for a server", ["trainers.export", self.workdir, output]

    @property
    def report(self) -> Command:
        """The command that draws its curves."""
        output = f"--output=reports/{self.name}"
        return "a table and curves", ["trainers.report", str(self.path), output]

    def score(self, program: str = "trainers.evaluate") -> Command:
        """Returns the command of a program that scores it."""
        return "score again", [*program.split(), self.workdir, *self.data]
