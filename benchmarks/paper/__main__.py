"""A recipe as a folder that trains on any accelerator with JAX and NumPy alone.

    python -m benchmarks.paper --task=ptb --preset=paper --config.model.dtype=mixed_bfloat16 \
      --data_dir=DIR --output=FOLDER
    python FOLDER/run.py --minutes=5

`--config.FIELD=VALUE` changes a field of the preset. The second command needs neither TensorFlow
nor this repository. Repeat it to go on.
"""

import pathlib

from absl import flags

from benchmarks.paper import export
from trainers.cli import command, run_flags, task_flags
from trainers.tasks import registry, schema
from trainers.tasks.task import AlgorithmTask

FLAGS = flags.FLAGS

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string(
    "output", None, "The folder to write. It must not exist, or be empty."
)


def main(argv: list[str]) -> int:
    """Writes the folder; returns the exit status."""
    return command.exit_status(argv, _write)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return command.parse(argv, _check_flags)


def _check_flags() -> None:
    task_flags.require(FLAGS.task, registry.TASKS)
    command.require("output")
    if isinstance(registry.TASKS[FLAGS.task], AlgorithmTask):
        raise ValueError(
            "--task must have training data that can be written; those of this task are computed "
            f"step by step. Received: --task={FLAGS.task}"
        )
    schema.check(FLAGS.config)
    if depths := FLAGS.config.training.depths:
        raise ValueError(
            "--config.training.depths must be (): all steps of a graph train all levels. "
            f"Received: --config.training.depths={depths!r}"
        )
    export.check_output(pathlib.Path(FLAGS.output))


def _write() -> None:
    folder = pathlib.Path(FLAGS.output)
    size = export.write(FLAGS.config, FLAGS.data_dir, folder)
    print(
        f"{folder}: {size / 1e6:.1f} MB. Train with: python {folder / 'run.py'} --minutes=5"
    )


if __name__ == "__main__":
    command.start(main, parse_flags)
