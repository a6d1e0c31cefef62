"""Released weights: the golden tests hold the numbers, these the names and shapes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import convert
from tests.refusals import refuses

V, E, UNITS, K = 7, 3, 5, 2


def layer_arrays(normalized=False, prefix="", suffix=""):
    rng = np.random.default_rng(0)
    shapes = {"weight1": (4 * UNITS, E, K), "weight2": (4 * UNITS, UNITS, K)}
    arrays = {f"{prefix}full_conv.bias2": rng.normal(size=4 * UNITS)}
    for name, shape in shapes.items():
        direction = "_v" if normalized else ""
        arrays[f"{prefix}full_conv.{name}{direction}{suffix}"] = rng.normal(size=shape)
        if normalized:
            arrays[f"{prefix}full_conv.{name}_g"] = rng.normal(size=(4 * UNITS, 1, 1))
    return arrays


def model_arrays(**arguments):
    table = np.random.default_rng(1).normal(size=(V, E))
    arrays = {
        "encoder.weight": table,
        "decoder.weight": table,
        "decoder.bias": np.arange(V) / 7,
    }
    for prefix in ("tnet.module.", "network.0.module."):
        arrays.update(layer_arrays(prefix=prefix, suffix="_raw", **arguments))
    return arrays


def convert_layer(arrays, output_units=E):
    return convert.layer_from_torch(
        arrays,
        depth=4,
        dilation_rate=[1, 2],
        output_units=output_units,
        dtype="float64",
    )


def convert_model(arrays, **arguments):
    return convert.language_model_from_torch(
        arrays, depth=4, dilation_rate=1, dtype="float64", **arguments
    )


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("suffix", ["", "_raw"])
def test_sizes_are_inferred(normalized, suffix):
    layer = convert_layer(layer_arrays(normalized, suffix=suffix))
    config = layer.get_config()
    expected = {
        "units": UNITS,
        "depth": 4,
        "kernel_size": K,
        "dilation_rate": [1, 2],
        "output_units": E,
        "weight_normalization": normalized,
    }
    assert {name: config[name] for name in expected} == expected


def test_kernel_layout_and_gate_order():
    arrays = layer_arrays()
    layer = convert_layer(arrays)
    gates = dict(zip("iogf", np.split(arrays["full_conv.weight1"], 4), strict=True))
    for name, block in zip(
        "ifgo", np.split(layer.kernel.numpy(), 4, axis=-1), strict=True
    ):
        assert_array_equal(block, gates[name].transpose(2, 1, 0))


def test_language_model():
    arrays = model_arrays(normalized=True)
    model = convert_model(
        arrays, auxiliary_every=2, auxiliary_weight=0.5, output_dropout=0.1
    )
    config = model.get_config()
    assert (config["vocabulary_size"], config["embedding_units"]) == (V, E)
    assert (config["auxiliary_weight"], config["output_dropout"]) == (0.5, 0.1)
    assert config["untrained_input_id"] == V - 1
    assert_array_equal(model.head.bias, arrays["decoder.bias"])
    assert_array_equal(model.embedding.embeddings, arrays["encoder.weight"])
    alone = {
        name: array for name, array in arrays.items() if not name.startswith("network.")
    }
    for one, other in zip(
        model.get_weights(), convert_model(alone).get_weights(), strict=True
    ):
        assert_array_equal(one, other)


def mixture_arrays(experts=2, features=4):
    rng = np.random.default_rng(2)
    parts = {
        "prior.weight": rng.normal(size=(experts, features)),
        "prior.bias": rng.normal(size=experts),
        "latent.weight": rng.normal(size=(experts * E, features)),
        "latent.bias": rng.normal(size=experts * E),
    }
    arrays = model_arrays()
    for prefix in ("mixsoft.", "network.1."):
        arrays |= {prefix + name: array for name, array in parts.items()}
        arrays |= {prefix + "decoder.weight": arrays["decoder.weight"]}
        arrays |= {prefix + "decoder.bias": arrays["decoder.bias"]}
    return arrays


def split_arrays(clusters=2):
    rng = np.random.default_rng(3)
    tails = {
        "tail_vectors": rng.normal(size=(clusters, E)),
        "tail_bias": rng.normal(size=clusters),
    }
    return model_arrays() | tails


def test_mixture_of_softmaxes():
    arrays = mixture_arrays()
    model = convert_model(arrays, latent_dropout=0.3, seed=5)
    config = model.head.get_config()
    names = ("experts", "latent_dropout", "epsilon", "seed")
    assert [config[name] for name in names] == [2, 0.3, 1e-8, 5]
    assert model.trellis.output_units == 4
    assert_array_equal(model.head.latent_kernel, arrays["mixsoft.latent.weight"].T)
    assert_array_equal(model.head.bias, arrays["decoder.bias"])


def test_split_softmax_hands_out_its_tokens_backwards():
    arrays = split_arrays()
    head = convert_model(arrays, cutoffs=(2, 5)).head
    assert head.cutoffs == (2, 5)
    assert_array_equal(head.tail_vectors, arrays["tail_vectors"][::-1])
    assert_array_equal(head.tail_bias, arrays["tail_bias"][::-1])


@pytest.mark.parametrize(
    "arrays, arguments, message",
    [
        (split_arrays(), {}, "`cutoffs` must say .*Received: cutoffs=None"),
        (
            split_arrays(),
            {"cutoffs": (2,)},
            r"'tail_vectors'.*\(1, 3\). Received: \(2, 3\)",
        ),
        (split_arrays(), {"cutoffs": (2, 9)}, r"vocabulary's size, 7.*\(2, 9\)"),
        (
            model_arrays(),
            {"cutoffs": (2, 5)},
            r"`cutoffs` needs the arrays of a split .*cutoffs=\(2, 5\)",
        ),
        (
            model_arrays(),
            {"latent_dropout": 0.1},
            "`latent_dropout` needs the arrays of a mix.*=0.1",
        ),
        (
            mixture_arrays() | {"mixsoft.decoder.bias": np.ones(V)},
            {},
            "mixsoft.decoder.bias'.* are one tensor",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_head(arrays, arguments, message):
    with refuses(message):
        convert_model(arrays, **arguments)


def classifier_arrays(classes=4, **arguments):
    rng = np.random.default_rng(2)
    linear = {
        "linear.weight": rng.normal(size=(classes, E)),
        "linear.bias": np.arange(classes) / 3,
    }
    return linear | layer_arrays(prefix="network.0.module.", suffix="_raw", **arguments)


def convert_classifier(arrays, **arguments):
    return convert.classifier_from_torch(
        arrays, depth=4, dilation_rate=[1, 2], dtype="float64", **arguments
    )


@pytest.mark.parametrize("normalized", [False, True])
def test_classifier(normalized):
    """A linear map of the network's last output, after the pixels are put in their order."""
    arrays, order = classifier_arrays(normalized=normalized), [3, 0, 4, 2, 1]
    model = convert_classifier(arrays, permutation=order, dropout=0.2)
    assert (model.classes, model.dropout, model.trellis.output_units) == (4, 0.2, E)
    network = {
        name: array for name, array in arrays.items() if name.startswith("network")
    }
    x = np.random.default_rng(3).normal(size=(2, 5, E))
    last = convert_layer(network)(x[:, order])[:, -1]
    expected = last @ arrays["linear.weight"].T + arrays["linear.bias"]
    assert_allclose(model(x), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"linear.bias": np.zeros(5)},
            r"`arrays\['linear.bias'\]` must be of shape \(4,\)",
        ),
        (
            {"linear.weight": np.zeros(4)},
            r"`arrays\['linear.weight'\]` must be of shape",
        ),
        ({"linear.weight": None}, "without .'linear.weight'."),
        ({"decoder.bias": np.zeros(3)}, "with the unknown .'decoder.bias'."),
    ],
)
def test_bad_classifier_arrays(changes, message):
    with refuses(message):
        convert_classifier(changed(classifier_arrays(), **changes))


