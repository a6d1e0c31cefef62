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

PROGRAM = "trainers.pixels"

flags.adopt_module_key_flags(run_command)

main, parse_flags = run_command.program(PROGRAM, run_command.usual_modes(PROGRAM))

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
