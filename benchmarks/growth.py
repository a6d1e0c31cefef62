"""How a training step's time grows with T, depth, batch, width and vocabulary.

    python -m benchmarks.growth --reference_dir=TRELLISNET --json=growth.json --plot=growth.png

One size at a time grows, the others are small. The exponent e of size^e is fitted by least squares
to the logarithms of the larger half of the sizes, where what a step costs whatever its size no
longer counts. The vocabulary grows in a language model with a tied softmax, all else in the layer.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import authors as released
from benchmarks import contenders, report, workers
from benchmarks.sizes import Sizes
from benchmarks.workers import Build, Contender

FLAGS = flags.FLAGS
VOCABULARY = "vocabulary"
SMALL = {"batch_size": 1, "time_steps": 64, "units": 64, "depth": 8}


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A language model of one word vector's size throughout, and its batch."""

    vocabulary_size: int
    threads: int
    reference_dir: str | None
    batch_size: int = 4
    time_steps: int = 32
    units: int = 64
    depth: int = 4

    def arrays(self) -> dict[str, Any]:
        """Returns the weights, by the authors' names."""
        return released.language_model_arrays(self.vocabulary_size, self.units, self.units)

    def ids(self) -> tuple[Any, Any]:
        """Returns ids and targets [B, T], int32."""
        import numpy as np

        shape = (self.batch_size, self.time_steps + 1)
        ids = np.random.default_rng(0).integers(self.vocabulary_size, size=shape, dtype=np.int32)
        return ids[:, :-1], ids[:, 1:]


