"""What `trainers.lm` and `trainers.pixels` share: modes and training."""

import json
import os
from collections.abc import Callable, Iterable, Mapping

from absl import flags
from etils import epath

from trainers.cli import command, config_flags, run_flags
from trainers.data import files
from trainers.tasks import names, registry, schema
from trainers.training import runs
from trainers.training.loop import NonFiniteLossError, Observe

FLAGS = flags.FLAGS

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string(
    "mode", "train", "What to do. All modes but `train` take a run as it is."
)
flags.DEFINE_string(
    "config_file",
    None,
    "A JSON file of config values, such as trainers.tune's best.json, for --task and --preset.",
)
flags.DEFINE_enum(
    "distribute",
    None,
    ("none", "mirrored"),
    "How to use several devices: `mirrored` splits each batch over them, `none` takes one. "
    "Default: mirrored if there is a GPU.",
)
_TRAIN = "train"
_MODES_OF = {
    "data_dir": (_TRAIN, "evaluate"),
    "config_file": (_TRAIN,),
    "distribute": (_TRAIN,),
}


def check_flags(
    argv: list[str],
    program: str,
    modes: Iterable[str],
    modes_of: Mapping[str, tuple[str, ...]],
) -> None:
    """Checks the flags of a command before anything is read.

    Args:
        argv: The command line.
        program: The command's name, as in `Task.program`.
        modes: The command's modes.
        modes_of: The modes that use a flag, by the name of the command's own flag.

    Raises:
        ValueError: A flag has no use in the mode, no run is named, or the task belongs to another
            command.
    """
    if FLAGS.mode not in modes:
        raise ValueError(names.unknown("--mode", FLAGS.mode, modes))
    _check_mode({**_MODES_OF, **modes_of})
    if FLAGS.mode == _TRAIN:
        command.require("task")
        schema.check(FLAGS.config)
    elif fields := config_flags.overridden(argv):
        raise ValueError(
            f"--config.{fields[0]} has no use in --mode={FLAGS.mode}: the workdir's config holds"
        )
    run_flags.check_named()
    if FLAGS.task:
        _check_task(program, FLAGS.task)
    if FLAGS.mode == _TRAIN:
        _refuse_cluster(os.environ.get("TF_CONFIG"))


def _check_mode(modes_of: Mapping[str, tuple[str, ...]]) -> None:
    for name, modes in modes_of.items():
        if FLAGS[name].present and FLAGS.mode not in modes:
            hint = "; training takes --config.seed" * (
                name == "seed" and FLAGS.mode == _TRAIN
            )
            raise ValueError(
                f"--{name} has no use in --mode={FLAGS.mode}, only in {' and '.join(modes)}{hint}"
            )


def _check_task(program: str, task: str) -> None:
    """Raises ValueError if another command trains the task."""
    other = registry.get(task).program
    if other != program:
        raise ValueError(f"--task={task} is one of python -m {other}, not of {program}")


def _refuse_cluster(text: str | None) -> None:
    """Raises ValueError if TensorFlow's TF_CONFIG names other machines.

    Each machine would train the same model alone.
    """
    try:
        config = json.loads(text) if text else {}
        machines = sum(
            len(addresses) for addresses in config.get("cluster", {}).values()
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"TF_CONFIG in the environment is not JSON of a cluster ({error}); to train on this "
            "machine, unset TF_CONFIG"
        ) from error
    if machines > 1:
        raise ValueError(
            f"TF_CONFIG in the environment names a cluster of {machines} machines, and training on "
            "several machines is not supported yet; to train on this one alone, unset TF_CONFIG"
        )


def trained_run(program: str) -> epath.Path:
    """Returns the folder of the run that the flags name, as `run_flags.trained_run` does.

    Raises:
        ValueError: Another command trained the run.
    """
    path, config = run_flags.trained_run()
    _check_task(program, config.task)
    return path


def train_by_flags(
    load: Callable[[epath.Path], runs.Experiment], observe: Observe | None = None
) -> command.Status:
    """Trains the run that the flags name; returns the exit status.

    Args:
        load: Returns what to train; takes the run's folder.
        observe: As for `runs.train`.
    """
    path = run_flags.workdir()
    files.check_folder("workdir", path)
    kept = f"checkpoints from before it, if any, are kept in {path}"
    try:
        runs.train(
            lambda: load(path), FLAGS.config, path, FLAGS.distribute, observe=observe
        )
    except NonFiniteLossError as error:
        return command.fail(f"{error}; {kept}", command.Status.NOT_FINITE)
    except command.OUT_OF_MEMORY as error:
        return command.fail(
            f"{command.out_of_memory(error)}; {kept}", command.Status.REFUSED
        )
    return command.Status.DONE
