"""Trains the model of a number in a paper's table, on JAX, and writes a card with its score.

    python -m trainers.reproduce --table
    python -m trainers.reproduce --row=ptb-word --data_dir=DIR --minutes=60
    python -m trainers.reproduce --row=ptb-word --data_dir=DIR --small

TensorFlow is not needed. The program uses all devices of this machine. The same command goes on
with a run that has stopped. The run's folder is `--workdir`, by default runs/TASK-PRESET, and
runs/ROW-small for a small form; where TensorFlow is, `trainers.evaluate`, `trainers.generate` and
`trainers.export` take it.
`--task` and `--preset` instead of `--row` name any other recipe, and `--config.FIELD=VALUE` changes
a field of it.
"""

import math
import time

from absl import flags
from ml_collections import ConfigDict

from configs import papers
from configs.papers import ROWS, Row
from trainers.cli import command, config_flags, run_flags
from trainers.data import names
from trainers.papers.rows import of_recipe
from trainers.tasks import config as configs
from trainers.tasks import registry, schema

FLAGS = flags.FLAGS
_BEGAN = time.monotonic()
TASKS = [name for name, task in registry.TASKS.items() if task.reproduction]
_TRAINING = ("data_dir", "workdir", "minutes")

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string("row", None, f"The row of a table: one of {', '.join(ROWS)}.")
flags.DEFINE_bool(
    "small",
    False,
    "Take the small form of a row, which tries the whole path in minutes of a CPU.",
)
flags.DEFINE_bool(
    "table",
    False,
    "Print the memory, the FLOPs and the hours that rows take on this machine, by a measurement of "
    "50 steps; with --row of that row alone.",
)
flags.DEFINE_float(
    "minutes", None, "When to stop, with everything saved. Default: at the end."
)


def main(argv: list[str]) -> int:
    """Prints the table, or trains; returns the exit status."""
    return command.exit_status(argv, _table if FLAGS.table else _train)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    name = config_flags.last_value(argv, "row") or ""
    if (row := ROWS.get(name)) is not None:
        on = {each.lower().removesuffix("=true") for each in argv}
        preset = row.preset
        if "--small" in on:
            preset, fields = row.small, papers.SMALL[name]
            # They stand first: what the user gives counts.
            first = [f"--config.{field}={value}" for field, value in fields.items()]
            if "--table" not in on:
                first.append(f"--workdir=runs/{name}-small")
            argv = [argv[0], *first, *argv[1:]]
        argv = [*argv, f"--task={row.task}", f"--preset={preset}"]
    return command.parse(argv, _check_flags, TASKS)


def _check_flags() -> None:
    """Raises ValueError if the flags do not go together, before anything is loaded."""
    if FLAGS.row not in (None, *ROWS):
        raise ValueError(names.unknown("--row", FLAGS.row, ROWS))
    if FLAGS.small and not (FLAGS.row or FLAGS.table):
        raise ValueError("--small has no use without --row; --preset=small is a preset")
    if FLAGS.table:
        for name in _TRAINING:
            if FLAGS[name].present:
                raise ValueError(
                    f"--{name} has no use with --table, which trains nothing"
                )
        return
    if not FLAGS.task:
        raise ValueError(
            f"--row is missing; expected one of {', '.join(ROWS)}, or --table"
        )
    config, minutes = FLAGS.config, FLAGS.minutes
    if config.task not in TASKS:
        raise ValueError(
            f"--task must be one of {', '.join(TASKS)}, whose data are there before training. "
            f"Received: --task={config.task}"
        )
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"--minutes must be above 0. Received: --minutes={minutes}")
    schema.check(config)
    if (optimizer := config.optimizer.name) not in ("adam", "sgd"):
        raise ValueError(
            "--config.optimizer.name must be adam or sgd for trainers.reproduce. Received: "
            f"--config.optimizer.name={optimizer}"
        )
    if config.task in papers.FILES and not FLAGS.data_dir:
        raise ValueError(
            f"--data_dir must be the folder of {papers.FILES[config.task]}. Received: no --data_dir"
        )


def _table() -> None:
    from trainers.papers import table

    print(table.HEAD, flush=True)
    for name, row in ROWS.items():
        if FLAGS.row in (None, name):
            config = FLAGS.config if FLAGS.row else _loaded(name, row)
            print(table.line(name, row, config), flush=True)


def _loaded(name: str, row: Row) -> ConfigDict:
    """Returns the config of a row, or of its small form."""
    if not FLAGS.small:
        return configs.load(row.task, row.preset)
    config = configs.load(row.task, row.small)
    config.update(names.nested(papers.SMALL[name]))
    return config


def _train() -> int | None:
    from trainers.papers import training

    config = FLAGS.config
    path, row = run_flags.workdir(), of_recipe(config.task, config.preset)
    deadline = _BEGAN + 60 * (FLAGS.minutes or math.inf)
    try:
        training.reproduce(config, FLAGS.data_dir, path, row, deadline)
    except training.LeftCurveError as error:
        hint = f"checkpoints from before it, if any, are kept in {path}"
        return command.fail(f"{error}; {hint}", command.Status.NOT_FINITE)
    return None


if __name__ == "__main__":
    command.start(main, parse_flags)
