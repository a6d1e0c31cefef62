"""Asks a language model that a server has, one that speaks TensorFlow Serving's protocols.

    python -m trainers.client --server=localhost:8500 --model=NAME --prompt="the company"
    python -m trainers.client --server=localhost:8500 --model=NAME --mode=next --prompt="it is"
    python -m trainers.client --server=localhost:8500 --model=NAME --mode=score --prompt="it is so"
    python -m trainers.client --server=localhost:8501 --model=NAME --protocol=rest --prompt="it is"

The first one prints a continuation of the prompt while it is written; docs/serving.md has the rest.
"""

import functools
import itertools
import math
import re
import secrets
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import flags

from trainers.cli import command, flag_errors, terminal
from trainers.serving import remote
from trainers.serving.writing import Sampling, Unknown, generate

MODES = ("generate", "next", "score")
PROTOCOLS: dict[str, Callable[[str, str, float], remote.Transport]] = {
    "grpc": remote.Grpc,
    "rest": remote.Rest,
}

_MOST_NATS = math.log(sys.float_info.max)
_MOST_PORT = 2**16 - 1


class Scored(NamedTuple):
    """A token of a text.

    Attributes:
        word: as the text has it.
        nll: its negative log-likelihood in nats.
        known: whether the vocabulary has it; else the model reads `<unk>`, of which the `nll` is.
    """

    word: str
    nll: float
    known: bool


class Score(NamedTuple):
    """How probable a text is, each token given those before it and a line break before the text.

    Attributes:
        tokens: the text's.
        perplexity: of all of them; 1 where there are none.
    """

    tokens: list[Scored]
    perplexity: float


def score(model: remote.Model, text: str) -> Score:
    """Scores a text.

    Raises:
        RemoteError: there is no answer that can be used. So it is with all functions here.
    """
    answer = model("score", text=[text])
    count = int(answer["count"][0])  # beside longer texts there are more columns
    words, read, nll = (answer[name][0, :count] for name in ("words", "tokens", "nll"))
    tokens = map(Scored, words, nll.tolist(), words == read)
    mean = float(answer["total"][0]) / max(count, 1)
    perplexity = math.exp(mean) if mean < _MOST_NATS else math.inf
    return Score(list(tokens), perplexity)


class Next(NamedTuple):
    """What may come after a text.

    Attributes:
        tokens: the likeliest ones, the likeliest first, with their probabilities.
        unknown: how many tokens of the text the vocabulary does not have.
    """

    tokens: list[tuple[str, float]]
    unknown: int


def next_tokens(model: remote.Model, text: str) -> Next:
    """Returns what may come after a text."""
    answer = model("serving_default", text=[text])
    tokens, probabilities = answer["next_tokens"][0], answer["next_probabilities"][0].tolist()
    return Next(list(zip(tokens, probabilities, strict=True)), int(answer["unknown"][0]))


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the command's flags."""
    define = (flags.DEFINE_string, flags.DEFINE_enum, flags.DEFINE_integer, flags.DEFINE_float)
    string, enum, integer, number = (functools.partial(f, flag_values=values) for f in define)
    string("server", None, "HOST:PORT.")
    string("model", None, "The model's name there.")
    enum("protocol", "grpc", list(PROTOCOLS), "What that port speaks.")
    enum("mode", "generate", MODES, "Go on from the prompt, tell what may come next, or score it.")
    string("prompt", "", "The text; a line begins with it.")
    number("deadline", 60.0, "Seconds that each request may take.", 1e-3, 86_400.0)
    integer("max_length", 200, "Tokens to add.", 1, 2**31 - 1)
    number("temperature", 1.0, "Divides the log-probabilities; 0: the likeliest token.")
    integer("top_k", 0, "Sample from that many of the likeliest tokens; 0: from all.", 0, 2**31 - 1)
    number("top_p", 1.0, "Sample from the fewest tokens that have this probability.")
    integer(
        "seed", None, "Of the sampling; by default another text each time.", -(2**63), 2**63 - 1
    )
    flags.DEFINE_boolean(
        "allow_unknown", False, "Whether <unk> may be written.", flag_values=values
    )


def run(argv: list[str], values: flags.FlagValues = flags.FLAGS) -> int:
    """Runs the mode that the flags name; returns the exit status."""
    return command.exit_status(argv, lambda: _run(values))


def _run(values: flags.FlagValues) -> int:
    _check(values)
    transport = PROTOCOLS[values.protocol](values.server, values.model, values.deadline)
    mode = {"generate": _generate, "next": _next, "score": _score}[values.mode]
    try:
        mode(remote.Model(transport), values)
    except remote.RemoteError as error:
        return command.fail(str(error), command.Status.REFUSED)
    return command.Status.DONE


def _check(values: flags.FlagValues) -> None:
    for name in ("server", "model"):
        if not values[name].value:
            raise ValueError(f"--{name} is missing")
    address = re.fullmatch(r"[^/\s]+:(\d{1,5})", values.server, re.ASCII)
    if not address or not 0 < int(address[1]) <= _MOST_PORT:
        raise ValueError(f"--server must be HOST:PORT. Received: --server={values.server}")
    for name in ("model", "prompt"):
        flag_errors.check_text(name, values[name].value)
    sampling = [name for name in (*Sampling._fields, "allow_unknown") if values[name].present]
    if sampling and values.mode != "generate":
        raise ValueError(
            f"--{sampling[0]} has no use in --mode={values.mode}, only in --mode=generate"
        )
    expected = flag_errors.expected_by(values["deadline"].parser)  # which lets NaN pass
    flag_errors.check("deadline", values.deadline, expected, not math.isnan(values.deadline))
    flag_errors.check_sampling(values.temperature, values.top_p)


def _generate(model: remote.Model, values: flags.FlagValues) -> None:
    settings: dict[str, Any] = {name: values[name].value for name in Sampling._fields}
    if values.seed is None:
        settings["seed"] = secrets.randbits(63)
    told: list[Unknown] = []
    pieces = generate(
        model,
        values.prompt,
        Sampling(**settings),
        allow_unknown=values.allow_unknown,
        tell=told.append,
    )
    try:
        for piece in itertools.chain([values.prompt], pieces):
            print(terminal.text(piece), end="", flush=True)
    finally:
        print()  # what comes then, an error too, begins a line
    for each in told:
        _warn(each.tokens, str(each.of))


def _next(model: remote.Model, values: flags.FlagValues) -> None:
    found = next_tokens(model, values.prompt)
    for token, probability in found.tokens:
        print(f"{probability:8.4f}  {terminal.line(token)}")
    _warn(found.unknown)


def _score(model: remote.Model, values: flags.FlagValues) -> None:
    found = score(model, values.prompt)
    for word, nll, known in found.tokens:
        print(f"{nll:8.4f}  {terminal.line(word)}{'' if known else '  (unknown)'}")
    count = len(found.tokens)
    print(f"perplexity {found.perplexity:.4f} of {count} tokens")
    _warn(sum(not each.known for each in found.tokens), str(count))


def _warn(unknown: int, of: str = "the") -> None:
    """Says that what the model tells is not of this text, where it is of `<unk>` in its place."""
    if unknown:
        message = f"{unknown} of {of} words {'is' if unknown == 1 else 'are'} unknown to the model"
        print(f"warning: {message}; it reads each as <unk>", file=sys.stderr, flush=True)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line for `command.start`; exits with one line where it is not valid."""
    return command.parse(argv, lambda argv: None)


if __name__ == "__main__":
    define_flags()
    command.start(run, parse_flags)
