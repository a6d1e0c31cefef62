"""The flags that name a run, and the run that they name."""

import sys
from collections.abc import Callable, Iterable, Sequence

import ml_collections
from absl import flags
from etils import epath

from trainers.cli import command, config_flags
from trainers.data.stores import to_path
from trainers.tasks import registry

FLAGS = flags.FLAGS

flags.DEFINE_string("task", None, f"The task: one of {', '.join(registry.TASKS)}.")
flags.DEFINE_string(
    "preset",
    None,
    "The preset of the task; `list` prints those of --task. Default: the task's first preset.",
)
flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")
flags.DEFINE_string(
    "workdir", None, "The folder of the run. Default: runs/TASK-PRESET."
)


def workdir() -> epath.Path:
    """Returns the folder of the run that the flags name."""
    if FLAGS.workdir:
        return to_path(FLAGS.workdir)
    return config_flags.default_path(FLAGS.config.task, FLAGS.config.preset)


def trained_run() -> tuple[epath.Path, ml_collections.ConfigDict]:
    """Returns the folder of the run that the flags name, and the run's config.

    Raises:
        WorkdirError: the folder has no run.
        ValueError: `--task` or `--preset` differs from the run's.
    """
    from trainers.tasks import run_folders

    path = workdir()
    config = run_folders.load_config(path)
    for name in ("task", "preset"):
        given = FLAGS[name].value
        if given is not None and given != config[name]:
            raise ValueError(
                f"--{name}={given} is not that of the run in {path}, {config[name]}; "
                f"leave out --{name}, or choose another --workdir"
            )
    return path, config


def parse(
    argv: list[str], check: Callable[[], None], tasks: Sequence[str] = ()
) -> list[str]:
    """Parses the command line like `command.parse`, and refuses `--config` fields."""
    if fields := config_flags.overridden(argv):
        message = f"--config.{fields[0]} has no use here: --workdir says which run"
        sys.exit(command.fail(message, command.Status.REFUSED))
    return command.parse(argv, check, tasks)


def check_named(tasks: Iterable[str] = registry.TASKS) -> None:
    """Raises ValueError if the flags name no run; the message has the tasks."""
    if not FLAGS.workdir:
        config_flags.require(FLAGS.task, tasks)
