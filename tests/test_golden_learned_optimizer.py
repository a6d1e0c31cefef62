"""The golden vectors of learning to learn: trajectories, losses and the meta-gradient."""

import keras
import tensorflow as tf

from keras_trellis.recurrent import IHCLSTMCell
from tests import golden
from tests.test_golden_recurrent import highway, plain
from trainers.learned_optimizers import core

FILES = sorted((golden.FOLDER / "recurrent").glob("learning_to_learn_*.npz"))
CELLS = {"lstm": keras.layers.LSTMCell, "ihc_lstm": IHCLSTMCell}


def assigned(network, params, config):
    """Gives the network the file's weights; returns variables, and what each was made of."""
    pairs = []
    for place, cell in enumerate(network.cells):
        own = golden.part(params, f"layer{place}.")
        lstm = config["cell"] == "lstm"
        pairs.append((cell, plain(own, "?_I ?_F ?_A ?_O") if lstm else highway(own)))
    output = {
        "kernel": tf.transpose(params["output.W"]),
        "bias": params["output.b"],
    }
    pairs.append((network.output_layer, output))
    return golden.assigned(network, pairs)


@golden.on_files(FILES)
def test_golden(path):
    arrays, config = golden.load(path)
    params = golden.parameters(arrays)
    kind, units = CELLS[config["cell"]], config["units"]
    cells = [kind(units, dtype=golden.DTYPE) for _ in range(config["layers"])]
    scale, p = config["scale"], config["preprocess_p"]
    network = core.UpdateNetwork(cells, scale=scale, p=p, dtype=golden.DTYPE)
    with tf.GradientTape() as mapping:
        mapping.watch(params)
        variables, made = assigned(network, params, config)
    weights, targets, theta = (
        tf.constant(arrays[name], golden.DTYPE)
        for name in ("quadratic_W", "quadratic_y", "theta0")
    )

    def loss(theta, _):
        errors = tf.linalg.matvec(weights, theta) - targets
        return tf.reduce_mean(tf.reduce_sum(tf.square(errors), -1))

    states, thetas, losses = network.initial_states(theta.shape.num_elements()), [], []
    with tf.GradientTape() as tape:
        for _ in range(config["steps"]):
            (value,), theta, states = core.unroll(network, loss, theta, states, 1)
            thetas.append(theta)
            losses.append(value)
        meta_loss = tf.add_n(losses)
    gradients = tape.gradient(meta_loss, [v.value for v in variables])
    golden.assert_equal(tf.stack(losses), arrays["losses"], "losses")
    golden.assert_equal(tf.stack(thetas), arrays["thetas"], "thetas")
    golden.assert_equal(meta_loss, arrays["meta_loss"], "meta_loss")
    by_params = mapping.gradient(made, params, output_gradients=gradients)
    for name, gradient in by_params.items():
        golden.assert_equal(gradient, arrays[f"grad.{name}"], name)
    found = core.preprocess(tf.constant(arrays["preprocess_inputs"], golden.DTYPE), p)
    golden.assert_equal(found, arrays["preprocess_outputs"], "preprocess")
