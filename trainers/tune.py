"""Searches for better settings of a task's preset, with Optuna.

    python -m trainers.tune --task=text --data_dir=DIR --hours=2 --study=FOLDER

Each trial is a run of equal processor time. Trial 0 is the preset itself. Each other one has the
settings of the best so far, but for up to three entries of the task's search space. A trial whose
validation curve is worse than those of half of the others ends early. The same command goes on with
a study that was stopped or killed, and several processes may work on one. The best settings are in
FOLDER/best.json, for `python -m trainers.lm --config_file=FOLDER/best.json`; FOLDER/study.md has
all trials.

A field that `--config.FIELD=VALUE` sets is not searched. `--config_file` begins with the values of
a file, such as another study's best.json, in place of a preset's.
"""

import math
import re

from absl import flags
from etils import epath

from trainers.cli import command, config_file, config_flags, run_flags
from trainers.data import files, names
from trainers.studies import budget, study
from trainers.tasks import registry, schema

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(run_flags)
flags.adopt_module_key_flags(config_file)
flags.DEFINE_string("study", None, "The folder of the study.")
flags.DEFINE_float(
    "hours",
    None,
    "Wall time of the whole study: of all processes that work on it, added up.",
)
flags.DEFINE_integer(
    "trials", None, "The number of trials of the whole study.", lower_bound=1
)
flags.DEFINE_float(
    "trial_seconds",
    None,
    "Processor seconds of the training steps of a trial. "
    f"Default: those of the study or, at first, a {study.TRIALS}th of --hours, times --threads.",
)
flags.DEFINE_integer(
    "parameters",
    None,
    "The number of parameters of each model. Default: the preset's, or those of the trial's "
    "model.units, if the task's search space has them.",
    1,
)
flags.DEFINE_integer("threads", 1, "Threads of a process.", 1, 1024)


def _check_flags() -> None:
    config_flags.require(FLAGS.task, registry.TASKS)
    command.require("study")
    if FLAGS.workdir:
        raise ValueError("--workdir has no use here: --study is the folder of all runs")
    expected = "a folder on a disk of this machine"
    names.check_flag(
        "study", FLAGS.study, expected, not re.match(r"\w+:/", FLAGS.study)
    )
    schema.check(FLAGS.config)
    if FLAGS.hours is None and FLAGS.trials is None:
        raise ValueError("--hours or --trials is missing; the study would not end")
    for name in ("hours", "trial_seconds"):
        value = FLAGS[name].value
        if value is not None:
            names.check_flag(name, value, "a number above 0", 0 < value < math.inf)


def _tune() -> None:
    path = epath.Path(FLAGS.study)
    files.check_folder("study", path)
    budget.fix_threads(FLAGS.threads)
    settings = study.Settings(
        FLAGS.config,
        FLAGS.data_dir,
        FLAGS.trial_seconds,
        FLAGS.parameters,
        FLAGS.threads,
        fixed=_fixed(),
    )
    study.tune(path, settings, study.Limits(FLAGS.hours, FLAGS.trials))


def _fixed() -> tuple[str, ...]:
    """Returns the fields that the command line sets."""
    given = [
        name for name in FLAGS if name.startswith("config.") and FLAGS[name].present
    ]
    return tuple(name.removeprefix("config.") for name in given)


main, parse_flags = command.program(_tune, _check_flags)

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
