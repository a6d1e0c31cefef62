"""Trains and evaluates models of recordings: series of several channels, of any lengths.

    python -m trainers.series --task=watch
    python -m trainers.series --task=watch --mode=evaluate
    python -m trainers.series --task=csv --data_dir=DIR --config.data.label=fault
    python -m trainers.series --mode=predict --workdir=RUN --input=NEW --output=answers.csv
    python -m trainers.series --mode=follow --workdir=RUN

`--config.FIELD=VALUE` changes a field of the preset; flags may have any order. The run's folder is
`--workdir`, by default runs/TASK-PRESET. `--mode=predict` writes what the run's best model says of
the tables in `--input`, or of the test recordings without it. `--mode=follow` streams one test
recording, sample by sample, and draws the probability of each class over time.
"""

from absl import flags

from trainers.cli import command, ending, run_command
from trainers.data import names
from trainers.data.stores import to_path
from trainers.tasks import registry, run_folders
from trainers.time_series import following, predictions

FLAGS = flags.FLAGS
PROGRAM = "trainers.series"
PREDICT, FOLLOW = "predict", "follow"

flags.adopt_module_key_flags(run_command)
flags.DEFINE_string(
    "recording", None, "The test recording to follow. Default: the first one."
)


def define_flags() -> None:
    """Defines the flags that other commands have too, with another meaning."""
    flags.DEFINE_string("input", None, "The folder of the tables to predict.")
    flags.DEFINE_string(
        "output",
        None,
        "The CSV file of the predictions, a new one; or the picture of --mode=follow. Default of "
        "that: followed.png in the run's folder.",
    )


def _check_flags() -> None:
    if FLAGS.mode != PREDICT:
        return
    command.require("output")
    if FLAGS.input is not None:
        names.check_flag("input", repr(FLAGS.input), "a folder", bool(FLAGS.input))
        if FLAGS.data_dir is not None:
            raise ValueError(
                f"--data_dir has no use with --input={FLAGS.input}, which has what is predicted"
            )


def _predict() -> None:
    output = to_path(FLAGS.output)
    predictions.refuse_existing(output)
    path = run_command.trained_run(PROGRAM)
    print(predictions.write(path, FLAGS.data_dir, FLAGS.input, output))


def _follow() -> None:
    path = run_command.trained_run(PROGRAM)
    output = path / "followed.png"
    if FLAGS.output is not None:
        output = to_path(FLAGS.output)
        predictions.refuse_existing(output)
    print(following.follow(path, FLAGS.data_dir, FLAGS.recording, output))
    task = registry.get(run_folders.load_config(path).task)
    print("\n".join(ending.lines(task, path, FLAGS.data_dir)))


MODES = {
    **run_command.usual_modes(PROGRAM),
    PREDICT: _predict,
    FOLLOW: _follow,
}
main, parse_flags = run_command.program(
    PROGRAM,
    MODES,
    {
        "input": (PREDICT,),
        "output": (PREDICT, FOLLOW),
        "recording": (FOLLOW,),
        "data_dir": tuple(MODES),
    },
    _check_flags,
)

if __name__ == "__main__":
    define_flags()
    command.start(main, parse_flags, computes=True)
