"""Trains a recurrent network to be an optimizer.

    python -m trainers.meta --task=quadratic --preset=small
    python -m trainers.meta --task=quadratic --preset=small --config.model.cell=ihc_lstm
    python -m trainers.meta --task=quadratic --preset=small --config.model.update_rule=gated
    python -m trainers.meta --task=mnist_mlp --preset=small --data_dir=DIR

The tasks are quadratic, mnist_mlp, cifar10_cnn and cifar10_resnet. `--config.FIELD=VALUE` changes a
field of the preset; flags may have any order. The run's folder is `--workdir`, by default
runs/TASK-PRESET. Its optimizer.npz is a file for RecurrentOptimizer.load; `trainers.meta_evaluate`
measures runs.
"""

from absl import flags

from trainers.cli import command, run_command

flags.adopt_module_key_flags(run_command)

main, parse_flags = run_command.program(
    "trainers.meta", {"train": run_command.train_by_flags}
)

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
