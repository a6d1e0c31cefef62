"""One training step of `TrellisLayer` beside its peers, in float32 on the CPU.

    python -m benchmarks.train_step --reference_dir=TRELLISNET --json=train_step.json

A step is the same for all: forward, the mean square of the outputs of all steps as loss, the
gradient with respect to the weights and to the input (there is an embedding below, as a rule),
and plain gradient descent. No dropout, no weight normalisation.

A contender that cannot run here is left out; a line says why.
`docs/benchmarks.md` explains the columns.
"""

import dataclasses
import importlib.util
import itertools
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import workers
from benchmarks.workers import Contender, LeftOutError, Result

FLAGS = flags.FLAGS
RATE = 1e-3  # of the gradient descent
PRODUCTS = 4  # how many levels' products are one step of the rows that do nothing else


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What all contenders are built for: an input [B, T, p] and the trellis network on it."""

    batch_size: int
    time_steps: int
    input_units: int
    units: int
    depth: int
    kernel_size: int
    dilation_rate: tuple[int, ...]
    threads: int
    reference_dir: str | None

    def input(self) -> Any:
        """Returns the input, a float32 array [B, T, p]."""
        import numpy as np

        shape = (self.batch_size, self.time_steps, self.input_units)
        return np.random.default_rng(0).normal(size=shape).astype("float32")

    def flops(self, weights: int) -> int:
        """Returns the work of a step for so many weights that every time step is multiplied with.

        A multiplication and an addition, in three products: forward, and the gradients with
        respect to either factor.
        """
        return 6 * self.batch_size * self.time_steps * weights

    def trellis_facts(self, input_weights: int, hidden_weights: int, parameters: int) -> dict:
        """Returns the facts of a trellis network, whoever wrote it.

        The input's product counts once for every dilation, the hidden product at every level
        but the first, whose hidden state is zero.
        """
        dilations = len(set(self.dilation_rate[: self.depth]))
        weights = dilations * input_weights + (self.depth - 1) * hidden_weights
        return {
            "flops": self.flops(weights),
            "receptive_field": self.receptive_field(),
            "parameters": parameters,
        }

    def receptive_field(self) -> int:
        """Returns `keras_trellis.receptive_field`, without TensorFlow in the peers' processes."""
        dilations = list(itertools.islice(itertools.cycle(self.dilation_rate), self.depth))
        if self.kernel_size == 1:
            return 1 + sum(dilations[1:])
        return 1 + (self.kernel_size - 1) * sum(dilations)


# The contenders


def trellis(sizes: Sizes) -> Contender:
    """This package's layer."""
    import keras_trellis

    layer = keras_trellis.TrellisLayer(
        sizes.units,
        sizes.depth,
        kernel_size=sizes.kernel_size,
        dilation_rate=sizes.dilation_rate,
        return_sequences=True,
    )
    step = _keras_step(layer, sizes)
    return Contender(
        step,
        sizes.trellis_facts(
            math.prod(layer.kernel.shape),
            math.prod(layer.recurrent_kernel.shape),
            layer.count_params(),
        ),
    )


def lstm(sizes: Sizes) -> Contender:
    """Keras's LSTM of the same units: the work of about one level, one time step after another."""
    import keras

    layer = keras.layers.LSTM(sizes.units, return_sequences=True)
    return Contender(_keras_step(layer, sizes), _keras_facts(layer, sizes, None))


def tcn(sizes: Sizes) -> Contender:
    """keras-tcn with the same width, and dilations 1, 2, 4, ... until it reaches as far back."""
    from tcn import TCN

    taps = max(sizes.kernel_size, 2)  # with one it would not see the past
    dilations = tcn_dilations(sizes.receptive_field(), taps)
    layer = TCN(sizes.units, taps, dilations=dilations, return_sequences=True)
    return Contender(_keras_step(layer, sizes), _keras_facts(layer, sizes, layer.receptive_field))


