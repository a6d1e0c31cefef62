"""The contenders of a training step; each function is called in a process of its own.

Every contender takes the same step: the mean square of the kept outputs as loss, its gradients with
respect to the weights and the input (as if an embedding were below), and plain gradient descent,
without dropout and weight normalisation. In the mode `forward` a step ends at the loss.

A function is traced before its first step. The modes `first` and `another_length` are of what
`fit` does first: a step is that of a newly compiled Keras model of the layer alone, tracing
included, with the same loss and gradient descent, but for the gradient of the input.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import authors as released
from benchmarks import workers
from benchmarks.report import Contenders
from benchmarks.sizes import STEPS, Sizes, nearest_units
from benchmarks.workers import Contender, LeftOutError

RATE = 1e-3  # of the gradient descent


# This package's layer


def trellis(
    sizes: Sizes, *, recompute: bool = False, backend: str = "tensorflow"
) -> Contender:
    """This package's layer on a backend of Keras.

    Args:
        sizes: the sizes.
        recompute: whether the backward pass computes again what it needs.
        backend: "tensorflow", "jax" or "torch", which Keras reads as it is imported.
    """
    if backend != "tensorflow" and sizes.mode not in STEPS:
        raise LeftOutError("this mode is of TensorFlow's graphs")
    os.environ["KERAS_BACKEND"] = backend
    import keras_trellis

    _set_policy(sizes)
    layer = keras_trellis.TrellisLayer(
        sizes.units,
        sizes.depth,
        kernel_size=sizes.kernel_size,
        dilation_rate=sizes.dilation_rate,
        return_sequences=True,
        recompute=recompute,
    )

    arguments = mask_argument(sizes) | {"discard": sizes.discard}

    def run_layer(sequences, training):
        return layer(sequences, training=training, **arguments)

    return _keras(layer, run_layer, sizes, sizes.receptive_field)


def mask_argument(sizes: Sizes) -> dict[str, Any]:
    """Returns what a layer is called with for the mask of the sizes; nothing without one."""
    import keras

    mask = sizes.mask()
    return {} if mask is None else {"mask": keras.ops.convert_to_tensor(mask)}


def unmasked(sizes: Sizes) -> Contender:
    """This package's layer on TensorFlow, without the mask of the sizes."""
    return trellis(dataclasses.replace(sizes, masked=False))


def of_checkout(folder: str, build: workers.Build, sizes: Sizes) -> Contender:
    """A contender made by the package of another checkout."""
    sys.path.insert(0, folder)
    return build(sizes)


# Keras's layers


def recurrent(name: str, sizes: Sizes) -> Contender:
    """Keras's LSTM or GRU, or a gated layer: about the work of one level, step by step."""
    import keras

    from keras_trellis import recurrent as gated

    _set_policy(sizes)
    module = keras.layers if hasattr(keras.layers, name) else gated
    layer = getattr(module, name)(sizes.units, return_sequences=True)
    return _keras(layer, _sliced(layer, sizes), sizes, None)


def tensorized(size: int, sizes: Sizes, **arguments: Any) -> Contender:
    """A tensorized LSTM of so many places along each axis."""
    from keras_trellis import TensorizedLSTM

    _set_policy(sizes)
    layer = TensorizedLSTM(sizes.units, size, return_sequences=True, **arguments)
    return _keras(layer, _sliced(layer, sizes), sizes, None)


def stacked(layers: int, sizes: Sizes) -> Contender:
    """So many of Keras's LSTMs, as wide as a place of a tensorized LSTM."""
    import keras

    _set_policy(sizes)
    made = [
        keras.layers.LSTM(sizes.units, return_sequences=True) for _ in range(layers)
    ]
    stack = keras.Sequential(made)
    return _keras(stack, _sliced(stack, sizes), sizes, None)


def as_large(sizes: Sizes) -> Contender:
    """Keras's LSTM with about as many parameters as a tensorized LSTM, whatever its size."""
    blocks = 4 * sizes.units + 3
    wanted = (sizes.input_units + 1) * sizes.units + (3 * sizes.units + 1) * blocks
    return stacked(1, lstm_sizes(sizes, wanted))


def lstm_sizes(sizes: Sizes, wanted: int) -> Sizes:
    """Returns sizes whose units give one LSTM layer about so many parameters."""
    units = nearest_units(lambda n: 4 * n * (sizes.input_units + n + 1), wanted)
    return dataclasses.replace(sizes, units=units)


