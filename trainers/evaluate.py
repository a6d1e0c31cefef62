"""Measures a run's best model on validation and test data.

    python -m trainers.evaluate --workdir=RUN --data_dir=DIR

A language model can keep learning from the text that it is measured on. `--dynamic_rate` and
`--dynamic_decay` evaluate it dynamically. `--cache_size`, `--cache_theta` and `--cache_lambda` add
a continuous cache. Both can be combined.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import flags

from trainers.cli import command, run_flags
from trainers.language import adaptation
from trainers.language.protocols import PROTOCOLS
from trainers.language.tasks.task import EVALUATION_FLAGS
from trainers.tasks import registry

FLAGS = flags.FLAGS
_Made = TypeVar("_Made")

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_enum(
    "protocol",
    None,
    PROTOCOLS,
    "How to score a text. Default: by both protocols.",
)
flags.DEFINE_float(
    "dynamic_rate", None, "Learning rate of dynamic evaluation; above 0."
)
flags.DEFINE_float(
    "dynamic_decay",
    None,
    "How strongly dynamic evaluation pulls the weights back to the trained ones; from 0 to 1.",
)
flags.DEFINE_integer(
    "cache_size", None, "Number of tokens in the continuous cache.", 1, 2**31 - 1
)
flags.DEFINE_float(
    "cache_theta",
    None,
    "Cache temperature: larger values favour past states that are most similar to the present "
    "one; at least 0.",
)
flags.DEFINE_float(
    "cache_lambda",
    None,
    "The cache's share of the probability; at least 0 and below 1.",
)
_DYNAMIC = ("dynamic_rate", "dynamic_decay")
_CACHE = ("cache_size", "cache_theta", "cache_lambda")


def _check_flags() -> None:
    run_flags.check_named()
    check_language_flags()


def _evaluate() -> None:
    path, config = run_flags.trained_run()
    task = registry.get(config.task)
    if task.evaluation:
        raise ValueError(
            f"{path} has a run of {task.name}, which python -m {task.evaluation} scores"
        )
    for name in EVALUATION_FLAGS:
        if FLAGS[name].present and name not in task.evaluation_flags:
            raise ValueError(
                f"--{name} is for language models. Received: a run of {task.name}"
            )
    experiment = task.part("experiment").load(config, FLAGS.data_dir, path)
    experiment.evaluate(path, **options())


def check_language_flags() -> None:
    """Raises ValueError if the flags for language models do not go together."""
    if any(_adaptations()) and FLAGS.protocol == "trellisnet":
        raise ValueError(
            "--protocol must be exact to adapt to the text: the parallel streams of trellisnet "
            "are not read in its order. Received: --protocol=trellisnet"
        )


def options() -> dict[str, Any]:
    """Returns how to evaluate, if the flags say it."""
    dynamic, cache = _adaptations()
    if dynamic or cache:
        return {"protocols": ("exact",), "dynamic": dynamic, "cache": cache}
    return {"protocols": (FLAGS.protocol,)} if FLAGS.protocol else {}


def _adaptations() -> tuple[
    adaptation.DynamicEvaluation | None, adaptation.ContinuousCache | None
]:
    return (
        _from_flags(adaptation.DynamicEvaluation, _DYNAMIC),
        _from_flags(adaptation.ContinuousCache, _CACHE),
    )


def _from_flags(make: Callable[..., _Made], names: Sequence[str]) -> _Made | None:
    """Calls `make` with flags that go together; returns None if none of them is given."""
    missing = [name for name in names if FLAGS[name].value is None]
    if len(missing) == len(names):
        return None
    if missing:
        together, lacking = (", --".join(group) for group in (names, missing))
        raise ValueError(f"--{together} go together; missing: --{lacking}")
    return make(*(FLAGS[name].value for name in names))


main, parse_flags = command.program(_evaluate, _check_flags, parser=run_flags.parse)

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
