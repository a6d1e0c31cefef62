"""Prints how many parameters each preset of each task has, beside the paper's numbers.

    python -m trainers.parameters

The sizes of the vocabularies are those of the published texts, so that no text is needed.
"""

from collections.abc import Iterator

from trainers.cli import command
from trainers.language import models as language_models
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.tasks.task import ImageTask, LanguageTask, Task


def counts() -> Iterator[tuple[str, str, int, str]]:
    """Yields task, preset, number of parameters and what the paper says, or nothing."""
    for task in registry.TASKS.values():
        for preset in task.presets:
            count = _count(task, preset)
            if count is not None:
                yield task.name, preset, count, task.sizes.get(preset, "")


def _count(task: Task, preset: str) -> int | None:
    """Returns the number of parameters; None for data of no published size."""
    config = configs.load(task.name, preset)
    if isinstance(task, LanguageTask) and task.vocabulary_size:
        return language_models.parameters(config, task.vocabulary_size)
    if isinstance(task, ImageTask):
        _, channels = task.images.sequence_shape
        return sequence_models.parameters(config, channels, len(task.images.classes))
    return None


def main(argv: list[str]) -> int:
    """Prints the table, in Markdown; returns the exit status."""
    return command.exit_status(argv, _print)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line for `command.start`; exits with one line where it is not valid."""
    return command.parse(argv, lambda argv: None)


def _print() -> None:
    print("| task | preset | parameters | paper |\n| --- | --- | ---: | ---: |")
    for task, preset, count, paper in counts():
        print(f"| `{task}` | `{preset}` | {count:,} | {paper} |", flush=True)


if __name__ == "__main__":
    command.start(main, parse_flags)