def equal_lstm(sizes: Sizes) -> Contender:
    """Keras's LSTM with about as many parameters as the trellis network."""
    return recurrent("LSTM", lstm_sizes(sizes, sizes.parameters))


def tcn(sizes: Sizes) -> Contender:
    """keras-tcn with the same width and taps, and dilations that reach as far back."""
    from tcn import TCN

    _set_policy(sizes)
    dilations = tcn_dilations(sizes.receptive_field)
    layer = TCN(sizes.units, 2, dilations=dilations, return_sequences=True)
    return _keras(layer, _sliced(layer, sizes), sizes, layer.receptive_field)


def tcn_dilations(steps: int) -> list[int]:
    """Returns the fewest dilations 1, 2, 4, ... with which a TCN of two taps spans so many steps.

    It has two convolutions for each dilation.
    """
    dilations = [1]
    while 1 + 2 * sum(dilations) < steps:
        dilations.append(2 * dilations[-1])
    return dilations


def _sliced(layer, sizes):
    """Returns a function of the layer's outputs that the loss takes."""
    arguments = mask_argument(sizes)
    return lambda sequences, training: layer(sequences, training=training, **arguments)[
        :, sizes.discard :
    ]


def _keras(layer, run_layer, sizes, receptive_field):
    layer.build((sizes.batch_size, None, sizes.input_units))
    facts = {"receptive_field": receptive_field, "parameters": layer.count_params()}
    contender = _keras_step(layer, run_layer, sizes)
    return contender._replace(facts=facts)


def _set_policy(sizes):
    import keras

    keras.config.set_dtype_policy(
        "mixed_bfloat16" if sizes.dtype == "bfloat16" else sizes.dtype
    )


def _keras_step(layer, run_layer, sizes):
    """Returns the contender of a mode, without its facts."""
    import keras

    if keras.backend.backend() == "jax":
        return Contender(_jax_step(layer, run_layer, sizes), {})
    if keras.backend.backend() == "torch":
        return Contender(_layer_of_torch(layer, run_layer, sizes), {})
    import tensorflow as tf

    sequences = tf.constant(sizes.input())
    variables = [variable.value for variable in layer.trainable_variables]

    def mean_square(sequences, training):
        outputs = tf.cast(run_layer(sequences, training), tf.float32)
        return tf.reduce_mean(tf.square(outputs))

    if sizes.mode in ("first", "another_length"):
        return _first_step(layer, run_layer, sizes)
    if sizes.mode == "forward":
        forward = tf.function(functools.partial(mean_square, training=False))
        forward.get_concrete_function(sequences)  # as `traced` does
        return Contender(lambda: forward(sequences).numpy(), {})

    step = descent(
        functools.partial(mean_square, training=True),
        variables,
        compiled=sizes.mode == "xla",
    )
    length = None if sizes.mode == "unknown_length" else sizes.time_steps
    spec = tf.TensorSpec((sizes.batch_size, length, sizes.input_units))
    return Contender(traced(step, [sequences], [spec]), {})


def _jax_step(layer, run_layer, sizes):
    import jax
    import keras
    from keras import ops

    variables = layer.trainable_variables

    def mean_square(values, sequences, training):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            outputs = run_layer(sequences, training)
        return ops.mean(ops.square(ops.cast(outputs, "float32")))

    differentiate = jax.value_and_grad(mean_square, argnums=(0, 1))

    @jax.jit
    def descend(values, sequences):
        loss, (gradients, below) = differentiate(values, sequences, True)
        pairs = zip(values, gradients, strict=True)
        return loss, [value - RATE * gradient for value, gradient in pairs], below

    forward = jax.jit(functools.partial(mean_square, training=False))
    sequences = ops.convert_to_tensor(sizes.input())
    values = [variable.value for variable in variables]

    def train():
        nonlocal values
        loss, values, _ = jax.block_until_ready(descend(values, sequences))
        return float(loss)

    run = train if sizes.mode == "train" else lambda: float(forward(values, sequences))
    run()  # compiles, as `traced` does
    return run


def _layer_of_torch(layer, run_layer, sizes):
    import torch

    torch.set_num_threads(sizes.threads)
    sequences = torch.tensor(sizes.input(), requires_grad=True)
    parameters = [variable.value for variable in layer.trainable_variables]

    def mean_square(training):
        return run_layer(sequences, training).float().square().mean()

    return step_of_torch(mean_square, parameters, sequences, sizes.mode)


