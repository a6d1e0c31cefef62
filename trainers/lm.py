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

PROGRAM = "trainers.lm"

for module in (run_command, evaluate, generate):
    flags.adopt_module_key_flags(module)


def _check_flags() -> None:
    evaluate.check_language_flags()
    generate.check_language_flags()


def _evaluate() -> None:
    run_command.score_by_flags(PROGRAM, **evaluate.options())


def _generate() -> None:
    generate.write(writing.generate, run_command.trained_run(PROGRAM))


main, parse_flags = run_command.program(
    PROGRAM,
    {
        **run_command.usual_modes(PROGRAM),
        "evaluate": _evaluate,
        "generate": _generate,
    },
    {
        **dict.fromkeys(EVALUATION_FLAGS, ("evaluate",)),
        **dict.fromkeys(generate.OWN, ("generate",)),
    },
    _check_flags,
)

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
