"""Prints how many parameters each preset has, and the paper's numbers.

    python -m trainers.parameters

It needs no text, since it uses the vocabulary sizes of the published ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ml_collections import ConfigDict

from trainers.cli import command
from trainers.language import models as language_models
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.tasks.task import ImageTask, LanguageTask, SeriesTask, Task
from trainers.time_series import models as series_models


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
        for config in configs.presets(task.name):
            if count := _count(task, config):
                paper = task.sizes.get(config.preset, "")
                yield Count(task.name, config.preset, *count, paper)


def _count(task: Task, config: ConfigDict) -> tuple[int, int] | None:
    """Returns the parameters of the model and of its layer; None without a published size."""
    if isinstance(task, LanguageTask) and task.vocabulary_size:
        model = language_models.parameters(config, task.vocabulary_size)
        return model, language_models.layer_parameters(config)
    if isinstance(task, ImageTask):
        _, channels = task.images.sequence_shape
        classes = len(task.images.classes)
        model = sequence_models.parameters(config, channels, classes)
        return model, sequence_models.layer_parameters(config, channels)
    if isinstance(task, SeriesTask) and task.shape:
        channels, outputs = task.shape(config)
        model = series_models.parameters(config, channels, outputs)
        return model, sequence_models.layer_parameters(config, channels)
    return None


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
