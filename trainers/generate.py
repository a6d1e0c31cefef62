"""Writes a text with a run's best language model.

python -m trainers.generate --workdir=RUN --prompt="the company"
"""

import shutil
import sys
import textwrap
from collections.abc import Callable

from absl import flags
from etils import epath

from trainers.cli import command, flag_errors, run_flags
from trainers.data import terminal
from trainers.tasks import registry

FLAGS = flags.FLAGS
_MOST = 2**31 - 1  # of 32 bits

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string(
    "prompt", "", "The text to continue. Default: the beginning of a line."
)
flags.DEFINE_integer(
    "max_length",
    200,
    "Length of the text in tokens, including the prompt. Of characters, the last word is left out "
    "if the length cuts it.",
    1,
    _MOST,
)
flags.DEFINE_float(
    "temperature",
    1.0,
    "Divides the log-probabilities; 0 takes the likeliest token each time.",
)
flags.DEFINE_integer(
    "top_k", None, "Draw from this many of the likeliest tokens.", 1, _MOST
)
flags.DEFINE_float(
    "top_p", None, "Draw from the fewest tokens that have this probability."
)
flags.DEFINE_integer(
    "seed",
    None,
    "Seed of the draws. Default: another text each time.",
    -(2**63),
    2**63 - 1,
)
_SAMPLING = ("temperature", "top_k", "top_p", "seed")
OWN = ("prompt", "max_length", *_SAMPLING)
PART = "writing"
_TASKS = tuple(registry.with_part(PART))


def _check_flags() -> None:
    run_flags.check_named(_TASKS)
    check_language_flags()
    if FLAGS.data_dir is not None:
        raise ValueError("--data_dir has no use here: the run holds its vocabulary")


def check_language_flags() -> None:
    """Raises ValueError if a flag for the text is out of its range."""
    flag_errors.check_text("prompt", FLAGS.prompt)
    flag_errors.check_sampling(FLAGS.temperature, FLAGS.top_p)


def _generate() -> None:
    path, config = run_flags.trained_run()
    task = registry.get(config.task)
    if not task.has_part(PART):
        raise ValueError(
            f"{path} must hold a language model. Received: a run of {config.task}"
        )
    write(task.part(PART).generate, path)


def write(generate: Callable[..., str], path: epath.Path) -> None:
    """Prints the prompt and its continuation by a run's model.

    Args:
        generate: the function of the part `writing` of the run's task.
        path: the run's folder.
    """
    sampling = {name: FLAGS[name].value for name in _SAMPLING}
    with flag_errors.naming("prompt", "tokens"):
        text = generate(path, FLAGS.prompt, FLAGS.max_length, **sampling)
    print(_wrapped(text) if sys.stdout.isatty() else text)


def _wrapped(text: str) -> str:
    """Returns a text without commands to a terminal, in lines that it breaks between words."""
    width = shutil.get_terminal_size().columns
    wrapper = textwrap.TextWrapper(
        width, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(map(wrapper.fill, terminal.text(text).split("\n")))


main, parse_flags = command.program(_generate, _check_flags, _TASKS, run_flags.parse)

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
