"""DRAW's golden vectors: the bound, the canvas, and the gradient of every parameter."""

import keras
import tensorflow as tf

from keras_trellis.recurrent import IHCLSTMCell
from tests import golden
from tests.test_golden_recurrent import highway, plain
from trainers.drawing.model import DRAW

FILES = sorted((golden.FOLDER / "recurrent").glob("draw_*.npz"))
GATES = "?_I ?_F ?_A ?_O"


def model_of(config):
    units = config["decoder_units"]
    kinds = {"lstm": keras.layers.LSTMCell, "ihc_lstm": IHCLSTMCell}
    return DRAW(
        [config[name] for name in ("height", "width", "channels")],
        config["steps"],
        config["encoder_units"],
        config["latent"],
        attention=(config["read_size"], config["write_size"]),
        decoder_cell=kinds[config["decoder"]](units, dtype=golden.DTYPE),
        dtype=golden.DTYPE,
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
def test_golden(path):
    arrays, config = golden.load(path)
    params = golden.parameters(arrays)
    model = model_of(config)
    with tf.GradientTape() as mapping:
        mapping.watch(params)
        variables, made = assigned(model, params, config)
    images, noise = (
        tf.constant(arrays[name], golden.DTYPE) for name in ("inputs", "noise")
    )

    with tf.GradientTape() as tape:
        tape.watch(images)
        found = model.bound(images, noise)
        loss = tf.reduce_mean(found.reconstruction + found.kl)
    by_images, by_variables = tape.gradient(
        loss, [images, [v.value for v in variables]]
    )
    golden.assert_equal(loss, arrays["loss"], "loss")
    golden.assert_equal(found.canvas, arrays["canvas"], "canvas")
    golden.assert_equal(found.reconstruction, arrays["nll"], "nll")
    golden.assert_equal(found.kl, arrays["kl"], "kl")
    golden.assert_equal(by_images, arrays["grad_inputs"], "grad_inputs")
    by_params = mapping.gradient(made, params, output_gradients=by_variables)
    for name, gradient in by_params.items():
        golden.assert_equal(gradient, arrays[f"grad.{name}"], name)
