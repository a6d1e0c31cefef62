"""Trains and evaluates models of sequences: pixels of images, tests of memory, algorithms.

    python -m trainers.pixels --task=permuted_mnist --preset=small --data_dir=DIR
    python -m trainers.pixels --task=permuted_mnist --preset=small --data_dir=DIR --mode=evaluate
    python -m trainers.pixels --task=adding --preset=small
    python -m trainers.pixels --task=addition --preset=small_tensorized

`--config.FIELD=VALUE` changes a field of the preset; flags may have any order. The run's folder is
`--workdir`, by default runs/TASK-PRESET.
"""

from absl import flags

from trainers.cli import command, run_command

FLAGS = flags.FLAGS
PROGRAM = "trainers.pixels"
MODES = ("train", "evaluate")

flags.adopt_module_key_flags(run_command)


def main(argv: list[str]) -> int:
    """Does what `--mode` says; returns the exit status."""
    return command.exit_status(argv, _do)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return run_command.parse(
        argv, PROGRAM, lambda: run_command.check_flags(argv, PROGRAM, MODES, {})
    )


def _do() -> int | None:
    if FLAGS.mode == "train":
        return run_command.train_by_flags()
    run_command.score_by_flags(PROGRAM)
    return None


if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