@pytest.mark.parametrize(
    "arrays, read",
    [
        (layer_arrays(), convert_layer),
        (model_arrays(), convert_model),
        (classifier_arrays(), convert_classifier),
    ],
)
def test_what_was_saved_within_data_parallel(arrays, read):
    within = read({f"module.{name}": array for name, array in arrays.items()})
    for one, other in zip(
        within.get_weights(), read(arrays).get_weights(), strict=True
    ):
        assert_array_equal(one, other)


def changed(arrays, **changes):
    arrays = {
        **arrays,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return {name: array for name, array in arrays.items() if array is not None}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"full_conv__bias2": None}, "without .'bias2'."),
        ({"full_conv__extra": np.zeros(3)}, "unknown .'extra'."),
        ({"other": np.zeros(3)}, "unknown .'other'."),
        ({"full_conv__bias2": np.zeros(3)}, r"'bias2'.*\(20,\). Received: \(3,\)"),
        (
            {"full_conv__weight1": np.zeros((20, 3, 3))},
            r"'weight1'.*Received: \(20, 3, 3\)",
        ),
        (
            {"full_conv__weight2": np.zeros((24, 5, 2))},
            r"'weight2'.*Received: \(24, 5, 2\)",
        ),
        ({"full_conv__weight2": np.zeros((20, 5))}, r"'weight2'.*Received: \(20, 5\)"),
        ({"full_conv__bias2_raw": np.ones(20)}, "bias2'.* are one tensor"),
    ],
)
def test_bad_layer_arrays(changes, message):
    with refuses(message):
        convert_layer(changed(layer_arrays(), **changes))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"encoder__weight": None}, "without .'encoder.weight'."),
        (
            {"mixsoft__prior__bias": np.zeros(3)},
            "without .'latent.bias', .*'prior.weight'.",
        ),
        ({"decoder__bias": np.zeros(3)}, r"'decoder.bias'.*\(7,\). Received: \(3,\)"),
        ({"decoder__weight": np.zeros((V, E))}, "'decoder.weight'.* are one tensor"),
        (
            {"network__0__module__full_conv__bias2": np.ones(20)},
            "bias2'.* are one tensor",
        ),
        (
            {"encoder__weight": np.zeros((V, 9))},
            r"'encoder.weight'.*Received: \(7, 9\)",
        ),
    ],
)
def test_bad_language_model_arrays(changes, message):
    with refuses(message):
        convert_model(changed(model_arrays(), **changes))


def test_output_units_beyond_the_hidden_ones():
    with refuses("output_units"):
        convert_layer(layer_arrays(), output_units=UNITS + 1)
