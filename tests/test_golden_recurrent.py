"""The gated cells' golden vectors: float64 outputs, states and gradients of each cell.

One test a file of the folder `recurrent` beside the files of `tests.test_golden`: the
paper's equations ("paper"), the authors' own modules ("released"), and their training run.
"""

import json

import ml_collections
import numpy as np
import pytest
import tensorflow as tf

import keras_trellis
from keras_trellis import recurrent
from tests import golden
from trainers.data.names import flatten, nested
from trainers.language import modeling
from trainers.models.layers import LAYERS as KINDS
from trainers.tasks import config as configs
from trainers.training import runs

FILES: dict = {"cell": [], "training": []}
for path in sorted((golden.FOLDER / "recurrent").glob("*.npz")):
    with np.load(path) as file:  # not the arrays: there are many files
        config = json.loads(str(file["config"]))
    if config["kind"] in FILES:
        FILES[config["kind"]].append(path)

if not FILES["cell"]:
    pytest.skip(
        f"no golden vectors in {golden.FOLDER}/recurrent", allow_module_level=True
    )


def joined(p, *names):
    """Matrices [n, p] side by side as a kernel [p, blocks * n]; "-" is another sign."""
    signs = [-1 if name.startswith("-") else 1 for name in names]
    parts = [p[name.removeprefix("-")] for name in names]
    return tf.concat(
        [s * tf.transpose(e) for s, e in zip(signs, parts, strict=True)], -1
    )


def blocks(matrix, order):
    """The gate blocks of the rows in another order, as columns."""
    parts = tf.split(matrix, len(order), axis=0)
    return tf.concat([tf.transpose(parts[i]) for i in order], -1)


def residual(p, *names):
    kept = {"alpha_logit": p["alpha_logit"]}
    read = p["omega_V_raw"] if "omega_V_raw" in p else tf.transpose(p["U_V"])
    return {"kernel": joined(p, *names), "recurrent_kernel": read, **kept}


def highway(p):
    return {
        "kernel": joined(p, "W_F", "W_I", "W_O", "W_A"),
        "recurrent_kernel": tf.transpose(p["U_V"]),
        "highway_recurrent_kernel": tf.transpose(p["Gamma"]),
        "highway_kernel": tf.transpose(p["W_G"]),
        "highway_bias": p["b_G"],
    }


def plain(p, order):
    names = order.split()
    found = {"kernel": joined(p, *(name.replace("?", "W") for name in names))}
    found["recurrent_kernel"] = joined(p, *(name.replace("?", "U") for name in names))
    signs = [-1 if name.startswith("-") else 1 for name in names]
    biases = [p[name.removeprefix("-").replace("?", "b")] for name in names]
    pairs = zip(signs, biases, strict=True)
    return found | {"bias": tf.concat([sign * bias for sign, bias in pairs], 0)}


PAPER = {
    "gru": lambda p: plain(p, "-?_I ?_R ?_A"),
    "lstm": lambda p: plain(p, "?_I ?_F ?_A ?_O"),
    "irc_gru": lambda p: residual(p, "-W_I", "W_R", "W_A"),  # z = 1 - i
    "irc_lstm": lambda p: residual(p, "W_F", "W_I", "W_O", "W_A"),
    "ihc_lstm": highway,
    "ihc_lstm_projected": highway,
    "sru": lambda p: {
        "kernel": joined(p, "W_F", "W_P", "W_A"),
        "recurrent_kernel": tf.concat([p["omega_F"], p["omega_P"]], 0),
        "bias": tf.concat([p["b_F"], p["b_P"]], 0),
    },
    "irc_sru": lambda p: residual(p, "W_F", "W_P", "W_A"),
    "t_lstm": lambda p: plain(p, "?_F ?_O ?_A"),
    "irc_t_lstm": lambda p: residual(p, "W_F", "W_O", "W_A"),
    "fastgrnn": lambda p: (
        plain(p, "?_F ?_A") | {name: p[name] for name in ("beta_logit", "kappa_logit")}
    ),
    "irc_fastgrnn": lambda p: (
        residual(p, "W_F", "W_A") | {"beta_logit": p["beta_logit"]}
    ),
}


def released_gru(p):
    biases = tf.stack([p["ih_IR.bias"], p["hh_IR.bias"]])
    units = p["PFB"].shape[0]
    return {
        "kernel": tf.transpose(p["ih_IR.weight"]),
        "recurrent_kernel": tf.transpose(p["hh_IR.weight"]),
        "bias": biases + tf.pad(p["PFB"][None], [[0, 1], [0, 2 * units]]),
    }


def released_lstm(p):
    order = (2, 0, 1, 3)  # f a i o -> i f a o
    return {
        "kernel": blocks(p["ih.weight"], order),
        "recurrent_kernel": blocks(p["hh_w_raw"], order),
        "bias": blocks(p["ih.bias"] + p["hh_b"], order),
    }


