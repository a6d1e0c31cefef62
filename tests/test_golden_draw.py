"""DRAW's golden vectors: the bound, the canvas, and the gradient of every parameter."""

import keras
import tensorflow as tf

from keras_trellis.recurrent import IHCLSTMCell
from tests import golden
from tests.test_golden_recurrent import highway, plain
from trainers.drawing.model import DRAW

FILES = sorted((golden.FOLDER / "recurrent").glob("draw_*.npz"))
GATES = "?_I ?_F ?_A ?_O"


def model_of(config, dtype):
    units = config["decoder_units"]
    kinds = {"lstm": keras.layers.LSTMCell, "ihc_lstm": IHCLSTMCell}
    return DRAW(
        [config[name] for name in ("height", "width", "channels")],
        config["steps"],
        config["encoder_units"],
        config["latent"],
        attention=(config["read_size"], config["write_size"]),
        decoder_cell=kinds[config["decoder"]](units, dtype=dtype),
        dtype=dtype,
    )


def dense_layers(model):
    """By the file's names."""
    return {
        "read": model.reader.window.parameters,
        "write": model.writer.window.parameters,
        "patch": model.writer.patch,
        "mu": model.mean,
        "log_sigma": model.log_deviation,
    }


def assigned(model, params, config):
    """Gives the model the file's weights; returns variables, and what each was made of."""
    lstm = config["decoder"] == "lstm"
    of_decoder = golden.part(params, "decoder.")
    decoder = plain(of_decoder, GATES) if lstm else highway(of_decoder)
    encoder = plain(golden.part(params, "encoder."), GATES)
    pairs = [(model.encoder, encoder), (model.decoder_cell, decoder)]
    for name, layer in dense_layers(model).items():
        own = golden.part(params, f"{name}.")
        pairs.append((layer, {"kernel": tf.transpose(own["W"]), "bias": own["b"]}))
    return golden.assigned(model, pairs)


@golden.on_files(FILES)
def test_golden(path, dtype):
    arrays, config = golden.load(path)
    tolerance = golden.TOLERANCE[dtype]
    params = golden.parameters(arrays, dtype)
    model = model_of(config, dtype)
    with tf.GradientTape() as mapping:
        mapping.watch(params)
        variables, made = assigned(model, params, config)
    images, noise = (tf.constant(arrays[name], dtype) for name in ("inputs", "noise"))

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(images)
            found = model.bound(images, noise)
            loss = tf.reduce_mean(found.reconstruction + found.kl)
        return found, loss, tape.gradient(loss, [images, [v.value for v in variables]])

    found, loss, (by_images, by_variables) = run()
    golden.assert_equal(loss, arrays["loss"], tolerance, "loss")
    golden.assert_equal(found.canvas, arrays["canvas"], tolerance, "canvas")
    golden.assert_equal(found.reconstruction, arrays["nll"], tolerance, "nll")
    golden.assert_equal(found.kl, arrays["kl"], tolerance, "kl")
    golden.assert_equal(by_images, arrays["grad_inputs"], tolerance, "grad_inputs")
    by_params = mapping.gradient(made, params, output_gradients=by_variables)
    for name, gradient in by_params.items():
        golden.assert_equal(gradient, arrays[f"grad.{name}"], tolerance, name)
