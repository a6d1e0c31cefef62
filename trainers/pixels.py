"""Trains and evaluates models of sequences: images pixel by pixel, and tests of memory.

    python -m trainers.pixels --task=permuted_mnist --preset=small --data_dir=DIR
    python -m trainers.pixels --task=permuted_mnist --preset=small --data_dir=DIR --mode=evaluate
    python -m trainers.pixels --task=adding --preset=small

`--config.FIELD=VALUE` changes a field of the preset, whatever the order of the flags. The run's
folder is `--workdir`, by default runs/TASK-PRESET.
"""

from absl import flags

from trainers.cli import command, run_command
from trainers.sequences import experiment

FLAGS = flags.FLAGS
PROGRAM = "trainers.pixels"
MODES = ("train", "evaluate")

flags.adopt_module_key_flags(run_command)


def main(argv: list[str]) -> int:
    """Runs one mode; returns the exit status."""
    return run_command.main(argv, dict(zip(MODES, (_train, _evaluate), strict=True)))


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line for `command.start`; exits with one line where it is not valid."""
    return run_command.parse_flags(argv, PROGRAM, MODES)


def _train() -> None:
    experiment.train(FLAGS.config, run_command.new_workdir(), FLAGS.data_dir, FLAGS.distribute)


def _evaluate() -> None:
    run_command.check_run(PROGRAM)
    experiment.evaluate(run_command.workdir(), FLAGS.data_dir)


if __name__ == "__main__":
    command.start(main, parse_flags)
