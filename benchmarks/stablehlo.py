"""The compiled training step of `TrellisLayer` on a device that has JAX, but not TensorFlow.

Where TensorFlow is, any CPU (the preset's other sizes are flags):

    python -m benchmarks.stablehlo --write=DIR --preset=word_ptb --dtype=bfloat16

and where the device is, with this folder `benchmarks` and DIR copied there:

    python -m benchmarks.stablehlo --run=DIR --json=stablehlo.json

DIR holds the step as a portable StableHLO artifact, its sizes, and what it returned on the CPU
without XLA. Inputs are drawn anew from a seed and checked by their hash, and of large outputs there
are samples, so that DIR is small. The step is forward, the mean square of the kept outputs, and the
gradients with respect to the input and the weights, which it returns.
"""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import report
from benchmarks.sizes import DTYPES, Sizes

FLAGS = flags.FLAGS
# The authors' defaults: batch, window, outputs discarded, word vectors, units, levels.
PRESETS = {
    "word_ptb": Sizes(16, 110, 400, 1400, 58, discard=58),
    "word_wt103": Sizes(40, 75, 512, 2112, 75),
}
OUTPUTS = ("loss", "input's gradient", "kernel's", "recurrent kernel's", "bias's")
SAMPLES = 65_536  # of each output
# Relative error in the Euclidean norm. Devices round products' factors: float32 to 10 bits, say.
TOLERANCES = {"float32": 1e-2, "bfloat16": 5e-2}
PRODUCTS = 10  # how many levels' products are one step of the ceiling


def inputs(sizes: Sizes) -> list[np.ndarray]:
    """Returns input, kernel, recurrent kernel and bias, float32, drawn from a seed."""
    random = np.random.default_rng(1)
    taps, units = sizes.kernel_size, sizes.units

    def normal(deviation: float, *shape: int) -> np.ndarray:
        return (deviation * random.standard_normal(shape)).astype(np.float32)

    return [
        sizes.input(),
        normal((taps * sizes.input_units) ** -0.5, taps, sizes.input_units, 4 * units),
        normal((taps * units) ** -0.5, taps, units, 4 * units),
        normal(0.1, 4 * units),
    ]


def fingerprint(arrays: Sequence[np.ndarray]) -> str:
    """Returns a hash of the arrays' bytes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, "<f4").tobytes())
    return digest.hexdigest()


def samples(array: np.ndarray) -> np.ndarray:
    """Returns at most `SAMPLES` entries, evenly spaced, and at least all where there are fewer."""
    flat = np.asarray(array, np.float32).reshape(-1)
    return flat[:: max(1, math.ceil(flat.size / SAMPLES))]


def relative_errors(found: Sequence[Any], expected: Sequence[Any]) -> list[float]:
    """Returns for each output the norm of the difference over the norm of what is expected."""
    return [
        float(np.linalg.norm(samples(one) - other) / (np.linalg.norm(other) or 1))
        for one, other in zip(found, expected, strict=True)
    ]


# Where TensorFlow is


def write(folder: Path, sizes: Sizes) -> None:
    """Writes the step, its sizes, and what it returns."""
    import tensorflow as tf

    arrays = inputs(sizes)
    step = training_step(sizes)
    specs = [tf.TensorSpec(array.shape, tf.float32) for array in arrays]
    compiled = tf.function(step, jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo_serialized")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step.stablehlo").write_bytes(program)
    outputs = tf.function(step, autograph=False)(*map(tf.constant, arrays))
    np.savez(folder / "expected.npz", *[samples(each.numpy()) for each in outputs])
    about = {
        "sizes": dataclasses.asdict(sizes),
        "facts": sizes.trellis_facts(
            arrays[1].size, arrays[2].size, sum(a.size for a in arrays[1:])
        ),
        "inputs": fingerprint(arrays),
        "written_by": report.machine(),
    }
    (folder / "step.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def training_step(sizes: Sizes) -> Callable[..., tuple]:
    """Returns the step as a function of its inputs alone."""
    import keras
    import tensorflow as tf

    import keras_trellis

    layer = keras_trellis.TrellisLayer(
        sizes.units,
        sizes.depth,
        kernel_size=sizes.kernel_size,
        dilation_rate=sizes.dilation_rate,
        dtype="mixed_bfloat16" if sizes.dtype == "bfloat16" else sizes.dtype,
    )
    layer.build((sizes.batch_size, sizes.time_steps, sizes.input_units))
    variables = [layer.kernel, layer.recurrent_kernel, layer.bias]

    def step(*arguments: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            sequences, *weights = arguments
            with keras.StatelessScope(list(zip(variables, weights, strict=True))):
                outputs, _, _ = layer.propagate(sequences, training=True, discard=sizes.discard)
            loss = tf.reduce_mean(tf.square(tf.cast(outputs, tf.float32)))
        return loss, *tape.gradient(loss, arguments)

    return step


# Where the device is


def run(folder: Path, rounds: int) -> dict[str, Any]:
    """Compiles the step for JAX's default device, runs, checks and times it."""
    import jax
    from jax.extend import backend

    about = json.loads((folder / "step.json").read_text(encoding="utf-8"))
    sizes = Sizes(**about["sizes"])
    arrays = inputs(sizes)
    if fingerprint(arrays) != about["inputs"]:
        raise ValueError(
            f"{folder}: this NumPy, {np.__version__}, draws other inputs from the seed"
        )
    client, device = backend.get_backend(), jax.devices()[0]
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    start = time.perf_counter()
    program = (folder / "step.stablehlo").read_bytes()
    executable = client.compile_and_load(program, [device], options)
    compiled = time.perf_counter() - start
    placed = [jax.device_put(array, device) for array in arrays]
    outputs = executable.execute(placed)
    with np.load(folder / "expected.npz") as expected:
        errors = relative_errors(outputs, [expected[name] for name in expected.files])
    times = timed(lambda: jax.block_until_ready(executable.execute(placed)), rounds)
    ceiling = timed(products(sizes), rounds)
    return {
        **about,
        "device": f"{device.platform}: {device.device_kind}",
        "compile_seconds": compiled,
        "seconds": times,
        "errors": dict(zip(OUTPUTS, errors, strict=True)),
        "tolerance": TOLERANCES[sizes.dtype],
        "products_flops_per_second": PRODUCTS * sizes.product_flops() / np.median(ceiling),
    }


