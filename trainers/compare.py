"""Compares a trellis network with other layers: equal parameters, equal processor time.

    python -m trainers.compare --tasks=adding,copy_memory --models=trellis,lstm,gru,tcn --seeds=5 \
      --seconds=60 --output=FOLDER

Each model begins with the settings of `configs/baselines.py`, with its own file of
`--config_files`, or with what `--trials` trials find. Each run is an ordinary run in
FOLDER/TASK/MODEL/SEED. The same command goes on with a comparison that was stopped or killed, and
several processes may work in one folder. FOLDER/comparison.md has the table, comparison.png the
curves, points.csv all points.
"""

import math
import shlex
import sys

from absl import flags
from etils import epath

from trainers.cli import command, config_flags
from trainers.data import names
from trainers.data.files import check_folder
from trainers.studies import comparison, comparison_report
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.training.workdir import check_output

FLAGS = flags.FLAGS
_MOST_SEEDS = 20  # the paired test tries all signs


def define_flags() -> None:
    """Defines the command's flags, some of which other commands have too."""
    _define_models()
    _define_runs()
    flags.DEFINE_string("data_dir", None, "The folder of the tasks' data files.")
    flags.DEFINE_string("output", None, "The folder of the comparison.")


def _define_models() -> None:
    """Defines the flags that say what is compared."""
    flags.DEFINE_list("tasks", [], f"Some of {', '.join(registry.TASKS)}.")
    flags.DEFINE_list(
        "models",
        list(comparison.MODELS[:4]),
        f"Some of {', '.join(comparison.MODELS)}; the others are compared with the first.",
    )
    flags.DEFINE_string(
        "preset", "small", "The preset of each task that settings begin with."
    )
    flags.DEFINE_list(
        "config_files",
        [],
        "Configs that replace presets; each names its task and its layer.",
    )
    flags.DEFINE_integer(
        "parameters",
        None,
        "The number of parameters. Default: near the first model's.",
        1,
    )


def _define_runs() -> None:
    """Defines the flags that say how many runs there are, and how long each trains."""
    flags.DEFINE_integer("seeds", 5, "Runs of each model on each task.", 1, _MOST_SEEDS)
    flags.DEFINE_list(
        "seconds",
        ["60"],
        "Processor seconds of a run's training steps: one number, or one a task.",
    )
    flags.DEFINE_integer("trials", 0, "Trials that tune each model on each task.", 0)
    flags.DEFINE_integer(
        "validations",
        20,
        "Validations of a run, and of a trial; none counts as time.",
        1,
    )
    flags.DEFINE_integer(
        "patience",
        None,
        "Ends a run after so many validations without a better loss, and lowers its learning rate "
        "at plateaus instead of along a cosine; --seconds are then the most.",
        1,
    )
    flags.DEFINE_integer("threads", 1, "Threads of a process.", 1, 1024)


def _check_flags() -> None:
    command.require("tasks", "output")
    comparison.check_names("--tasks", FLAGS.tasks, list(registry.TASKS))
    comparison.check_names("--models", FLAGS.models, comparison.MODELS)
    expected = "a folder on a disk of this machine"  # processes share it by locks
    names.check_flag("output", FLAGS.output, expected, "://" not in FLAGS.output)
    expected = "0 with --patience: a trial would take all of --seconds"
    fits = not (FLAGS.trials and FLAGS.patience)
    names.check_flag("trials", str(FLAGS.trials), expected, fits)
    _seconds()


def _seconds() -> list[float]:
    """Returns the processor seconds of a run of each task."""
    given = FLAGS.seconds
    try:
        numbers = [float(text) for text in given]
    except ValueError:
        numbers = []
    fits = len(numbers) in (1, len(FLAGS.tasks)) and all(
        0 < number < math.inf for number in numbers
    )
    expected = "a number above 0, or one for each of --tasks"
    names.check_flag("seconds", ",".join(given), expected, fits)
    return numbers * (len(FLAGS.tasks) // len(numbers))


def _compare() -> int:
    path = epath.Path(FLAGS.output).expanduser()
    check_folder("output", path)
    check_output(path)
    for task in FLAGS.tasks:
        config_flags.say_renamed(task, FLAGS.preset)
    settings = comparison.Settings(
        FLAGS.tasks,
        FLAGS.models,
        FLAGS.seeds,
        _seconds(),
        FLAGS.preset,
        FLAGS.parameters,
        FLAGS.trials,
        FLAGS.validations,
        FLAGS.threads,
        FLAGS.data_dir,
        _given(),
        FLAGS.patience,
    )
    line = shlex.join(["python", "-m", "trainers.compare", *sys.argv[1:]])
    plans, status = comparison.compare(path, settings)
    print(comparison_report.write(path, settings, plans, line), flush=True)
    return status


def _given() -> dict:
    """Returns the configs of `--config_files` by task and model."""
    given = {}
    for file in FLAGS.config_files:
        config = configs.read(file)
        place = (config.task, config.model.layer)
        if config.task not in FLAGS.tasks or config.model.layer not in FLAGS.models:
            raise ValueError(
                f"--config_files must be of one of --tasks and --models. Received: {file}, of the "
                f"layer {place[1]!r} on --task={place[0]}"
            )
        if place in given:
            raise ValueError(
                f"--config_files has the layer {place[1]!r} on --task={place[0]} twice, at last in "
                f"{file}"
            )
        given[place] = config
    return given


main, parse_flags = command.program(_compare, _check_flags)

if __name__ == "__main__":
    define_flags()
    command.start(main, parse_flags, computes=True)
