"""Trains, evaluates and samples language models.

    python -m trainers.lm --task=ptb --preset=small --data_dir=DIR
    python -m trainers.lm --task=ptb --preset=small --data_dir=DIR --mode=evaluate
    python -m trainers.lm --task=ptb --preset=small --mode=generate --prompt="the company"

`--dynamic_rate` and `--dynamic_decay` evaluate dynamically, `--cache_size`, `--cache_theta` and
`--cache_lambda` with a continuous cache; both can be had at once.

`--config.FIELD=VALUE` changes a field of the preset, whatever the order of the flags. The run's
folder is `--workdir`, by default runs/TASK-PRESET.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from absl import flags

from trainers.cli import command, flag_errors, run_command
from trainers.language import adaptation, evaluation, experiment

FLAGS = flags.FLAGS
_Made = TypeVar("_Made")
PROGRAM = "trainers.lm"
MODES = ("train", "evaluate", "generate")
_MOST = 2**31 - 1  # of 32 bits

flags.adopt_module_key_flags(run_command)
flags.DEFINE_enum("protocol", None, evaluation.PROTOCOLS, "Of the evaluation; both by default.")
flags.DEFINE_float("dynamic_rate", None, "Learning rate of dynamic evaluation, above 0.")
flags.DEFINE_float("dynamic_decay", None, "Its pull to the trained weights, from 0 to 1.")
flags.DEFINE_integer("cache_size", None, "Tokens in a continuous cache.", 1, _MOST)
flags.DEFINE_float("cache_theta", None, "How much likeness of the past tells it, at least 0.")
flags.DEFINE_float("cache_lambda", None, "Its share of the probability, from 0 to below 1.")
flags.DEFINE_string("prompt", "", "The text to go on from; by default a new line begins.")
flags.DEFINE_integer(
    "max_length", 200, "Length of the text in tokens, the prompt's included.", 1, _MOST
)
flags.DEFINE_float("temperature", 1.0, "Divides the log-probabilities; 0: the likeliest token.")
flags.DEFINE_integer("top_k", None, "Sample from that many of the likeliest tokens.", 1, _MOST)
flags.DEFINE_float("top_p", None, "Sample from the fewest tokens that have this probability.")
flags.DEFINE_integer(
    "seed", None, "Of the sampling; by default another text each time.", -(2**63), 2**63 - 1
)

_DYNAMIC = ("dynamic_rate", "dynamic_decay")
_CACHE = ("cache_size", "cache_theta", "cache_lambda")
_APPLIES = {
    **dict.fromkeys(("protocol", *_DYNAMIC, *_CACHE), ("evaluate",)),
    **dict.fromkeys(
        ("prompt", "max_length", "temperature", "top_k", "top_p", "seed"), ("generate",)
    ),
}


def main(argv: list[str]) -> int:
    """Runs one mode; returns the exit status."""
    return run_command.main(argv, dict(zip(MODES, (_train, _evaluate, _generate), strict=True)))


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line for `command.start`; exits with one line where it is not valid."""
    return run_command.parse_flags(argv, PROGRAM, MODES, _APPLIES)


def _train() -> None:
    experiment.train(FLAGS.config, run_command.new_workdir(), FLAGS.data_dir, FLAGS.distribute)


def _evaluate() -> None:
    dynamic = _from_flags(adaptation.DynamicEvaluation, _DYNAMIC)
    cache = _from_flags(adaptation.ContinuousCache, _CACHE)
    protocols = (FLAGS.protocol,) if FLAGS.protocol else evaluation.PROTOCOLS
    if dynamic or cache:
        if FLAGS.protocol == "trellisnet":
            raise ValueError(
                "--protocol must be exact to adapt to the text: the parallel streams of trellisnet "
                "are not read in its order. Received: --protocol=trellisnet"
            )
        protocols = ("exact",)
    run_command.check_run(PROGRAM)
    experiment.evaluate(run_command.workdir(), FLAGS.data_dir, protocols, dynamic, cache)


def _from_flags(make: Callable[..., _Made], names: Sequence[str]) -> _Made | None:
    """Returns what is made of the values of flags that go together, None where none is given."""
    missing = [name for name in names if FLAGS[name].value is None]
    if len(missing) == len(names):
        return None
    if missing:
        together, lacking = (", ".join(f"--{name}" for name in each) for each in (names, missing))
        raise ValueError(f"{together} go together; missing: {lacking}")
    return make(*(FLAGS[name].value for name in names))


def _generate() -> None:
    flag_errors.check_text("prompt", FLAGS.prompt)
    flag_errors.check_sampling(FLAGS.temperature, FLAGS.top_p)
    run_command.check_run(PROGRAM)
    sampling = {name: FLAGS[name].value for name in ("temperature", "top_k", "top_p", "seed")}
    workdir = run_command.workdir()
    print(experiment.generate(workdir, FLAGS.prompt, FLAGS.max_length, **sampling))


if __name__ == "__main__":
    command.start(main, parse_flags)
