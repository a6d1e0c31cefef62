"""Trains and evaluates DRAW, a model that looks at images and draws them step by step.

    python -m trainers.draw --task=mnist --preset=small --data_dir=DIR
    python -m trainers.draw --task=mnist --preset=small --config.model.decoder=ihc_lstm
    python -m trainers.draw --task=mnist --preset=small --data_dir=DIR --mode=evaluate

The tasks are mnist, svhn and cifar10. `--config.FIELD=VALUE` changes a field of the preset; flags
may have any order. The run's folder is `--workdir`, by default runs/TASK-PRESET.
"""

from absl import flags

from trainers.cli import command, run_command

PROGRAM = "trainers.draw"

flags.adopt_module_key_flags(run_command)

main, parse_flags = run_command.program(PROGRAM, run_command.usual_modes(PROGRAM))

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
