"""What the commands have in common that train runs: modes, the run's folder, and their flags."""

import json
import os
from collections.abc import Callable, Mapping, Sequence

from absl import flags
from etils import epath

from trainers.cli import command, config_flags, run_flags
from trainers.data import files
from trainers.tasks import names, registry, schema
from trainers.training import runs
from trainers.training.loop import NonFiniteLossError

FLAGS = flags.FLAGS

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string("mode", "train", "What to do; all but train take a workdir's model.")
flags.DEFINE_enum(
    "distribute", None, ("none", "mirrored"), "Mirrored over the GPUs where there are some."
)
_APPLIES = {"data_dir": ("train", "evaluate"), "distribute": ("train",)}


def main(argv: list[str], modes: Mapping[str, Callable[[], None]]) -> int:
    """Runs the mode that the flags name; returns the exit status."""
    return command.run(argv, lambda: _run(modes[FLAGS.mode]))


def _run(mode: Callable[[], int | None]) -> int | None:
    kept = f"checkpoints from before it, if any, are kept in {workdir()}"
    try:
        return mode()
    except NonFiniteLossError as error:
        return command.fail(f"{error}; {kept}", command.Status.NOT_FINITE)
    except command.OUT_OF_MEMORY as error:
        return command.fail(f"{command.out_of_memory(error)}; {kept}", command.Status.REFUSED)


def parse_flags(
    argv: list[str],
    program: str,
    modes: Sequence[str],
    applies: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Parses a command line for `command.start`; exits with one line where it is not valid.

    Args:
        argv: The command line.
        program: The command's name, as in `Task.program`.
        modes: Its modes.
        applies: For each flag of its own the modes that it applies to.
    """

    def check(argv: list[str]) -> None:
        if FLAGS.mode not in modes:
            raise ValueError(names.unknown("--mode", FLAGS.mode, modes))
        _check_flags(argv, {**_APPLIES, **(applies or {})})
        if FLAGS.task:
            _check_task(program, FLAGS.task)
        if FLAGS.mode == "train":
            _refuse_cluster(os.environ.get("TF_CONFIG"))

    return command.parse_flags(argv, check)


def workdir() -> epath.Path:
    """Returns the folder of the run, by default runs/TASK-PRESET."""
    if FLAGS.workdir:
        return epath.Path(FLAGS.workdir).expanduser()
    return epath.Path("runs") / f"{FLAGS.config.task}-{FLAGS.config.preset}"


def new_workdir() -> epath.Path:
    """Returns the folder of a run to train; raises ValueError where none can be."""
    files.check_folder("workdir", workdir())
    return workdir()


def check_run(program: str) -> None:
    """Refuses a run of another program, and a task or a preset that is not the run's.

    Raises:
        ValueError, WorkdirError: So it is, or there is no run in the folder.
    """
    config = runs.load_config(workdir())
    _check_task(program, config.task)
    for name in ("task", "preset"):
        given = FLAGS[name].value
        if given is not None and given != config[name]:
            raise ValueError(
                f"--{name}={given} is not that of the run in {workdir()}, {config[name]}; "
                f"leave out --{name}, or choose another --workdir"
            )


def _check_flags(argv: list[str], applies: Mapping[str, Sequence[str]]) -> None:
    """Refuses flags that the mode has no use for, and a run without a name."""
    for name, modes in applies.items():
        if FLAGS[name].present and FLAGS.mode not in modes:
            hint = (
                "; training takes --config.seed" if (name, FLAGS.mode) == ("seed", "train") else ""
            )
            raise ValueError(
                f"--{name} has no use in --mode={FLAGS.mode}, only in {' and '.join(modes)}{hint}"
            )
    if FLAGS.mode != "train" and (fields := config_flags.overridden(argv)):
        raise ValueError(
            f"--config.{fields[0]} has no use in --mode={FLAGS.mode}: the workdir's config holds"
        )
    if FLAGS.mode == "train" or not FLAGS.workdir:
        command.require("task")
    if FLAGS.mode == "train":
        schema.check(FLAGS.config)


def _refuse_cluster(text: str | None) -> None:
    """Raises ValueError where TensorFlow's TF_CONFIG names more machines than this one.

    Each would train alone, and the same.
    """
    try:
        config = json.loads(text) if text else {}
        machines = sum(len(addresses) for addresses in config.get("cluster", {}).values())
        task = config.get("task", {})
        kind, index = task.get("type", "worker"), int(task.get("index", 0))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"TF_CONFIG in the environment is not JSON of a cluster ({error}); to train on this "
            "machine, unset TF_CONFIG"
        ) from error
    if machines > 1 or index > 0:
        named = f"a cluster of {machines} machines" if machines > 1 else f"this as {kind} {index}"
        raise ValueError(
            f"TF_CONFIG in the environment names {named}, and training on several machines is not "
            "supported yet; to train on this one alone, unset TF_CONFIG"
        )


def _check_task(program: str, task: str) -> None:
    """Raises ValueError where another program trains the task."""
    other = registry.get(task).program
    if other != program:
        raise ValueError(f"--task={task} is one of python -m {other}, not of {program}")