def released_ihc(p):
    gamma, memory = tf.split(p["WV_raw"], 2, axis=-1)
    return {
        "kernel": joined(p, "ih.weight", "WA.weight"),
        "recurrent_kernel": memory,
        "highway_recurrent_kernel": gamma,
        "bias": p["PFB"],
    }


def released_sru(p):
    keep, through, candidate = tf.split(p["ih.bias"], 3)
    keep += p["bf"] + p["PFB"]
    through += p["br"] + p["HWb"]
    return {
        "kernel": tf.transpose(p["ih.weight"]),
        "recurrent_kernel": tf.concat([p["uf_raw"], p["ur_raw"]], 0),
        "bias": tf.concat([keep, through, candidate], 0),
    }


def released_elementwise(p, *biases):
    return {
        "kernel": joined(p, "ih.weight", "WA.weight"),
        "recurrent_kernel": p["uV_raw"],
        "alpha_logit": p["uV2"],
        "bias": tf.concat([p[name] for name in biases], 0),
    }


def released_fast(p):
    return {
        "kernel": p["ih"],
        "recurrent_kernel": p["hh_w_raw"],
        "bias": tf.concat([p["f_b"] + p["PFB"], p["a_b"]], 0),
        "beta_logit": tf.reshape(p["zeta"], []),
        "kappa_logit": tf.reshape(p["nu"], []),
    }


RELEASED = {
    "gru": released_gru,
    "lstm": released_lstm,
    "irc_gru": lambda p: {
        "kernel": joined(p, "ih_I.weight", "WA.weight"),
        "recurrent_kernel": tf.transpose(p["WV.weight"]),
        "alpha_logit": p["uV"],
        "bias": p["PFB"],
    },
    "ihc_lstm": released_ihc,
    "sru": released_sru,
    "irc_sru": lambda p: released_elementwise(p, "PFB", "HWb"),
    "irc_t_lstm": lambda p: released_elementwise(p, "PFB"),
    "fastgrnn": released_fast,
    "irc_fastgrnn": lambda p: {
        "kernel": tf.concat([p["ih"], p["WA"]], -1),
        "recurrent_kernel": p["hh_w_raw"],
        "alpha_logit": p["uV"],
        "beta_logit": p["zeta"],
        "bias": p["PFB"],
    },
}
LAYERS = {
    "lstm": recurrent.WeightDropLSTM,
    "irc_gru": recurrent.IRCGRU,
    "irc_lstm": recurrent.IRCLSTM,
    "ihc_lstm": recurrent.IHCLSTM,
    "ihc_lstm_projected": recurrent.IHCLSTM,
    "sru": recurrent.SRU,
    "irc_sru": recurrent.IRCSRU,
    "t_lstm": recurrent.TLSTM,
    "irc_t_lstm": recurrent.IRCTLSTM,
    "fastgrnn": recurrent.FastGRNN,
    "irc_fastgrnn": recurrent.IRCFastGRNN,
}


def layer_for(config, place):
    """The trainers' two kinds of Keras's GRU, else ours."""
    name, form = config["cell"], config["form"]
    flags = {"return_sequences": True, "return_state": True, "dtype": golden.DTYPE}
    units = config["units"][place]
    if name == "gru":
        kind = {"paper": "gru_reset_before", "released": "gru"}[form]
        one = {
            "layers": 1,
            "units": units,
            "recurrent_dropout": 0,
            "layer_dropout": None,
        }
        stack = KINDS[kind].build(
            ml_collections.ConfigDict(one), units, dtype=golden.DTYPE
        )
        return stack.layers[0]
    more = {"projected": True} if name == "ihc_lstm_projected" else {}
    if name == "fastgrnn" and form == "released":
        more = {"scaled": place == 0}
    return LAYERS[name](units, variant=form, **more, **flags)


def stack_for(config, params):
    """Layers with the file's weights, and their variables as made of the file's."""
    layers, made = [], []
    maps = PAPER if config["form"] == "paper" else RELEASED
    inputs = config["input_size"]
    for place, units in enumerate(config["units"]):
        layer = layer_for(config, place)
        layer.build((None, None, inputs))
        values = maps[config["cell"]](params[place])
        for variable in layer.trainable_variables:
            variable.assign(values[variable.name])
        layers.append(layer)
        made.append([values[variable.name] for variable in layer.trainable_variables])
        inputs = units
    return layers, made