def products(sizes: Sizes) -> Callable[[], Any]:
    """Returns the three products of a level, `PRODUCTS` times, on JAX's device."""
    import jax

    rows, inner, columns = sizes.product_shape()
    shapes = [(rows, inner), (inner, columns), (rows, columns)]
    keys = jax.random.split(jax.random.key(0), len(shapes))
    factors = [
        jax.random.normal(key, shape, sizes.dtype) for key, shape in zip(keys, shapes, strict=True)
    ]

    @jax.jit
    def level(taps: Any, kernel: Any, blocks: Any) -> tuple:
        return taps @ kernel, blocks @ kernel.T, taps.T @ blocks

    return lambda: jax.block_until_ready([level(*factors) for _ in range(PRODUCTS)])


def timed(step: Callable[[], Any], rounds: int) -> list[float]:
    """Returns the seconds of so many steps, after one that does not count."""
    step()
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return found


def table(found: dict[str, Any]) -> str:
    """Returns the result as a Markdown table."""
    titles = (
        *("device", "sizes", "dtype", "ms a step", "tokens/s", "GFLOP/s", "of the products'"),
        *("largest relative error", "seconds to compile"),
    )
    sizes, median = Sizes(**found["sizes"]), float(np.median(found["seconds"]))
    rate = found["facts"]["flops"] / median
    worst = max(found["errors"], key=found["errors"].get)
    cells = [
        found["device"],
        f"B {sizes.batch_size}, T {sizes.time_steps}, discard {sizes.discard}, "
        f"p {sizes.input_units}, q {sizes.units}, L {sizes.depth}",
        sizes.dtype,
        f"{1e3 * median:,.2f}",
        f"{sizes.batch_size * (sizes.time_steps - sizes.discard) / median:,.0f}",
        f"{rate / 1e9:,.0f}",
        f"{rate / found['products_flops_per_second']:.0%}",
        f"{found['errors'][worst]:.1e} ({worst})",
        f"{found['compile_seconds']:.1f}",
    ]
    return report.markdown(titles, [cells])


# The command


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("write", None, "A folder for the step; needs TensorFlow.")
    flags.DEFINE_string("run", None, "The folder of a written step to run; needs JAX.")
    flags.DEFINE_enum("preset", "word_ptb", list(PRESETS), "The sizes of the step to write.")
    flags.DEFINE_enum("dtype", "float32", DTYPES, "What the step computes in.")
    for field in ("batch_size", "time_steps", "input_units", "units", "depth"):
        flags.DEFINE_integer(field, None, "Instead of the preset's.", lower_bound=1)
    flags.DEFINE_integer("discard", None, "Instead of the preset's.", lower_bound=0)
    flags.DEFINE_integer("rounds", 10, "Steps that count.", lower_bound=1)
    flags.DEFINE_string("json", None, "A file for the result of --run.")


def main(argv: Sequence[str]) -> int:
    """Writes or runs; returns the exit status, 1 where the result is not what was expected."""
    if len(argv) > 1 or (FLAGS.write is None) == (FLAGS.run is None):
        raise app.UsageError("give one of --write=DIR and --run=DIR, and flags alone")
    if FLAGS.write is not None:
        given = {
            name: FLAGS[name].value
            for name in ("batch_size", "time_steps", "input_units", "units", "depth", "discard")
            if FLAGS[name].value is not None
        }
        write(
            Path(FLAGS.write),
            dataclasses.replace(PRESETS[FLAGS.preset], dtype=FLAGS.dtype, **given),
        )
        return 0
    found = {"command": report.command(), **report.machine()}
    found |= {**run(Path(FLAGS.run), FLAGS.rounds), "left_out": {}}
    report.end(found, table)
    return int(max(found["errors"].values()) > found["tolerance"])


if __name__ == "__main__":
    define_flags()
    app.run(main)
