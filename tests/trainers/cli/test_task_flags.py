"""The tasks and presets that a command offers."""

import importlib

import pytest
from absl import flags
from absl.testing import flagsaver

from trainers.cli import config_flags
from trainers.tasks import registry

IMAGES = ("seq_mnist", "permuted_mnist", "seq_cifar10")
LANGUAGE = [*registry.trained_by("trainers.lm")]
OFFERED = {
    "lm": LANGUAGE,
    "generate": LANGUAGE,
    "pixels": registry.trained_by("trainers.pixels"),
    "series": registry.trained_by("trainers.series"),
    "draw": ["mnist", "svhn", "cifar10"],
    "meta": registry.trained_by("trainers.meta"),
    "tune": [*registry.TASKS],
    "import_weights": [*LANGUAGE, *IMAGES],
    "verify": [*LANGUAGE, *IMAGES],
}


def flag_values():
    values = flags.FlagValues()
    for name in ("task", "preset"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    return values


def listed(capsys, *arguments):
    """Returns what a command line prints before the process ends."""
    with pytest.raises(SystemExit) as ended:
        config_flags.offer(["lm", *arguments], flag_values=flag_values())
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("task", registry.EVERY)
def test_the_presets_are_listed_one_a_line(task, capsys):
    lines = listed(capsys, f"--task={task}", "--preset=list")
    presets = [line.partition(":")[0].partition(" ")[0] for line in lines]
    assert presets == list(registry.get(task).presets)
    assert [line for line in lines if "(the default):" in line] == lines[:1]


@pytest.mark.parametrize("asked", ["--help", "-help", "--helpfull", "-?"])
def test_help_beside_a_task_lists_its_presets(asked, capsys):
    values = flag_values()
    config_flags.offer(["lm", "--task=pydoc", asked], LANGUAGE, values)
    told = values["preset"].help.splitlines()[1:]
    assert told == listed(capsys, "--task=pydoc", "--preset=list")


@pytest.mark.parametrize("program", OFFERED)
def test_a_command_offers_the_tasks_that_it_takes(program, capsys):
    """In its help, and in the error for a task that there is nowhere."""
    module = importlib.import_module(f"trainers.{program}")
    named = ", ".join(OFFERED[program])
    with flagsaver.flagsaver():
        with pytest.raises(SystemExit):
            module.parse_flags([program, "--task=qqqq"])
        told = flags.FLAGS["task"].help
    assert told == f"The task: one of {named}."
    assert capsys.readouterr().err.endswith(f"expected one of {named}\n")
