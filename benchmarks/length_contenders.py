"""The contenders of `benchmarks.lengths`: layers with as many parameters as a trellis network.

Each function is called in a process of its own. A contender of TensorFlow tries its step with and
without XLA, and takes the faster one.
"""

from __future__ import annotations

import dataclasses
import functools
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import contenders
from benchmarks.report import Contenders
from benchmarks.sizes import Sizes, nearest_units
from benchmarks.workers import Contender, LeftOutError
from trainers.training import resources

TAPS = 4
# A training step for the last output, the same with a mask, one for all outputs, and a time step of
# a stream.
TASKS = ("answer", "masked", "outputs", "stream")
MEMORY = 4 << 30  # bytes that a layer on TensorFlow may take
STREAMED_STEPS = 50  # of a reading: one alone would be too short


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        task: one of `TASKS`.
        time_steps: T. The network with levels sees so many, in a stream too.
        channels: channels of the input and of the trellis network.
        batch_size: B.
        threads: of each contender.
        xla: whether contenders of TensorFlow try their step with XLA, too.
    """

    task: str
    time_steps: int
    channels: int
    batch_size: int
    threads: int
    xla: bool = True

    @property
    def repeats(self) -> int:
        """How many steps a reading has."""
        return STREAMED_STEPS if self.task == "stream" else 1

    @property
    def parameters(self) -> int:
        """The number of the trellis network's parameters, whatever its depth."""
        return self.sizes.parameters

    @property
    def wants_last(self) -> bool:
        """Whether a step is for the last output alone."""
        return self.task in ("answer", "masked")

    @property
    def sizes(self) -> Sizes:
        """Those of the trellis network and its training step."""
        rates = dilations(self.time_steps, TAPS - 1)
        return Sizes(
            self.batch_size,
            self.time_steps,
            input_units=self.channels,
            units=self.channels,
            depth=len(rates),
            dilation_rate=tuple(rates),
            threads=self.threads,
            discard=self.time_steps - 1 if self.wants_last else 0,
            kernel_size=TAPS,
            masked=self.task == "masked",
        )

    def sequences(self) -> np.ndarray:
        """Returns an input, float32 `[B, T, channels]`."""
        return self.sizes.input()


def dilations(time_steps: int, reach: int) -> list[int]:
    """Returns the fewest dilations 1, 4, 16, ... with which a network sees so many time steps.

    Args:
        time_steps: T.
        reach: how many dilations back a level reads.
    """
    rates = [1]
    while 1 + reach * sum(rates) < time_steps:
        rates.append(TAPS * rates[-1])
    return rates


# Layers of so many units


def _trellis(case: Case, units: int, **arguments: Any) -> Any:
    import keras_trellis

    rates = case.sizes.dilation_rate
    return keras_trellis.TrellisLayer(
        units, len(rates), kernel_size=TAPS, dilation_rate=rates, **arguments
    )


def _keras(name: str, case: Case, units: int, **arguments: Any) -> Any:
    import keras

    return getattr(keras.layers, name)(units, **arguments)


def _stacked(case: Case, units: int, **arguments: Any) -> Any:
    from keras_trellis.recurrent import StackedLSTM

    return StackedLSTM(units, **arguments)


def _sru(case: Case, units: int, **arguments: Any) -> Any:
    """Returns the SRU behind a matrix: its inputs have as many channels as its outputs."""
    import keras

    from keras_trellis.recurrent import SRU

    matrix = keras.layers.Dense(units, use_bias=False)
    inputs = keras.Input([None, case.channels])
    return keras.Sequential([inputs, matrix, SRU(units, **arguments)])


def _tcn(case: Case, units: int, **arguments: Any) -> Any:
    """Returns the trainers' TCN, which computes for its last output what that depends on."""
    from trainers.baselines.causal import CausalLayer
    from trainers.baselines.tcn import TemporalBlock

    rates = dilations(case.time_steps, 2 * (TAPS - 1))
    if case.task == "stream":
        return _tcn_of_keras(rates, case.channels, units)
    return CausalLayer(
        [TemporalBlock(units, TAPS, rate) for rate in rates], **arguments
    )


def _tcn_of_keras(rates: Sequence[int], channels: int, units: int) -> Any:
    """Returns the same network of Keras's layers, whose windows a stream can update in place."""
    import keras

    outputs = inputs = keras.Input([None, channels])
    for rate in rates:
        hidden = below = outputs
        for _ in range(2):
            convolution = keras.layers.Conv1D(
                units, TAPS, padding="causal", dilation_rate=rate, activation="relu"
            )
            hidden = convolution(hidden)
        if below.shape[-1] != units:
            below = keras.layers.Conv1D(units, 1)(below)
        outputs = keras.layers.ReLU()(keras.layers.Add()([hidden, below]))
    return keras.Model(inputs, outputs)


def equal_units(make: Callable[..., Any], case: Case) -> int:
    """Returns the units with which a layer has about as many parameters as the trellis network."""
    # All are of the second degree in the units.
    smallest = [_parameters(make(case, units), case) for units in (1, 2, 3)]
    polynomial = np.polynomial.Polynomial.fit([1, 2, 3], smallest, 2)
    most = case.parameters // case.channels  # each unit reads all channels
    return nearest_units(lambda units: round(polynomial(units)), case.parameters, most)


def _parameters(layer: Any, case: Case) -> int:
    if not layer.built:
        layer.build((case.batch_size, None, case.channels))
    return layer.count_params()


# Their steps