def tcn_dilations(steps: int, kernel_size: int) -> list[int]:
    """Returns the fewest dilations 1, 2, 4, ... with which a TCN spans so many steps.

    It has two convolutions for each dilation.
    """
    dilations = [1]
    while 1 + 2 * (kernel_size - 1) * sum(dilations) < steps:
        dilations.append(2 * dilations[-1])
    return dilations


def _keras_step(layer: Any, sizes: Sizes) -> Callable[[], Any]:
    import tensorflow as tf

    sequences = tf.constant(sizes.input())
    layer.build(sequences.shape)
    variables = [variable.value for variable in layer.trainable_variables]

    @tf.function
    def step(sequences: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(sequences)
            loss = tf.reduce_mean(tf.square(layer(sequences, training=True)))
        below, *gradients = tape.gradient(loss, [sequences, *variables])
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss, below  # what is not returned would not be computed

    step.get_concrete_function(sequences)  # tracing belongs to the process at rest
    return lambda: step(sequences)[0].numpy()


def _keras_facts(layer: Any, sizes: Sizes, receptive_field: int | None) -> dict[str, Any]:
    weights = sum(
        math.prod(variable.shape)
        for variable in layer.trainable_variables
        if len(variable.shape) > 1
    )
    return {
        "flops": sizes.flops(weights),
        "receptive_field": receptive_field,
        "parameters": layer.count_params(),
    }


def authors(sizes: Sizes) -> Contender:
    """The authors' code, as it lies on the disk."""
    if sizes.reference_dir is None:
        raise LeftOutError(
            "it needs --reference_dir=DIR, a clone of https://github.com/locuslab/trellisnet"
        )
    network = _authors_module(Path(sizes.reference_dir))
    import torch

    torch.set_num_threads(sizes.threads)
    net = network.TrellisNet(
        sizes.input_units,
        0,
        sizes.units,
        nlevels=sizes.depth,
        kernel_size=sizes.kernel_size,
        wnorm=False,
        dilation=list(sizes.dilation_rate),
    )
    sequences = torch.tensor(sizes.input().transpose(0, 2, 1), requires_grad=True)
    state = torch.zeros(sizes.batch_size, sizes.units, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def step() -> float:
        optimizer.zero_grad()
        sequences.grad = None
        outputs, _, _ = net(sequences, (state, state), aux=False)
        loss = outputs.square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    facts = sizes.trellis_facts(
        net.full_conv.weight1.numel(),
        net.full_conv.weight2.numel(),
        sum(parameter.numel() for parameter in net.parameters()),
    )
    return Contender(step, facts)


def _authors_module(clone: Path) -> Any:
    """Imports their network, made to run without a GPU.

    It puts its zeros on a GPU by name. In this process, which runs nothing else, `cuda` is to
    leave a tensor where it is.
    """
    import torch

    path = clone / "TrellisNet" / "trellisnet.py"
    if not path.is_file():
        raise LeftOutError(f"--reference_dir={clone} has no {path.relative_to(clone)}")
    torch.Tensor.cuda = lambda tensor: tensor
    sys.path.insert(0, str(path.parent))  # it imports its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def products_tensorflow(sizes: Sizes) -> Contender:
    """The products of a level and nothing else: the rate that this machine has for these shapes."""
    import tensorflow as tf

    taps, kernel, blocks = map(tf.constant, _factors(sizes))

    @tf.function
    def level() -> tuple[tf.Tensor, ...]:
        return (
            tf.matmul(taps, kernel),
            tf.matmul(blocks, kernel, transpose_b=True),
            tf.matmul(taps, blocks, transpose_a=True),
        )

    return Contender(lambda: [level() for _ in range(PRODUCTS)], _products_facts(sizes))


def products_torch(sizes: Sizes) -> Contender:
    """The same by PyTorch, which may have another library of products."""
    import torch

    torch.set_num_threads(sizes.threads)
    taps, kernel, blocks = map(torch.tensor, _factors(sizes))

    def level() -> tuple:
        return taps @ kernel, blocks @ kernel.T, taps.T @ blocks

    return Contender(lambda: [level() for _ in range(PRODUCTS)], _products_facts(sizes))


def _factors(sizes: Sizes) -> list:
    """Returns arrays like a level's taps [BT, k q], hidden kernel [k q, 4q] and blocks [BT, 4q]."""
    import numpy as np

    rows, inner, columns = _product_shape(sizes)
    shapes = [(rows, inner), (inner, columns), (rows, columns)]
    return [np.random.default_rng(0).normal(size=shape).astype("float32") for shape in shapes]


def _product_shape(sizes: Sizes) -> tuple[int, int, int]:
    rows = sizes.batch_size * sizes.time_steps
    return rows, sizes.kernel_size * sizes.units, 4 * sizes.units


def _products_facts(sizes: Sizes) -> dict[str, Any]:
    return {"flops": PRODUCTS * 6 * math.prod(_product_shape(sizes))}


OURS = "trellis"
CEILINGS = ("products_tensorflow", "products_torch")
CONTENDERS = {
    OURS: ("keras_trellis.TrellisLayer", trellis),
    "lstm": ("keras.layers.LSTM", lstm),
    "tcn": ("keras-tcn", tcn),
    "authors": ("the authors' code", authors),
    "products_tensorflow": ("products alone, TensorFlow", products_tensorflow),
    "products_torch": ("products alone, PyTorch", products_torch),
}


# The result


def row(name: str, results: dict[str, Result]) -> dict[str, Any]:
    """Returns a contender's row, its ratios taken round by round."""
    facts, readings = results[name]
    seconds = [reading.seconds for reading in readings]
    found = {"name": name, "title": CONTENDERS[name][0], **facts, "seconds": seconds}
    found["gflops_per_second"] = facts["flops"] / statistics.median(seconds) / 1e9
    fastest = _fastest_products(results)
    if fastest:
        share = [facts["flops"] / s / rate for s, rate in zip(seconds, fastest, strict=True)]
        found["share_of_products"] = spread(share)
    if name not in CEILINGS:
        ours = results[OURS].readings
        found["time_to_ours"] = spread([s / o.seconds for s, o in zip(seconds, ours, strict=True)])
        found["peak_bytes"] = _peak(readings)
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the least, the median and the greatest."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def _fastest_products(results: dict[str, Result]) -> list[float]:
    """Returns each round's rate of the faster of the libraries of products, in flop/s."""
    rates = [
        [results[name].facts["flops"] / reading.seconds for reading in results[name].readings]
        for name in CEILINGS
        if name in results
    ]
    return [max(each) for each in zip(*rates, strict=True)]


def _peak(readings: Sequence[workers.Reading]) -> int | None:
    peaks = [reading.bytes for reading in readings if reading.bytes is not None]
    return max(peaks) if peaks else None


def table(rows: Sequence[dict[str, Any]], sizes: Sizes) -> str:
    """Returns rows as a Markdown table."""
    lines = [
        "| | ms a step | time to ours: min, median, max | tokens/s | GFLOP/s | of the products' "
        "| peak MiB | receptive field | parameters |",
        "|---" + "|---:" * 8 + "|",
    ]
    lines += ["| " + " | ".join(_cells(found, sizes)) + " |" for found in rows]
    return "\n".join(lines)


def _cells(found: dict[str, Any], sizes: Sizes) -> list[str]:
    cells = [found["title"], f"{1e3 * statistics.median(found['seconds']):.1f}"]
    ceiling = found["name"] in CEILINGS
    ratio = found.get("time_to_ours")
    tokens = sizes.batch_size * sizes.time_steps / statistics.median(found["seconds"])
    share = found.get("share_of_products")
    peak = found.get("peak_bytes")
    reach = "" if ceiling else str(found["receptive_field"] or "no end")
    return [
        *cells,
        "{min:.2f}, **{median:.2f}**, {max:.2f}".format(**ratio) if ratio else "",
        "" if ceiling else f"{tokens:,.0f}",
        f"{found['gflops_per_second']:,.0f}",
        f"{share['median']:.0%}" if share else "",
        "" if peak is None else f"{peak / 2**20:,.0f}",
        reach,
        "" if ceiling else f"{found['parameters']:,}",
    ]


def machine() -> dict[str, Any]:
    """Returns what the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {}
    for name in ("tensorflow", "keras", "keras-tcn", "torch"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": workers.available_cores(),
        "load_average": round(os.getloadavg()[0], 2),  # before: what others do
        "python": platform.python_version(),
        "versions": versions,
    }


# The command


def define_flags() -> None:
    """Defines the flags; not on import, so that a test may import this module."""
    flags.DEFINE_integer("batch_size", 16, "B.", lower_bound=1)
    flags.DEFINE_integer("time_steps", 110, "T.", lower_bound=1)
    flags.DEFINE_integer("input_units", None, "p; as `units` by default.", lower_bound=1)
    flags.DEFINE_integer("units", 512, "Hidden channels, q.", lower_bound=1)
    flags.DEFINE_integer("depth", 20, "Levels, L.", lower_bound=1)
    flags.DEFINE_integer("kernel_size", 2, "Taps, k.", lower_bound=1)
    flags.DEFINE_list("dilation_rate", ["1"], "The cycle of dilations: 1,2,4,8.")
    flags.DEFINE_integer("threads", None, "For each contender; all cores by default.")
    flags.DEFINE_integer("warmup", 2, "Rounds that do not count.", lower_bound=1)
    flags.DEFINE_integer("rounds", 10, "Rounds that count.", lower_bound=1)
    flags.DEFINE_multi_enum("only", None, list(CONTENDERS), f"Beside {OURS}; all by default.")
    flags.DEFINE_string("reference_dir", None, "A clone of github.com/locuslab/trellisnet.")
    flags.DEFINE_string("json", None, "A file for the result, each reading included.")


def _sizes() -> Sizes:
    cores = workers.available_cores()
    threads = cores if FLAGS.threads is None else FLAGS.threads
    if not 1 <= threads <= cores:
        raise app.UsageError(
            f"`threads` must be from 1 to {cores}, the cores here. Received: --threads={threads}"
        )
    dilations = FLAGS.dilation_rate
    if not dilations or not all(each.isdecimal() and int(each) > 0 for each in dilations):
        raise app.UsageError(
            "`dilation_rate` must be numbers like 1,2,4. "
            f"Received: --dilation_rate={','.join(dilations)}"
        )
    return Sizes(
        batch_size=FLAGS.batch_size,
        time_steps=FLAGS.time_steps,
        input_units=FLAGS.input_units or FLAGS.units,
        units=FLAGS.units,
        depth=FLAGS.depth,
        kernel_size=FLAGS.kernel_size,
        dilation_rate=tuple(map(int, dilations)),
        threads=threads,
        reference_dir=FLAGS.reference_dir,
    )


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(
            f"arguments must be flags, --FLAG=VALUE. Received: {' '.join(argv[1:])}"
        )
    sizes, here = _sizes(), machine()
    names = [name for name in CONTENDERS if name == OURS or name in (FLAGS.only or CONTENDERS)]
    print(
        f"{here['processor']}, {sizes.threads} threads, load average {here['load_average']}",
        flush=True,
    )
    results, left_out = workers.measure(
        {name: CONTENDERS[name][1] for name in names},
        sizes,
        threads=sizes.threads,
        warmup=FLAGS.warmup,
        rounds=FLAGS.rounds,
    )
    for name, reason in left_out.items():
        print(f"Left out: {CONTENDERS[name][0]}: {reason}")
    if OURS in left_out:
        return 1
    rows = [row(name, results) for name in names if name in results]
    print(table(rows, sizes))
    if FLAGS.json:
        found = {"sizes": dataclasses.asdict(sizes), **here, "rows": rows, "left_out": left_out}
        found["command"] = ["python", "-m", "benchmarks.train_step", *sys.argv[1:]]
        Path(FLAGS.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
