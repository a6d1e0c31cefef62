"""Measures h_t = f_t * h_{t-1} + x_t and its gradient by three ways, for docs/notes/benchmarks.md.

    OMP_NUM_THREADS=1 python -m docs.studies.linear_recurrence
    KERAS_BACKEND=jax python -m docs.studies.linear_recurrence --sizes=64x256,1024x256,16384x256

The ways are a loop over the steps; on TensorFlow blocks of steps, by `keras_trellis.engine`; and
`keras.ops.associative_scan`. TensorFlow and JAX run them compiled as graphs. The milliseconds are
those of the processor, the median of the rounds, in which the ways take turns.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
from absl import app, flags
from keras import ops

FLAGS = flags.FLAGS
SIZES = "96x256,128x256,128x2048,128x4096,1024x256,2048x2048,2048x4096,16384x256"
flags.DEFINE_list("sizes", SIZES.split(","), "T x numbers in h.")
flags.DEFINE_integer("rounds", 5, "Measurements of each way.", 1)
_LEAST = 0.05  # processor seconds of a measurement
_BACKEND = keras.backend.backend()

Way = Callable[[Any, Any, Any], Any]
"""From f and x `[T, 1, n]` and h before them to all h."""


def main(_: list[str]) -> None:
    """Prints a row for each size."""
    names = [name for name, _ in _ways()]
    print(f"| backend | T | B * n | {' | '.join(names)} |")
    print(f"| --- |{' ---: |' * (2 + len(names))}")
    for size in FLAGS.sizes:
        steps, channels = map(int, size.split("x"))
        times = [f"{value:.1f}" for value in _milliseconds(steps, channels)]
        print(
            f"| {_BACKEND} | {steps:,} | {channels:,} | {' | '.join(times)} |",
            flush=True,
        )


def _ways() -> Iterator[tuple[str, Way]]:
    if _BACKEND == "tensorflow":
        yield "loop", _solving(least=2**31)
        yield "blocks", _solving(least=1)
    else:
        yield "loop", _loop
    yield "associative scan", _scan


def _solving(least: int) -> Way:
    from keras_trellis.engine import linear_recurrence

    def run(factors: Any, addends: Any, first: Any) -> Any:
        with (
            mock.patch.object(linear_recurrence, "MIN_STEPS", least),
            mock.patch.object(linear_recurrence, "MAX_CHANNELS", 2**31),
        ):
            return linear_recurrence.solve(factors, addends, first, training=True)

    return run


def _loop(factors: Any, addends: Any, first: Any) -> Any:
    if _BACKEND == "torch":  # eagerly, as `keras_trellis.backend` has it there
        states = [first]
        for factor, addend in zip(factors, addends, strict=True):
            states.append(factor * states[-1] + addend)
        return ops.stack(states[1:])

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        state = now[0] * state + now[1]
        return state, state

    return ops.scan(step, first, (factors, addends))[1]


def _scan(factors: Any, addends: Any, first: Any) -> Any:
    def joined(before: Any, after: Any) -> tuple[Any, Any]:
        return before[0] * after[0], after[0] * before[1] + after[1]

    products, sums = ops.associative_scan(joined, (factors, addends))
    return products * first + sums


def _milliseconds(steps: int, channels: int) -> list[float]:
    """Returns those of each way."""
    rng = np.random.default_rng(0)
    shape = (steps, 1, channels)
    factors, addends = rng.random((2, *shape)).astype("float32")
    arguments = (factors, addends, np.zeros(shape[1:], "float32"))
    runs = [_with_gradients(way, arguments) for _, way in _ways()]
    for run in runs:
        run()  # traces
    times = [[_time(run) for run in runs] for _ in range(FLAGS.rounds)]
    return [1000 * statistics.median(each) for each in zip(*times, strict=True)]


def _time(run: Callable[[], None]) -> float:
    begin, count = time.process_time(), 0
    while time.process_time() - begin < _LEAST:
        run()
        count += 1
    return (time.process_time() - begin) / count


def _with_gradients(way: Way, arguments: tuple[np.ndarray, ...]) -> Callable[[], None]:
    """Returns what computes the gradients of the squares of all h."""

    def loss(*tensors: Any) -> Any:
        return ops.sum(ops.square(way(*tensors)))

    tensors: list[Any] = [ops.convert_to_tensor(value) for value in arguments]
    if _BACKEND == "jax":
        import jax

        gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
        return lambda: jax.block_until_ready(gradients(*tensors))
    if _BACKEND == "torch":
        import torch

        leaves = [tensor.requires_grad_() for tensor in tensors]
        return lambda: torch.autograd.grad(loss(*leaves), leaves)
    import tensorflow as tf

    @tf.function(autograph=False)
    def differentiated(*given: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given)
            total = loss(*given)
        return tape.gradient(total, given)

    return lambda: differentiated(*tensors)[0].numpy()


if __name__ == "__main__":
    app.run(main)