def _first_step(layer, run_layer, sizes):
    """Returns a contender whose every step is a new model's first, at whatever length."""
    import keras
    import numpy as np

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layer  # its weights are the model's

        def call(self, sequences, training=False):
            return run_layer(sequences, training)

    def first_at(steps):
        there = dataclasses.replace(sizes, time_steps=steps)
        targets = (sizes.batch_size, steps - sizes.discard, sizes.units)
        return there.input(), np.zeros(targets, np.float32)

    first = first_at(sizes.time_steps)
    another = first_at(3 * sizes.time_steps // 2)
    model = None

    def prepare():
        nonlocal model
        model = Model()
        model.compile(keras.optimizers.SGD(RATE), "mse")
        if sizes.mode == "another_length":
            model.train_on_batch(*first)

    batch = another if sizes.mode == "another_length" else first
    return Contender(lambda: model.train_on_batch(*batch), {}, prepare=prepare)


def traced(function: Any, inputs: list, specs: list | None = None) -> Callable[[], Any]:
    """Returns a step of a function from `descent` on inputs; it returns their loss.

    Args:
        function: is traced now, since tracing belongs to the process at rest.
        inputs: of every step.
        specs: what the graph knows of the inputs; all by default.
    """
    graph = function.get_concrete_function(*(specs or inputs))
    return lambda: graph(*inputs)[0].numpy()


def descent(compute_loss: Callable, variables: list, *, compiled: bool = False) -> Any:
    """Returns a function that takes a step of gradient descent: it returns the loss of its inputs.

    It computes the gradient of the first input, too, as if an embedding were below.

    Args:
        compute_loss: from the inputs.
        variables: what the step changes.
        compiled: whether XLA compiles the step as one program.
    """
    import tensorflow as tf

    def step(first, *others):
        with tf.GradientTape() as tape:
            tape.watch(first)
            loss = compute_loss(first, *others)
        below, *gradients = tape.gradient(loss, [first, *variables])
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss, below  # TensorFlow would prune a gradient that is not returned

    return tf.function(step, jit_compile=compiled or None)


# The authors' code


def authors(sizes: Sizes) -> Contender:
    """The authors' code as released; bfloat16 by autocast."""
    if sizes.mode not in ("train", "forward"):
        raise LeftOutError("it traces nothing: no step differs from another")
    network = released.load(sizes.reference_dir, "trellisnet")
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
    parameters = list(net.parameters())
    facts = {
        "receptive_field": sizes.receptive_field,
        "parameters": sum(parameter.numel() for parameter in parameters),
    }
    return Contender(_torch_step(net, parameters, sizes), facts)


def _torch_step(net, parameters, sizes):
    import torch

    channels_first = sizes.input().transpose(0, 2, 1)
    sequences = torch.tensor(channels_first, requires_grad=True)
    state = torch.zeros(sizes.batch_size, sizes.units, 1)
    lower = sizes.dtype == "bfloat16"

    def mean_square(training):
        with torch.autocast("cpu", torch.bfloat16, enabled=lower):
            outputs, _, _ = net(sequences, (state, state), aux=False)
        scored = outputs[:, sizes.discard :]
        return scored.float().square().mean()

    return step_of_torch(mean_square, parameters, sequences, sizes.mode)


def step_of_torch(
    mean_square: Callable, parameters: list, sequences: Any, mode: str
) -> Callable[[], float]:
    """Returns a step of torch, which returns the loss.

    Args:
        mean_square: returns the loss; its argument is `training`.
        parameters: what is trained.
        sequences: the input, which has a gradient too.
        mode: "train" or "forward".
    """
    import torch

    optimizer = torch.optim.SGD(parameters, lr=RATE)

    def train():
        optimizer.zero_grad()
        sequences.grad = None
        loss = mean_square(training=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    def forward():
        with torch.no_grad():
            return mean_square(training=False).item()

    return train if mode == "train" else forward


OURS = "trellis"
BACKENDS: Contenders = {
    backend: (
        f"keras_trellis.TrellisLayer, Keras on {backend}",
        functools.partial(trellis, backend=backend),
    )
    for backend in ("jax", "torch")
}
CONTENDERS: Contenders = {
    OURS: ("keras_trellis.TrellisLayer", trellis),
    "trellis_recompute": (
        "TrellisLayer(recompute=True)",
        functools.partial(trellis, recompute=True),
    ),
    "lstm": ("keras.layers.LSTM", functools.partial(recurrent, "LSTM")),
    "equal_lstm": ("keras.layers.LSTM, equal parameters", equal_lstm),
    "gru": ("keras.layers.GRU", functools.partial(recurrent, "GRU")),
    "tcn": ("keras-tcn", tcn),
    "authors": ("the authors' code", authors),
}
