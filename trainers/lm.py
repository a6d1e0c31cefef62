"""Trains, evaluates and samples language models.

    python -m trainers.lm --task=ptb --preset=small --data_dir=DIR
    python -m trainers.lm --task=ptb --preset=small --data_dir=DIR --mode=evaluate
    python -m trainers.lm --task=ptb --preset=small --mode=generate --prompt="the company"

`small`, `paper` and `released` are trellis networks. Two stacked LSTMs that both read the input,
`small_stacked_lstm`, are the better small model of a text. `--config.FIELD=VALUE` changes a field
of the preset; flags may have any order. The run's folder is `--workdir`, by default
runs/TASK-PRESET. The last two modes do the same as `trainers.evaluate` and `trainers.generate`, and
take their flags.
"""

from absl import flags

from trainers import evaluate, generate
from trainers.cli import command, run_command
from trainers.language import writing
from trainers.language.tasks.task import EVALUATION_FLAGS

FLAGS = flags.FLAGS
PROGRAM = "trainers.lm"
MODES = ("train", "evaluate", "generate")
_FLAG_MODES = {
    **dict.fromkeys(EVALUATION_FLAGS, ("evaluate",)),
    **dict.fromkeys(generate.OWN, ("generate",)),
}

for module in (run_command, evaluate, generate):
    flags.adopt_module_key_flags(module)


def main(argv: list[str]) -> int:
    """Does what `--mode` says; returns the exit status."""
    return command.exit_status(argv, _do)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return run_command.parse(argv, PROGRAM, lambda: _check_flags(argv))


def _check_flags(argv: list[str]) -> None:
    run_command.check_flags(argv, PROGRAM, MODES, _FLAG_MODES)
    evaluate.check_language_flags()
    generate.check_language_flags()


def _do() -> int | None:
    if FLAGS.mode == "train":
        return run_command.train_by_flags()
    if FLAGS.mode == "evaluate":
        run_command.score_by_flags(PROGRAM, **evaluate.options())
    else:
        generate.write(writing.generate, run_command.trained_run(PROGRAM))
    return None


if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
