"""Prints how many parameters each preset has, and the paper's numbers.

    python -m trainers.parameters

It needs no text, since it uses the vocabulary sizes of the published ones.
"""

from collections.abc import Iterator

from ml_collections import ConfigDict

from trainers.cli import command
from trainers.language import models as language_models
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.tasks.task import ImageTask, LanguageTask, Task


def counts() -> Iterator[tuple[str, str, int, str]]:
    """Yields task, preset, number of parameters, and the paper's number or an empty string."""
    for task in registry.TASKS.values():
        for config in configs.presets(task.name):
            if count := _count(task, config):
                yield task.name, config.preset, count, task.sizes.get(config.preset, "")


def _count(task: Task, config: ConfigDict) -> int | None:
    """Returns the number of parameters; None if the data have no published size."""
    if isinstance(task, LanguageTask) and task.vocabulary_size:
        return language_models.parameters(config, task.vocabulary_size)
    if isinstance(task, ImageTask):
        _, channels = task.images.sequence_shape
        return sequence_models.parameters(config, channels, len(task.images.classes))
    return None


def main(argv: list[str]) -> int:
    """Prints the table, in Markdown; returns the exit status."""
    return command.exit_status(argv, _print)


parse_flags = command.parse


def _print() -> None:
    print("| task | preset | parameters | paper |\n| --- | --- | ---: | ---: |")
    for task, preset, count, paper in counts():
        print(f"| `{task}` | `{preset}` | {count:,} | {paper} |", flush=True)


if __name__ == "__main__":
    command.start(main, parse_flags)
