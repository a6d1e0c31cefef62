"""Prints how many parameters each preset has, and the paper's numbers.

    python -m trainers.parameters

It needs no text, since it uses the vocabulary sizes of the published ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

from trainers.cli import command
from trainers.tasks import config as configs
from trainers.tasks import registry


class Count(NamedTuple):
    """The parameters of a preset.

    Attributes:
        task: the task's name.
        preset: the preset's name.
        model: the number of parameters of the model.
        layer: that of its sequence layer, which is a stack if it is recurrent.
        paper: the paper's number, or an empty string.
    """

    task: str
    preset: str
    model: int
    layer: int
    paper: str


def counts() -> Iterator[Count]:
    """Yields those of each preset whose data have a published size."""
    for task in registry.TASKS.values():
        published = task.part("experiment").load.published_parameters
        for config in configs.presets(task.name):
            if (counted := published(config)) is not None:
                model, layer = counted
                paper = task.sizes.get(config.preset, "")
                yield Count(task.name, config.preset, model, layer, paper)


def main(argv: list[str]) -> int:
    """Prints the table, in Markdown; returns the exit status."""
    return command.exit_status(argv, _print)


parse_flags = command.parse


def _print() -> None:
    print("| task | preset | parameters | of the layer | paper |")
    print("| --- | --- | ---: | ---: | ---: |")
    for row in counts():
        names = f"`{row.task}` | `{row.preset}`"
        print(f"| {names} | {row.model:,} | {row.layer:,} | {row.paper} |")


if __name__ == "__main__":
    command.start(main, parse_flags)
