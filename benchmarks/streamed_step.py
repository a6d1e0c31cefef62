"""A streamed step in TensorFlow, JAX, ONNX Runtime and LiteRT, by a cache and by delay lines.

    python -m benchmarks.streamed_step --threads=1

Seven levels of 256 channels and four taps, that see 16,384 steps or, with dilations that cycle, a
hundred or so; the model of docs/learn/watch.py; and an LSTM of as many parameters beside each, in
the same runtime. `docs/results/streaming.md` has the table.
"""

import functools
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from benchmarks import report, workers
from benchmarks.sizes import nearest_units
from benchmarks.workers import Contender

FLAGS = flags.FLAGS
_CALLS = 50  # in each reading; one alone takes a fraction of a millisecond
LINES, CACHE, LSTM = "lines", "cache", "lstm"


class Network(NamedTuple):
    """A trellis network.

    Attributes:
        title: what the table calls it.
        inputs: the channels of its input.
        units: its channels.
        kernel_size: its taps.
        dilation_rate: its cycle of dilations.
        depth: its levels.
    """

    title: str
    inputs: int
    units: int
    kernel_size: int
    dilation_rate: tuple[int, ...]
    depth: int


FAR = Network("sees 16,384", 256, 256, 4, tuple(4**level for level in range(7)), 7)
NEAR = FAR._replace(title="dilations 1, 4, 16", dilation_rate=(1, 4, 16))
WATCH = Network("watch", 6, 44, 8, (1, 8, 64), 3)


class Case(NamedTuple):
    """What is measured.

    Attributes:
        runtime: a name in `RUNTIMES`.
        network: the network.
        rows: B.
        steps: the steps of a chunk.
    """

    runtime: str
    network: Network
    rows: int = 1
    steps: int = 1

    @property
    def title(self) -> str:
        """What the table calls it."""
        rows = f", {self.rows:,} streams" if self.rows > 1 else ""
        chunk = f", chunks of {self.steps}" if self.steps > 1 else ""
        return f"{self.runtime}: {self.network.title}{rows}{chunk}"


# In a contender's process


def _model(case: Case, form: str) -> Any:
    """Returns the streamed model of a case: the network, or the LSTM beside it."""
    os.environ["KERAS_BACKEND"] = "jax" if case.runtime == "JAX" else "tensorflow"
    import keras

    import keras_trellis

    keras.utils.set_random_seed(0)
    network = case.network
    inputs = keras.Input([None, network.inputs], name="signal")
    layer = keras_trellis.TrellisLayer(
        network.units,
        network.depth,
        kernel_size=network.kernel_size,
        dilation_rate=network.dilation_rate,
        return_sequences=True,
    )
    outputs = layer(inputs)
    if form == LSTM:
        wanted = layer.count_params()
        units = nearest_units(lambda n: 4 * n * (network.inputs + n + 1), wanted)
        outputs = keras.layers.LSTM(units, return_sequences=True)(inputs)
    return keras_trellis.StreamedModel(keras.Model(inputs, outputs))


def _contender(streamed: Any, case: Case, call: Callable[[], Any]) -> Contender:
    def step() -> None:
        for _ in range(_CALLS):
            call()

    model = streamed.model
    return Contender(step, {"parameters": model.count_params()})


def _signal(case: Case) -> np.ndarray:
    shape = [case.rows, case.steps, case.network.inputs]
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def in_process(form: str, case: Case) -> Contender:
    """A step by Keras's backend."""
    streamed = _model(case, form)
    from keras import ops

    chunk = ops.convert_to_tensor(_signal(case))
    if form == LINES:
        running = streamed.start(case.rows)
        return _contender(streamed, case, lambda: _read(running.advance(chunk)))
    stream = _compiled(streamed.stream)
    cache = streamed.get_initial_cache(case.rows)

    def call() -> None:
        nonlocal cache
        outputs, cache = stream(chunk, cache)
        _read(outputs)

    return _contender(streamed, case, call)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function, donate_argnums=1)
    import tensorflow as tf

    return tf.function(function, autograph=False)


def _read(outputs: Any) -> None:
    """Waits until outputs are there."""
    np.asarray(outputs)