@golden.on_files(FILES["cell"])
def test_golden(path):
    arrays, config = golden.load(path)
    count = len(config["units"])
    places = [f"layer{place}." for place in range(count)]
    params = [golden.part(arrays, f"param.{place}") for place in places]
    params = tf.nest.map_structure(tf.constant, params)
    with tf.GradientTape(persistent=True) as mapping:
        mapping.watch(params)
        layers, made = stack_for(config, params)
    states = [
        [f"{name}.layer{place}" for name in config["states"]] for place in range(count)
    ]
    first = tf.nest.map_structure(
        lambda name: tf.constant(arrays[f"initial_{name}"]), states
    )
    x = tf.constant(arrays["inputs"])
    mask = tf.constant(arrays["mask"]) if config["masked"] else None
    with tf.GradientTape() as tape:
        tape.watch([x, first])
        outputs, results = x, {}
        for layer, names, state in zip(layers, states, first, strict=True):
            outputs, *after = layer(
                outputs, initial_state=state, mask=mask, training=True
            )
            results |= dict(zip(names, after, strict=True))
        results["outputs"] = outputs
        loss = tf.add_n(
            [
                tf.reduce_sum(value * arrays[f"cotangent_{name}"])
                for name, value in results.items()
            ]
        )
    variables = [[v.value for v in layer.trainable_variables] for layer in layers]
    by_x, by_first, by_variables = tape.gradient(loss, [x, first, variables])
    golden.assert_run_equal(arrays, results, loss, by_x)
    pairs = zip(tf.nest.flatten(states), tf.nest.flatten(by_first), strict=True)
    for name, gradient in pairs:
        golden.assert_equal(gradient, arrays[f"grad_initial_{name}"], name)
    found = mapping.gradient(
        made, params, output_gradients=by_variables,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )  # fmt: skip
    for place, gradients in zip(places, found, strict=True):
        for name, gradient in gradients.items():
            name = f"grad.{place}{name}"
            golden.assert_equal(gradient, arrays[name], name)


def recipe(config):
    """The trainer's config of a file's recipe; the test cuts the windows itself."""
    values = {
        "task": "text",
        "seed": 1,
        "model": {"layer": "irc_gru"},
        "data": {
            "batch_size": config["batch"],
            "window": config["bptt"],
            "horizon": 0,
            "history": "carried",
            "lengths": "drawn",
        },
        "optimizer": {
            "name": "sgd",
            "learning_rate": config["learning_rate"],
            "clip_norm": config["clip"],
            "weight_decay": config["weight_decay"],
        },
        "schedule": {"average_after": 1},
        "training": {"epochs": 1, "steps": 0},
        "evaluation": {"batch_size": config["evaluation_batch"]},
    }
    return ml_collections.ConfigDict(nested(configs.completed(flatten(values))))


def language_model(arrays, config, prefix):
    """The model with the weights of the file that have a prefix."""
    widths = [config["hidden"]] * (config["layers"] - 1) + [config["embedding"]]
    of_layers = {"cell": config["cell"], "form": config["form"], "units": widths}
    params = [
        golden.part(arrays, f"{prefix}rnns.{place}.") for place in range(len(widths))
    ]
    layers, _ = stack_for(of_layers | {"input_size": config["embedding"]}, params)
    model = keras_trellis.TrellisLM(
        config["vocabulary"],
        layers,
        embedding_units=config["embedding"],
        activation_weight=config["alpha"],
        temporal_weight=config["beta"],
        untrained_input_id=-1,  # torch's padding_idx=-1, as in `configs.ptb`
        dtype="float64",
    )
    model.embedding.embeddings.assign(arrays[f"{prefix}encoder.weight"])
    model.head.bias.assign(arrays[f"{prefix}decoder.bias"])
    return model


@golden.on_files(FILES["training"])
def test_training_run(path):
    """Windows of drawn lengths, a rate in proportion, and averages, by the trainer."""
    arrays, config = golden.load(path)
    model = language_model(arrays, config, "param.")
    settings, ids = recipe(config), arrays["train_ids"]
    task = modeling.LanguageModeling(
        model, settings, ids.reshape(-1), arrays["evaluation_ids"].reshape(-1)
    )
    optimizer = runs.make_optimizer(settings)
    trainer = runs.make_trainer(settings, task, optimizer)
    state, begin = task.initial_state(), 0
    losses = [task.evaluate()["loss"]]
    first_averaged = len(config["lengths"]) - config["averaged_steps"]
    for step, length in enumerate(config["lengths"]):
        if step == first_averaged:
            losses.append(task.evaluate()["loss"])
            optimizer.start_averaging()
        window = tf.constant(ids[:, begin : begin + length + 1], tf.int32)
        metrics, state = trainer.step((window[:, :-1], window[:, 1:]), state)
        begin += length
        for name in ("prediction", "activation", "temporal"):
            expected = arrays[f"{name}_loss"][step]
            golden.assert_equal(metrics[name], expected, f"{name}, step {step}", 1e-8)
        norm = arrays["gradient_norm"][step]
        golden.assert_equal(metrics["gradient_norm"], norm, f"norm, step {step}", 1e-8)
    losses.append(task.evaluate()["loss"])
    check_weights(model, language_model(arrays, config, "final."))
    with optimizer.evaluation_weights(model.trainable_variables):
        losses.append(task.evaluate()["loss"])
        check_weights(model, language_model(arrays, config, "average."))
    golden.assert_equal(
        np.array(losses), arrays["evaluation_losses"], "evaluation", 1e-8
    )


def check_weights(model, expected):
    pairs = zip(model.trainable_variables, expected.trainable_variables, strict=True)
    for one, other in pairs:
        golden.assert_equal(one.value, other.value, one.path, 1e-8)
