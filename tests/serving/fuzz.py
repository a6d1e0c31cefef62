"""Asks an exported model what no client should ask, and sees that it stays right.

    python -m tests.serving.fuzz --model=MODELS/NAME/1 --seconds=60 --seed=0

Each case is one request to one signature: a good one in which some values, or one shape, have been
made hostile. What comes back is either an `InvalidArgumentError` that names an input, and then some
row of it is refused alone as well or the rows do not fit together; or it is an answer, without NaN,
each row of which is the one that it gets alone. The model is asked in a process of its own, so that
a crash is told as well. A case is a function of the seed and of its number: `--first` begins with a
later one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.serving.served import Arrays, Served, assert_row, rows_of

INTEGERS = [-(2**31), -7, -1, 0, 1, 2, 5, 11, 12, 127, 128, 300, 2**16 + 1, 2**31 - 1]
FLOATS = [
    -np.inf,
    -3e38,
    -1.0,
    -1e-45,
    0.0,
    1e-45,
    1e-38,
    0.3,
    1.0,
    1e9,
    3e38,
    np.inf,
    np.nan,
]
TEXTS = [
    b"",
    b" ",
    b"\n",
    b"a b",
    b"j\ni",
    b"zz",
    b"<unk>",
    b"\xff",
    b"\xe6\x97",
    b"\0",
    b"a " * 300,
]


def drawn_text(random: np.random.Generator) -> bytes:
    """Returns some of `TEXTS`, or bytes, one after the other."""
    if random.random() < 0.2:
        return random.bytes(random.integers(20))
    return b"".join(
        TEXTS[index] for index in random.integers(len(TEXTS), size=random.integers(4))
    )


class Cases:
    """Requests to a model's signatures.

    Args:
        model: the model.
        seed: what they are drawn from.
    """

    def __init__(self, model: Served, seed: int) -> None:
        self._model, self._seed = model, seed
        self._signatures = sorted(model.signatures())
        if "prefill_v2" in self._signatures:
            (self._fingerprint,) = model.no_text(1)["cache_fingerprint"]

    def case(self, number: int) -> tuple[str, Arrays]:
        """Returns a signature and a request to it."""
        random = np.random.default_rng([self._seed, number])
        signature = str(random.choice(self._signatures))
        request = self._good(random, signature)
        for name in request:
            if random.random() < 0.15:
                request[name] = _hostile_values(random, request[name])
        if random.random() < 0.15:
            name = str(random.choice(list(request)))
            request[name] = _hostile_shape(random, request[name])
        return signature, request

    def _good(self, random: np.random.Generator, signature: str) -> Arrays:
        rows = int(random.choice([0, 1, 2, 3, 5]))
        steps = int(
            random.choice([0, 1, 2, 3, 9, 140], p=[0.1, 0.2, 0.2, 0.2, 0.2, 0.1])
        )
        request = {}
        for name, spec in self._model.inputs(signature).items():
            shape = [
                rows,
                *(steps if size is None else size for size in spec.shape[1:]),
            ]
            values = _good_values(random, name, spec, shape)
            request[name] = values.astype(spec.dtype.as_numpy_dtype)
        if "cache_fingerprint" in request:
            request["cache_fingerprint"][:] = self._fingerprint
        if "lengths" in request:
            request["lengths"] = random.integers(steps + 1, size=rows)
        return request


def _good_values(
    random: np.random.Generator, name: str, spec: tf.TensorSpec, shape: list[int]
) -> np.ndarray:
    if spec.dtype == tf.string:
        texts = [drawn_text(random) for _ in range(int(np.prod(shape)))]
        return np.array([*texts, None], object)[:-1].reshape(shape)
    if name == "temperature" or name == "top_p":
        return random.choice([0.3, 1.0], shape)
    if spec.dtype.is_floating:
        return random.normal(size=shape)
    if name == "alternatives":
        return random.choice([0, 1, 3], shape)
    if name == "stop_ids":
        return random.choice([-1, 0, 3], shape)
    if name == "forbidden_ids":
        return random.choice([-2, -1, 0, 5], shape)
    return random.integers(1, 7, shape)


def _hostile_values(random: np.random.Generator, values: np.ndarray) -> np.ndarray:
    if values.dtype == object or not values.size:
        return values
    hostile = np.array(values)
    some = random.random(values.shape) < random.choice([0.05, 0.5, 1.0])
    choices = FLOATS if values.dtype.kind == "f" else INTEGERS
    hostile[some] = random.choice(choices, some.sum())
    return hostile


def _hostile_shape(random: np.random.Generator, values: np.ndarray) -> np.ndarray:
    changes: list[Callable[[], np.ndarray]] = [
        lambda: values[:-1],
        lambda: values[..., None],
        lambda: values.reshape(-1),
        lambda: values[..., :0],
        lambda: np.concatenate(
            [values, values], axis=int(random.integers(values.ndim))
        ),
        lambda: (
            np.zeros([], values.dtype)
            if values.dtype != object
            else np.array(b"a", object)
        ),
    ]
    return changes[random.integers(len(changes))]()


def check(model: Served, signature: str, request: Arrays) -> None:
    """Asks, and raises AssertionError where what comes back is wrong."""
    sizes = {value.shape[:1] for value in request.values()}
    alone = (
        _alone(model, signature, request) if len(sizes) == 1 and sizes != {()} else None
    )
    together = _asked(model, signature, request)
    if isinstance(together, str):
        named = re.search(rf"\b({'|'.join(request)})\b", together)
        assert named, f"the error names no input: {together}"
        assert not alone or any(isinstance(each, str) for each in alone), together
        return
    for name, value in together.items():
        assert value.dtype.kind != "f" or not np.isnan(value).any(), f"{name} has NaN"
    assert alone is not None, "rows that do not fit together have an answer"
    for index, each in enumerate(alone):
        assert not isinstance(each, str), f"row {index} is refused alone: {each}"
        assert_row(rows_of(together, index), rows_of(each, 0), tolerance=1e-4)


def _alone(model: Served, signature: str, request: Arrays) -> list[Arrays | str]:
    rows = len(next(iter(request.values())))
    return [
        _asked(model, signature, rows_of(request, slice(i, i + 1))) for i in range(rows)
    ]


def _asked(model: Served, signature: str, request: Arrays) -> Arrays | str:
    try:
        return model(signature, request)
    except tf.errors.InvalidArgumentError as error:
        return str(error)


def ask(options: argparse.Namespace) -> int:
    """Asks cases until the time is over; prints each one's number before it."""
    model = Served(options.model)
    cases = Cases(model, options.seed)
    end = time.monotonic() + options.seconds
    number = options.first
    while time.monotonic() < end:
        signature, request = cases.case(number)
        print(number, signature, flush=True)
        try:
            check(model, signature, request)
        except Exception:
            print(
                {name: value.tolist() for name, value in request.items()},
                file=sys.stderr,
            )
            raise
        number += 1
    return 0


def watch(options: argparse.Namespace) -> int:
    """Runs `ask` in a process of its own; returns the exit status, and says what came of it."""
    command = [sys.executable, "-m", "tests.serving.fuzz", "--asks"]
    command += [
        f"--{name}={value}" for name, value in vars(options).items() if name != "asks"
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    print(f"seed {options.seed}: {len(lines)} cases")
    if done.returncode:
        print(f"case {lines[-1] if lines else 'none'}: exit status {done.returncode}")
    return done.returncode != 0 or not lines


def main(arguments: list[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="the folder of a version")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first case's number")
    parser.add_argument("--asks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    return ask(options) if options.asks else watch(options)


if __name__ == "__main__":
    sys.exit(main())
