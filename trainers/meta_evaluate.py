"""Tries trained optimizers where they were not trained, beside optimizers with tuned rates.

    python -m trainers.meta_evaluate runs/quadratic-lstm runs/quadratic-ihc --output=evaluation

The runs are those of `trainers.meta`, of one task and alike in their data. The command tries their
best networks on draws, lengths and sizes that none was trained on, with SGD, momentum, RMSprop and
Adam on the same draws; these have in each setting the rate of the least mean last loss on other
draws. evaluation.md has the table, evaluation.png the curves, means.png the means over the draws,
as Figure 3 of Kuo et al. 2020, points.csv all points; they are written after each setting.
"""

import os
import shlex
import sys
from collections.abc import Sequence

import tensorflow as tf
from absl import flags
from etils import epath
from ml_collections import ConfigDict

from trainers.cli import command
from trainers.data.files import check_folder
from trainers.data.stores import to_path
from trainers.learned_optimizers import evaluation, experiment, report
from trainers.learned_optimizers.core import UpdateNetwork
from trainers.learned_optimizers.evaluation import Outcome
from trainers.tasks import registry, run_folders
from trainers.training import checkpoints
from trainers.training.workdir import check_output

PROGRAM = "trainers.meta"


def define_flags() -> None:
    """Defines the command's flags, some of which other commands have too."""
    flags.DEFINE_string("output", ".", "The folder for the table and the picture.")
    flags.DEFINE_integer("draws", 20, "Functions to optimize in each setting.", 1)
    flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")


parse_flags = command.parse


def main(argv: list[str]) -> int:
    """Evaluates, writes and prints; returns the exit status."""
    return command.exit_status(argv[:1], lambda: run(argv[1:], flags.FLAGS))


def run(paths: Sequence[str], values: flags.FlagValues) -> None:
    """Evaluates the runs in folders, and writes and prints what it finds.

    Raises:
        ValueError, OSError, WorkdirError: a folder or the data cannot be used.
    """
    place = to_path(values.output)
    check_folder("output", place)
    check_output(place)
    folders = [to_path(path) for path in paths]
    networks, config = load(folders)
    data = experiment.load_images(config, values.data_dir)
    place.mkdir(parents=True, exist_ok=True)
    tf.config.experimental.enable_op_determinism()
    line = shlex.join(["python", "-m", "trainers.meta_evaluate", *sys.argv[1:]])
    outcomes: list[Outcome] = []
    for setting in evaluation.settings(config):
        tries = evaluation.evaluate(setting, networks, config, data, values.draws)
        for outcome in tries:
            message = f"{outcome.setting}, {outcome.optimizer}: {outcome.final:.4g}"
            print(message, flush=True)
            outcomes.append(outcome)
        table = report.write(place, outcomes, line)  # a long evaluation may be ended
    print(f"\n{table}", flush=True)


def load(folders: Sequence[epath.Path]) -> tuple[dict[str, UpdateNetwork], ConfigDict]:
    """Returns the best network of each run by its folder's name, and the first run's config.

    Raises:
        ValueError: there is no folder, one is given twice, a run is of another command, or
            two runs differ in their data.
        WorkdirError: a folder has no trained run.
    """
    names = [os.path.basename(os.path.realpath(folder)) for folder in folders]
    if not names or len(set(names)) < len(names):
        received = shlex.join(map(str, folders)) or "nothing"
        raise ValueError(
            f"expected folders of runs, each of another name. Received: {received}"
        )
    configs = [run_folders.load_config(folder) for folder in folders]
    for folder, config in zip(folders, configs, strict=True):
        _check(folder, config, configs[0])
    networks = {}
    for name, folder, config in zip(names, folders, configs, strict=True):
        networks[name] = experiment.build(config)
        checkpoints.load_best(folder, networks[name])
    return networks, configs[0]


def _check(folder: epath.Path, config: ConfigDict, first: ConfigDict) -> None:
    if registry.get(config.task).program != PROGRAM:
        raise ValueError(f"{folder} is not a run of python -m {PROGRAM}")
    alike = {"episodes": None, "evaluated": None}
    data = [{**run_config.data.to_dict(), **alike} for run_config in (first, config)]
    if config.task != first.task or data[0] != data[1]:
        raise ValueError(
            f"{folder} has another task or other data than the first run; evaluate it "
            "by itself"
        )


if __name__ == "__main__":
    define_flags()
    command.start(main, parse_flags, computes=True)
