"""Asks a language model on a server: TensorFlow Serving, or that of `keras-trellis serve`.

    python -m trainers.client --server=localhost:8500 --model=NAME --prompt="the company"
    python -m trainers.client --server=localhost:8500 --model=NAME --mode=next --prompt="it is"
    python -m trainers.client --server=localhost:8500 --model=NAME --mode=score --prompt="it is so"
    python -m trainers.client --server=localhost:8501 --model=NAME --protocol=rest --prompt="it is"
    python -m trainers.client --server=localhost:8000 --model=NAME --protocol=http --prompt="it is"

The first prints a continuation of the prompt while the server writes it. docs/howto/serve.md
describes the other modes.
"""

import itertools
import math
import re
import secrets
import sys
from typing import Any

from absl import flags

from trainers.cli import command, flag_errors
from trainers.data import names, terminal
from trainers.serving.remote import Sampling
from trainers.serving.signatures import Grpc, Rest
from trainers.serving.web import Server

PROTOCOLS: dict[str, type[Grpc | Rest | Server]] = {
    "grpc": Grpc,
    "rest": Rest,
    "http": Server,
}

_INT32 = 2**31 - 1
_HELP = {
    "protocol": "grpc or rest of TensorFlow Serving; http of keras-trellis serve.",
    "mode": "generate: continue the prompt; next: list the likeliest next tokens; score: print how "
    "surprising each token is.",
    "temperature": "Divides the log-probabilities; 0 takes the likeliest token each time.",
    "top_k": "Draw from this many of the likeliest tokens; 0 draws from all.",
    "top_p": "Draw from the fewest tokens that have this probability.",
    "seed": "Seed of the draws. Default: another text each time.",
}


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the command's flags."""
    own: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("server", None, "The server's address, HOST:PORT.", **own)
    flags.DEFINE_string("model", None, "The model's name on the server.", **own)
    flags.DEFINE_enum("protocol", "grpc", [*PROTOCOLS], _HELP["protocol"], **own)
    flags.DEFINE_enum("mode", "generate", list(_MODES), _HELP["mode"], **own)
    flags.DEFINE_string("prompt", "", "The text; it begins a line.", **own)
    flags.DEFINE_float(
        "deadline", 60.0, "Seconds for each request.", 1e-3, 86_400.0, **own
    )
    flags.DEFINE_integer("max_length", 200, "Tokens to add.", 1, _INT32, **own)
    flags.DEFINE_float("temperature", 1.0, _HELP["temperature"], **own)
    flags.DEFINE_integer("top_k", 0, _HELP["top_k"], 0, _INT32, **own)
    flags.DEFINE_float("top_p", 1.0, _HELP["top_p"], **own)
    flags.DEFINE_integer("seed", None, _HELP["seed"], -(2**63), 2**63 - 1, **own)
    flags.DEFINE_boolean("allow_unknown", False, "Allow <unk> in the text.", **own)


def run(argv: list[str], values: flags.FlagValues = flags.FLAGS) -> int:
    """Runs the mode that the flags name; returns the exit status."""
    return command.exit_status(argv, lambda: _run(values))


def _run(values: flags.FlagValues) -> None:
    _check(values)
    connect = PROTOCOLS[values.protocol]
    model = connect(values.server, values.model, values.deadline)
    _MODES[values.mode](model, values)


def _check(values: flags.FlagValues) -> None:
    for name in ("server", "model"):
        if not values[name].value:
            raise ValueError(f"--{name} is missing")
    address = re.fullmatch(r"[^/\s]+:(\d{1,5})", values.server, re.ASCII)
    if not address or not 0 < int(address[1]) < 2**16:
        raise ValueError(
            f"--server must be HOST:PORT. Received: --server={values.server}"
        )
    for name in ("model", "prompt"):
        flag_errors.check_text(name, values[name].value)
    sampling = [
        name for name in (*Sampling._fields, "allow_unknown") if values[name].present
    ]
    if sampling and values.mode != "generate":
        raise ValueError(
            f"--{sampling[0]} has no use in --mode={values.mode}, only in --mode=generate"
        )
    # The parser accepts NaN.
    expected = flag_errors.expected_by(values["deadline"].parser)
    names.check_flag(
        "deadline", values.deadline, expected, not math.isnan(values.deadline)
    )
    flag_errors.check_sampling(values.temperature, values.top_p)


def _generate(model: Grpc | Rest | Server, values: flags.FlagValues) -> None:
    settings: dict[str, Any] = {name: values[name].value for name in Sampling._fields}
    if values.seed is None:
        settings["seed"] = secrets.randbits(63)
    sampling = Sampling(**settings)
    pieces = model.generate(values.prompt, sampling, values.allow_unknown)
    # Asked before the prompt is printed: where nobody answers, nothing is.
    first = next(pieces, "")
    try:
        for piece in itertools.chain([values.prompt, first], pieces):
            print(terminal.text(piece), end="", flush=True)
    finally:
        print()  # an error must begin a line, too
    unknown, total = model.unknown(values.prompt)
    _warn(unknown, str(total))


def _next(model: Grpc | Rest | Server, values: flags.FlagValues) -> None:
    likeliest, unknown_words = model.next(values.prompt)
    for token, probability in likeliest:
        print(f"{probability:8.4f}  {terminal.line(token)}")
    _warn(unknown_words)


def _score(model: Grpc | Rest | Server, values: flags.FlagValues) -> None:
    scores = model.score(values.prompt)
    for word, known, nll in zip(*scores, strict=True):
        print(f"{nll:8.4f}  {terminal.line(word)}{'' if known else '  (unknown)'}")
    count = len(scores.words)
    print(f"perplexity {scores.perplexity:.4f} of {count} tokens")
    _warn(scores.known.count(False), str(count))


def _warn(count: int, total: str = "the") -> None:
    """Warns about unknown words, whose numbers are those of `<unk>`."""
    if count:
        message = f"{count} of {total} words {'is' if count == 1 else 'are'} unknown to the model"
        print(
            f"warning: {message}; it reads each as <unk>", file=sys.stderr, flush=True
        )


_MODES = {"generate": _generate, "next": _next, "score": _score}

parse_flags = command.parse


if __name__ == "__main__":
    define_flags()
    command.start(run, parse_flags)