def of_tensorflow(make: Callable[..., Any], case: Case) -> Contender:
    """A layer on TensorFlow."""
    import keras

    _limit_memory()
    units = equal_units(make, case)
    layer = make(case, units, return_sequences=not case.wants_last)
    facts = {"units": units, "parameters": _parameters(layer, case)}  # builds it
    new_step = streamed if case.task == "stream" else _training
    forms = ("", "XLA") if case.xla else ("",)
    runs = {form: new_step(layer, case, form == "XLA") for form in forms}
    if case.task == "stream" and not isinstance(layer, keras.layers.RNN):
        runs["in place"] = in_place(layer, case)
    seconds = {form: _processor_seconds(run) for form, run in runs.items()}
    form = min(seconds, key=seconds.__getitem__)
    return Contender(runs[form], {**facts, "form": form})


def _limit_memory() -> None:
    """Limits the process's memory, so that the system does not end another one for lack of it."""
    import tensorflow as tf  # noqa: F401  (reserves addresses, which do not count)

    held = resources.fields(Path("/proc/self/status"), unit=1024).get("VmSize")
    if held is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, hard))


def _processor_seconds(run: Callable[[], Any]) -> float:
    run()  # compiles
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _training(layer: Any, case: Case, compiled: bool) -> Callable[[], Any]:
    import tensorflow as tf

    variables = [variable.value for variable in layer.trainable_variables]
    masked = contenders.mask_argument(case.sizes)

    def mean_square(sequences: Any) -> Any:
        return tf.reduce_mean(tf.square(layer(sequences, training=True, **masked)))

    step = contenders.descent(mean_square, variables, compiled=compiled)
    return contenders.traced(step, [tf.constant(case.sequences())])


def streamed(layer: Any, case: Case, compiled: bool) -> Callable[[], np.ndarray]:
    """Returns what runs time steps, all on the first of the input; it returns the last output."""
    import keras
    import tensorflow as tf

    import keras_trellis

    if isinstance(layer, keras.Model):
        layer = keras_trellis.StreamedModel(layer)
    of_keras = not hasattr(layer, "stream")

    def step(chunk: Any, cache: Any) -> Any:
        if of_keras:
            return layer.cell(chunk[:, 0], cache)
        return layer.stream(chunk, cache)

    function = tf.function(step, jit_compile=compiled, autograph=False)
    chunk = tf.constant(case.sequences()[:, :1])
    begin = layer.get_initial_state if of_keras else layer.get_initial_cache
    cache = begin(case.batch_size)

    def run() -> np.ndarray:
        nonlocal cache
        for _ in range(case.repeats):
            output, cache = function(chunk, cache)
        return output.numpy()

    return run


def in_place(layer: Any, case: Case) -> Callable[[], np.ndarray]:
    """Returns what does the same, and keeps the past itself."""
    import keras
    import tensorflow as tf

    import keras_trellis

    if not isinstance(layer, keras.Model):
        inputs = keras.Input([None, case.channels])
        layer = keras.Model(inputs, layer(inputs))
    running = keras_trellis.StreamedModel(layer).start(case.batch_size)
    chunk = tf.constant(case.sequences()[:, :1])

    def run() -> np.ndarray:
        for _ in range(case.repeats):
            output = running.advance(chunk)
        return output.numpy()

    return run


def of_jax(case: Case) -> Contender:
    """Our layer, with Keras on JAX."""
    if case.task == "stream":
        raise LeftOutError("streams are of TensorFlow's graphs")
    step, facts, *_ = contenders.trellis(case.sizes, backend="jax")
    return Contender(step, {**facts, "units": case.channels, "form": ""})


def of_torch(case: Case) -> Contender:
    """PyTorch's LSTM."""
    import torch

    if case.task == "masked":
        raise LeftOutError("it takes lengths, not masks")
    torch.set_num_threads(case.threads)
    units = nearest_units(
        lambda units: 4 * units * (case.channels + units + 2), case.parameters
    )
    layer = torch.nn.LSTM(case.channels, units, batch_first=True)
    parameters = list(layer.parameters())
    count = sum(map(torch.numel, parameters))
    facts = {"units": units, "parameters": count, "form": ""}
    if case.task == "stream":
        return Contender(_streamed_by_torch(layer, case), facts)
    sequences = torch.tensor(case.sequences(), requires_grad=True)

    def mean_square(training: bool) -> Any:
        outputs, _ = layer(sequences)
        if case.wants_last:
            outputs = outputs[:, -1]
        return outputs.square().mean()

    step = contenders.step_of_torch(mean_square, parameters, sequences, "train")
    return Contender(step, facts)


def _streamed_by_torch(layer: Any, case: Case) -> Callable[[], None]:
    import torch

    chunk = torch.tensor(case.sequences()[:, :1])
    state = None

    def run() -> None:
        nonlocal state
        with torch.no_grad():
            for _ in range(case.repeats):
                _, state = layer(chunk, state)

    return run


OURS = "lstm"  # what times are compared with
LAYERS: dict[str, tuple[str, Callable[..., Any]]] = {
    OURS: ("keras.layers.LSTM", functools.partial(_keras, "LSTM")),
    "gru": ("keras.layers.GRU", functools.partial(_keras, "GRU")),
    "trellis": ("TrellisLayer", _trellis),
    "tcn": ("TCN", _tcn),
    "sru": ("SRU", _sru),
    "stacked": ("StackedLSTM", _stacked),
}
CONTENDERS: Contenders = {
    name: (title, functools.partial(of_tensorflow, make))
    for name, (title, make) in LAYERS.items()
} | {
    "torch": ("torch.nn.LSTM", of_torch),
    "trellis_jax": ("TrellisLayer on JAX", of_jax),
}