def exported(
    write: str, load: Callable[[str], Callable[..., Any]], form: str, case: Case
) -> Contender:
    """A step of an exported graph.

    Args:
        write: the format of the export.
        load: from a file to a function of named arrays.
        form: who keeps the past.
        case: what is measured.
    """
    from keras_trellis.formats.rings import Rings, Table

    streamed = _model(case, form)
    chunk = _signal(case)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "step")
        streamed.export(
            path,
            write,
            steps=case.steps,
            batch_size=case.rows,
            cache="host" if form == LINES else "graph",
        )
        run = load(path)
        if form == LINES:
            rings = Rings(Table.of_export(path), case.rows)

            def call() -> None:
                rings.push(run({"signal": chunk, **rings.read()}))

        else:
            cache = {
                name: np.asarray(tensor)
                for name, tensor in streamed.get_initial_cache(case.rows).items()
            }
            prefix = "next_" if write == "onnx" else ""

            def call() -> None:
                nonlocal cache
                outputs = run({"signal": chunk, **cache})
                cache = {name: outputs[prefix + name] for name in cache}

        call()
        size = Path(path).stat().st_size
    contender = _contender(streamed, case, call)
    return contender._replace(facts=contender.facts | {"bytes": size})


def onnx_session(path: str) -> Callable[..., Any]:
    """Returns the graph of a file in ONNX Runtime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, feed), strict=True))


def litert_signature(path: str) -> Callable[..., Any]:
    """Returns the graph of a file in LiteRT, on one thread."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=1)
    signature = interpreter.get_signature_runner("serving_default")
    return lambda feed: signature(**feed)


RUNTIMES: dict[str, Callable[..., Contender]] = {
    "TensorFlow": in_process,
    "JAX": in_process,
    "ONNX Runtime": functools.partial(exported, "onnx", onnx_session),
    "LiteRT": functools.partial(exported, "litert", litert_signature),
}
CASES: Sequence[Case] = [
    Case("TensorFlow", NEAR),
    Case("TensorFlow", FAR),
    Case("JAX", NEAR),
    Case("JAX", FAR),
    Case("LiteRT", NEAR),
    Case("LiteRT", FAR),
    Case("LiteRT", FAR, steps=64),
    Case("ONNX Runtime", NEAR),
    Case("ONNX Runtime", FAR),
    Case("ONNX Runtime", FAR, steps=64),
    Case("ONNX Runtime", WATCH),
    Case("ONNX Runtime", WATCH, rows=1000),
]


# In the command's own process


def measure(
    case: Case, processes: workers.Processes
) -> tuple[report.Facts, dict[str, str]]:
    """Returns the row of a case, and the reasons for what was left out."""
    build = RUNTIMES[case.runtime]
    # By a cache a chunk of many steps is as many single ones, whose export takes minutes.
    forms = (LINES, CACHE, LSTM) if case.steps == 1 else (LINES, LSTM)
    builds = {form: functools.partial(build, form) for form in forms}
    results, left_out = processes.measure(
        builds, case, warmup=FLAGS.warmup, rounds=FLAGS.rounds
    )
    row: dict[str, Any] = {"title": case.title, "steps": case.steps}
    for form, (facts, readings) in results.items():
        seconds = [reading.processor_seconds / _CALLS for reading in readings]
        row[form] = report.spread(seconds) | facts
        if LINES in results:
            others = results[LINES].readings
            row[f"{form}_to_lines"] = report.processor_ratios(readings, others)
    return row, {f"{case.title}: {form}": why for form, why in left_out.items()}


def _milliseconds(form: str, row: report.Row) -> str:
    return report.number(1e3 * row[form]["median"], 3) if form in row else ""


def _to_lstm(row: report.Row) -> str:
    ratio = row.get(f"{LSTM}_to_lines")
    return report.number(1 / ratio["median"], 2) if ratio else ""


COLUMNS: report.Columns = {
    "one chunk, CPU ms": report.title,
    "by delay lines": functools.partial(_milliseconds, LINES),
    "by a cache": functools.partial(_milliseconds, CACHE),
    "an equal LSTM": functools.partial(_milliseconds, LSTM),
    "lines / LSTM": _to_lstm,
}


def define_flags() -> None:
    """Defines the flags."""
    report.define_case()
    report.define_flags(rounds=9, warmup=2)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    cases = report.selected(CASES)
    rows, all_left_out = [], {}
    # A process has one backend of Keras.
    for _, of_runtime in itertools.groupby(cases, lambda case: case.runtime):
        with workers.Processes(here["threads"]) as processes:
            for case in of_runtime:
                print(case.title, flush=True)
                row, left_out = measure(case, processes)
                rows.append(row)
                all_left_out |= left_out
    result = {**here, "left_out": all_left_out, "rows": rows}
    report.end(result, report.table(rows, COLUMNS))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