def trellis_lm(model_sizes: LanguageModel) -> Contender:
    """A training step of `TrellisLM`: loss and gradients, and plain gradient descent."""
    import tensorflow as tf

    from keras_trellis import convert

    model = convert.language_model_from_torch(
        model_sizes.arrays(), depth=model_sizes.depth, dilation_rate=1
    )
    variables = [variable.value for variable in model.trainable_variables]

    @tf.function
    def step(ids: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            terms, _ = model.loss_terms(ids, targets, training=True)
            loss = tf.add_n(list(terms))
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(contenders.RATE * tf.convert_to_tensor(gradient))
        return loss

    ids, targets = map(tf.constant, model_sizes.ids())
    step.get_concrete_function(ids, targets)
    return Contender(lambda: step(ids, targets).numpy(), {})


def authors_lm(model_sizes: LanguageModel) -> Contender:
    """The same step of the authors' language model."""
    model = released.language_model(
        model_sizes.reference_dir, model_sizes.arrays(), model_sizes.depth
    )
    import torch
    from torch.nn import functional

    torch.set_num_threads(model_sizes.threads)
    optimizer = torch.optim.SGD(model.parameters(), lr=contenders.RATE)
    ids, targets = (torch.tensor(each).long() for each in model_sizes.ids())

    def step() -> float:
        optimizer.zero_grad()
        (_, _, logits), _, _ = model(ids, model.init_hidden(len(ids)))
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return Contender(step, {})


class Sweep(NamedTuple):
    """A size that grows; the values up to which it does by default; what else differs."""

    field: str
    values: tuple[int, ...]
    builds: dict[str, Build]
    others: dict[str, int]


OURS = "keras_trellis"
AUTHORS = "the authors' code"
LAYERS = {OURS: contenders.trellis, AUTHORS: contenders.authors}
LAYERS_AND_LSTM = {**LAYERS, "keras.layers.LSTM": contenders.lstm}
SWEEPS = {
    "T": Sweep("time_steps", tuple(2**n for n in range(6, 15)), LAYERS_AND_LSTM, {}),
    "depth": Sweep("depth", tuple(2**n for n in range(2, 9)), LAYERS, {}),
    "batch": Sweep(
        "batch_size", tuple(2**n for n in range(7)), LAYERS_AND_LSTM, {"time_steps": 256}
    ),
    "width": Sweep("units", tuple(2**n for n in range(6, 12)), LAYERS_AND_LSTM, {"depth": 4}),
    VOCABULARY: Sweep(
        "vocabulary_size",
        (1_000, 4_000, 16_000, 64_000, 267_735),
        {OURS: trellis_lm, AUTHORS: authors_lm},
        {},
    ),
}


def settings(name: str, largest: int | None, threads: int, clone: str | None) -> list[Any]:
    """Returns what a sweep's contenders are built for, one for each value up to the largest."""
    sweep = SWEEPS[name]
    values = [value for value in sweep.values if largest is None or value <= largest]
    common: dict[str, Any] = {"threads": threads, "reference_dir": clone}
    if name == VOCABULARY:
        return [LanguageModel(value, **common) for value in values]
    common |= SMALL | sweep.others
    grown = [common | {sweep.field: value} for value in values]
    return [Sizes(input_units=each["units"], **each) for each in grown]


def exponent(values: Sequence[float], measured: Sequence[float]) -> float | None:
    """Returns e of measured ~ values^e over the larger half of the values, at least two."""
    import numpy as np

    kept = max(2, math.ceil(len(values) / 2))
    if len(values) < 2:
        return None
    slope, _ = np.polyfit(np.log(values[-kept:]), np.log(measured[-kept:]), 1)
    return float(slope)


def curve(name: str, values: Sequence[int], readings: Sequence[Sequence[workers.Reading]]) -> dict:
    """Returns a contender's curve: the median time by value, and the exponent."""
    times = [statistics.median(report.seconds(each)) for each in readings]
    return {
        "name": name,
        "values": list(values),
        "seconds": times,
        "exponent": exponent(values, times),
    }


def measure(name: str, largest: int | None, threads: int, rounds: int) -> tuple[dict, dict]:
    """Returns a sweep's curves, and who was left out."""
    sweep = SWEEPS[name]
    each = settings(name, largest, threads, FLAGS.reference_dir)
    values = [getattr(setting, sweep.field) for setting in each]
    results, left_out = workers.measure_each(sweep.builds, each, threads=threads, rounds=rounds)
    curves = [
        curve(title, values, [result[title].readings for result in results]) for title in results[0]
    ]
    return {"sweep": name, "setting": _fixed(name, each[0]), "curves": curves}, left_out


def _fixed(name: str, setting: Any) -> dict[str, Any]:
    """Returns the sizes that do not grow."""
    shown = ("batch_size", "time_steps", "units", "depth")
    return {field: getattr(setting, field) for field in shown if field != SWEEPS[name].field}


def table(found: dict[str, Any]) -> str:
    """Returns the exponents as a Markdown table."""
    titles = ("grows", "from, to", "the others", "", "ms at the largest", "time ~")
    rows = [
        [
            each["sweep"],
            f"{one['values'][0]:,}, {one['values'][-1]:,}",
            ", ".join(f"{name} {value}" for name, value in each["setting"].items()),
            one["name"],
            f"{1e3 * one['seconds'][-1]:,.1f}",
            "" if one["exponent"] is None else f"{each['sweep']}^{one['exponent']:.2f}",
        ]
        for each in found["sweeps"]
        for one in each["curves"]
    ]
    return report.markdown(titles, rows)


def draw(found: dict[str, Any], path: Path) -> None:
    """Draws a panel a sweep, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    count = len(found["sweeps"])
    figure, panels = pyplot.subplots(
        1, count, figsize=(3.2 * count, 3.4), squeeze=False, sharey=True
    )
    for axes, each in zip(panels[0], found["sweeps"], strict=True):
        for one in each["curves"]:
            fitted = "" if one["exponent"] is None else f": {one['exponent']:.2f}"
            axes.plot(one["values"], one["seconds"], "o-", ms=3, label=one["name"] + fitted)
        axes.set(xscale="log", yscale="log", xlabel=each["sweep"])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, frameon=False)
    panels[0][0].set_ylabel("seconds a training step")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_multi_enum("sweep", list(SWEEPS), list(SWEEPS), "What grows; all by default.")
    flags.DEFINE_integer("largest", None, "Leaves out greater values.", lower_bound=1)
    flags.DEFINE_string("plot", None, "A file for the picture.")
    report.define_flags(rounds=2)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    sweeps, left_out = [], {}
    for name in dict.fromkeys(FLAGS.sweep):
        print(name, flush=True)
        sweep, missing = measure(name, FLAGS.largest, here["threads"], FLAGS.rounds)
        sweeps.append(sweep)
        left_out |= {f"{title}, {name}": reason for title, reason in missing.items()}
    found = {**here, "sweeps": sweeps, "left_out": left_out}
    report.end(found, table)
    if FLAGS.plot:
        draw(found, Path(FLAGS.plot))
    return int(any(title.startswith(OURS) for title in left_out))


if __name__ == "__main__":
    define_flags()
    app.run(main)
