"""The tensorized LSTM's golden vectors: float64 outputs, states and gradients.

One test a file of the folder `tensorized` beside the files of `tests.test_golden`.
"""

import tensorflow as tf

import keras_trellis
from tests import golden

FILES = sorted((golden.FOLDER / "tensorized").glob("*.npz"))
NAMES = {
    "W_x": "kernel",
    "b_x": "input_bias",
    "W_h": "recurrent_kernel",
    "b_h": "bias",
    "Gamma": "gamma",
    "Beta": "beta",
}
STATES = ("hidden", "cell")


def layer_for(arrays, config, **flags):
    layer = keras_trellis.TensorizedLSTM(
        config["channels"],
        config["tensor_size"],
        rank=config["dims"] + 1,
        kernel_size=config["kernel_size"],
        memory_convolution=config["memory_convolution"],
        channel_normalization=config["channel_normalization"],
        return_sequences=True,
        return_state=True,
        dtype=golden.DTYPE,
        **flags,
    )
    assert layer.depth == config["depth"]
    layer.build((None, None, config["input_size"]))
    for name, values in golden.part(arrays, "param.").items():
        getattr(layer.cell, NAMES[name]).assign(values)
    return layer


@golden.on_files(FILES)
def test_golden(path):
    arrays, config = golden.load(path)
    delayed = layer_for(arrays, config, delayed=True)
    x = tf.constant(arrays["inputs"], golden.DTYPE)
    shape = [x.shape[0], -1]
    first = [tf.constant(arrays[f"initial_{name}"].reshape(shape)) for name in STATES]

    def run(training):
        with tf.GradientTape() as tape:
            tape.watch([x, first])
            # The states of the file are those after the further steps.
            longer = tf.pad(x, [[0, 0], [0, delayed.delay], [0, 0]])
            outputs, *after = delayed(longer, initial_state=first, training=training)
            results = {"outputs": outputs[:, delayed.delay :]}
            for name, value in zip(STATES, after, strict=True):
                results[name] = tf.reshape(value, arrays[f"final_{name}"].shape)
            loss = 0.0
            for name, value in results.items():
                loss += tf.reduce_sum(value * arrays[f"cotangent_{name}"])
        values = [each.value for each in delayed.trainable_variables]
        return results, loss, tape.gradient(loss, [x, first, values])

    for call, training in [(run, False), (tf.function(run, jit_compile=True), True)]:
        results, loss, (by_x, by_first, by_variables) = call(training)
        golden.assert_run_equal(arrays, results, loss, by_x)
        for name, gradient in zip(STATES, by_first, strict=True):
            name = f"grad_initial_{name}"
            golden.assert_equal(gradient, arrays[name].reshape(shape), name)
        gradients = {
            variable.name: gradient
            for variable, gradient in zip(
                delayed.trainable_variables, by_variables, strict=True
            )
        }
        for name, expected in golden.part(arrays, "grad.").items():
            golden.assert_equal(gradients[NAMES[name]], expected, name)
        assert len(gradients) == len(golden.part(arrays, "grad."))
    outputs, *_ = layer_for(arrays, config)(x, initial_state=first)
    golden.assert_equal(outputs, arrays["outputs"], "beside the inputs")
