"""Mistakes in a command line, told in the style of the other errors."""

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

from absl import flags

from trainers.data import names

_PATHS = (
    *("workdir", "data_dir", "output", "checkpoint", "permutation", "reference_dir"),
    *("config_file", "study"),
)
_MISSING = re.compile(r"Missing value for flag (--\S+)")
_REFUSED = re.compile(r"flag --([^=\s]+)=(.*?): ", re.DOTALL)


def format_error(error: Exception, values: flags.FlagValues = flags.FLAGS) -> str:
    """Returns a line for an error, also for one of absl's.

    Args:
        error: from parsing or checking the flags.
        values: the command's flags.
    """
    message = str(error)
    if isinstance(error, flags.UnrecognizedFlagError):
        return _unknown(error.flagname, values)
    if isinstance(error, flags.IllegalFlagValueError) and (
        match := _REFUSED.match(message)
    ):
        name, value = match.groups()
        if name == "config":
            return (
                "--config has no value of its own; --config.FIELD=VALUE changes a field"
            )
        if expected := name in values and expected_by(values[name].parser):
            return f"--{name} must be {expected}. Received: --{name}={value}"
    if match := _MISSING.fullmatch(message):
        return f"{match[1]} has no value; expected {match[1]}=VALUE"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return message.removeprefix("ERROR:: ")


def check_paths(values: flags.FlagValues = flags.FLAGS) -> None:
    """Raises ValueError for empty or odd paths, from an unset shell variable or a copied line."""
    for name in _PATHS:
        path = values[name].value if name in values else None
        if path is None:
            continue
        if not path:
            raise ValueError(f"--{name} must not be empty. Received: --{name}=")
        expected = "a name without control characters or white space at its ends"
        plain = path == path.strip() and path.isprintable()
        names.check_flag(name, repr(path), expected, plain)


def check_text(name: str, value: Any) -> None:
    """Raises ValueError if a flag's text is not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"--{name} must be UTF-8. Received: --{name}={value!r}"
        ) from None


def check_sampling(temperature: float, top_p: float | None) -> None:
    """Raises ValueError if one of these flags is NaN or out of its range."""
    expected, fits = "a number of at least 0", 0 <= temperature < math.inf
    names.check_flag("temperature", temperature, expected, fits)
    if top_p is not None:
        expected, fits = "a number above 0 and at most 1", 0 < top_p <= 1
        names.check_flag("top_p", top_p, expected, fits)


@contextlib.contextmanager
def naming(flag: str, argument: str) -> Iterator[None]:
    """Names a flag in an error that names the argument with the flag's value."""
    try:
        yield
    except ValueError as error:
        message = str(error).replace(f"`{argument}`", f"--{flag}")
        raise ValueError(message.replace(f" {argument}=", f" --{flag}=")) from error


def _unknown(name: str, values: flags.FlagValues) -> str:
    # Leave out absl's own flags, which nobody looks for.
    modules = {name: str(values.find_module_defining_flag(name)) for name in values}
    own = [name for name in values if not modules[name].startswith("absl.")]
    if "config" in values:
        config: Any = values["config"].value
        own += [f"config.{field}" for field in names.flatten(config)]
    near = names.nearest(name, own)
    return f"unknown flag --{name}; " + (
        f"did you mean --{near}?" if near else "--help lists those that there are"
    )


def expected_by(parser: Any) -> str:
    """Returns what a parser accepts, or an empty string if it does not tell."""
    if isinstance(parser, flags.EnumParser):
        return f"one of {', '.join(parser.enum_values)}"
    if isinstance(parser, flags.BooleanParser):
        return "true or false"
    return parser.syntactic_help
