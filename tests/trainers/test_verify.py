"""The comparison with the authors' code, of which our own model in their names takes the place."""

import dataclasses
import functools
import itertools
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import flagsaver
from hypothesis import given
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from tests.refusals import refuses
from trainers import verify
from trainers.authors import beside
from trainers.data import images
from trainers.data.long_memory import Examples
from trainers.data.sequences import SequenceData
from trainers.images import authors as image_authors
from trainers.language import authors, corpora, models
from trainers.language.tasks.task import LanguageTask
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs
from trainers.tasks import registry

PIXELS = {"units": 6, "output_units": 4, "depth": 2, "dilation_rate": (1, 2)}
SIZES = {
    "units": 6,
    "output_units": 4,
    "embedding_units": 4,
    "depth": 2,
    "auxiliary_every": 1,
    "dilation_rate": (1, 2),
}
DATA = {"batch_size": 2, "window": 10, "horizon": 0, "history": "carried"}
STEPS = 3  # the last one in a second epoch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text("a b c <unk> d\n" * 7)
    return folder


@pytest.fixture
def corpus(folder, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "home"))
    return corpora.load("text", str(folder))


@pytest.fixture
def config():
    config = configs.load("text", "released")
    config.model.update(SIZES, weight_normalization=True)
    config.data.update(DATA)
    config.optimizer.update(name="adam", learning_rate=2e-3)
    return verify.comparable(config, STEPS)


def in_their_names(values, model):
    """Values of our model's variables, or their gradients, by the names of theirs."""
    arrays = map(np.asarray, values)
    by_path = dict(zip(verify.variable_names(model), arrays, strict=True))

    def gates(values):  # i, f, c, o here; i, o, c, f there
        blocks = np.split(values, 4, axis=-1)
        return np.concatenate([blocks[gate] for gate in (0, 3, 2, 1)], axis=-1)

    if "dense/kernel" in by_path:  # a classifier
        arrays = {"linear.weight": by_path["dense/kernel"].T}
        arrays["linear.bias"] = by_path["dense/bias"]
    else:
        table = by_path["embedding/embeddings"]
        arrays = {"encoder.weight": table, "decoder.weight": table}
        arrays["decoder.bias"] = by_path["head/bias"]
    arrays["full_conv.bias2"] = gates(by_path["trellis/bias"])
    names = {
        "weight1": ("kernel", "kernel_scale"),
        "weight2": ("recurrent_kernel", "recurrent_scale"),
    }
    for name, (kernel, scale) in names.items():
        arrays[f"full_conv.{name}_v"] = gates(by_path[f"trellis/{kernel}"]).transpose(
            2, 1, 0
        )
        arrays[f"full_conv.{name}_g"] = gates(by_path[f"trellis/{scale}"])[
            :, None, None
        ]
    return arrays


class StandIn:
    """What `reference.Reference` is, of our own code, which tells one tensor wrong in each step.

    Its weights are drawn by our initializers.
    """

    wrong = ("cell", "decoder.bias", "full_conv.bias2")

    def __init__(self, config, corpus):
        model = models.build(config, corpus.vocabulary.size)
        self._weights = in_their_names(model.trainable_variables, model)
        self._ours = authors.Ours(config, self._weights, corpus)
        self._begin()

    def _begin(self):
        self._steps = 0
        self.epochs = []  # the steps before each

    def start_epoch(self):
        self.epochs.append(self._steps)
        self._ours.start_epoch()

    def weights(self):
        return self._weights

    def step(self, inputs, targets):
        batch = tf.constant(inputs), tf.constant(targets)
        found, gradients = self._ours.step(batch)
        model = self._ours.model
        gradients = in_their_names(gradients, model)
        self._weights = in_their_names(model.trainable_variables, model)
        kinds = (found, gradients, self._weights)
        arrays, name = kinds[self._steps], self.wrong[self._steps]
        arrays[name] = arrays[name] + 1e-6
        self._steps += 1
        return found, gradients


class ClassifierStandIn(StandIn):
    """What `reference.PixelReference` is: its images are normalised, and in order."""

    wrong = ("log_probs", "linear.bias", "full_conv.bias2")

    def __init__(self, config, data):
        model = sequence_models.build(config, data)
        self._weights = in_their_names(model.trainable_variables, model)
        as_read = dataclasses.replace(data, permutation=None)
        self._ours = image_authors.OurClassifier(config, self._weights, as_read)
        self._begin()


def differences(theirs, ours, wrong):
    """All differences; those that diverge are of a step each: what is wrong, then a bias."""
    found = list(verify.differences(theirs, ours, STEPS))
    diverging = [difference[:2] for difference in found if difference.diverges]
    assert diverging == [*enumerate([*wrong, "new value of trellis/bias"], 1)]
    assert theirs.epochs == [0, 2]
    return found


def test_of_equal_sides_only_what_was_told_wrong_diverges(config, corpus):
    theirs = StandIn(config, corpus)
    ours = authors.Ours(config, theirs.weights(), corpus)
    found = differences(theirs, ours, ["cell", "gradient of head/bias"])
    assert all(difference.magnitude for difference in found)
    first = [difference.tensor for difference in found if difference.step == 1]
    assert [difference.tensor for difference in found] == first * STEPS
    assert first[:5] == ["outputs", "hidden", "cell", "prediction", "auxiliary"]
    assert first[5:9] == ["activation", "temporal", "loss", "gradient_norm"]
    trained = [
        "embedding/embeddings",
        "trellis/kernel",
        "trellis/kernel_scale",
        "trellis/bias",
    ]
    trained += ["trellis/recurrent_kernel", "trellis/recurrent_scale", "head/bias"]
    assert sorted(first[9:]) == sorted(
        f"{what} of {name}" for what in ("gradient", "new value") for name in trained
    )


def test_classifiers_of_pixels_are_compared_in_the_order_of_the_pixels():
    config = configs.load("permuted_mnist", "paper")
    config.model.update(PIXELS)
    config.data.update(batch_size=2)
    with refuses("`config.model.output_units` must be 10, the"):
        verify.comparable(config, STEPS)
    config.model.output_units = 10
    config.model.units = 12
    config = verify.comparable(config, STEPS)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (4, 6, 1), "uint8")
    examples = Examples(pixels, rng.integers(0, 10, 4, "int32"))
    data = SequenceData(
        *(examples,) * 3,
        functools.partial(images.normalise, images.MNIST),
        outputs=10,
        classes=images.MNIST.classes,
        permutation=(3, 0, 5, 1, 4, 2),
    )
    theirs = ClassifierStandIn(config, data)
    ours = image_authors.OurClassifier(config, theirs.weights(), data)
    found = differences(theirs, ours, ["log_probs", "gradient of dense/bias"])
    first = [difference.tensor for difference in found if difference.step == 1]
    assert first[:3] == ["log_probs", "loss", "gradient_norm"]
    assert len(first) == 3 + 2 * len(ours.model.trainable_variables)


@given(hnp.arrays(np.float64, (2, 3), elements={"min_value": -9, "max_value": 9}))
def test_the_largest_difference_and_the_largest_value(values):
    theirs = np.full((2, 3), 0.5)
    (found,) = verify.compare(7, {"a": theirs}, {"a": values})
    assert found == (7, "a", np.abs(values - 0.5).max(), 0.5)
    assert found.diverges == (found.largest > verify.TOLERANCE / 2)


def test_what_is_not_a_number_diverges():
    for theirs, ours in ((0.0, np.nan), (np.nan, 0.0), (np.nan, np.nan)):
        (found,) = verify.compare(1, {"a": np.array(theirs)}, {"a": np.array(ours)})
        assert found.diverges


def test_the_summary_is_the_largest_part_of_a_tensor_or_the_first_that_diverges():
    found = [
        verify.Difference(1, "loss", 0.0, 0.0),
        verify.Difference(1, "outputs", 2e-12, 0.1),
        verify.Difference(2, "cell", 3e-12, 10.0),
    ]
    assert verify.summary(found) == (
        "2 steps agree: the largest difference is 2.0e-11 of a tensor's largest value "
        "(step 1, outputs)"
    )
    found += [
        verify.Difference(2, "hidden", 1e-3, 1.0),
        verify.Difference(3, "loss", 1.0, 1.0),
    ]
    assert verify.summary(found) == "diverges first: step 2, hidden"


@pytest.mark.parametrize("ours", [{"b": np.zeros(2)}, {"a": np.zeros((2, 1))}, {}])
def test_other_tensors_are_not_compared(ours):
    with refuses("tensors differ in name or shape: theirs {'a': .2,.}"):
        verify.compare(1, {"a": np.zeros(2)}, ours)


def test_a_comparison_drops_nothing_and_leaves_the_config_as_it_is():
    config = configs.load("ptb", "paper")
    before = config.to_dict()
    model = verify.comparable(config, 1).model
    assert config.to_dict() == before
    rates = {name: rate for name, rate in model.items() if name.endswith("dropout")}
    assert len(rates) == 6 and not any(rates.values())


@pytest.mark.parametrize(
    "task, preset",
    [
        *itertools.product(
            ["ptb", "ptb_mos", "ptb_char", "wikitext2", "wikitext103"],
            ["paper", "released"],
        ),
        *itertools.product(
            ["seq_mnist", "permuted_mnist", "seq_cifar10"],
            ["paper", "paper_larger", "released"],
        ),
        ("ptb", "small"),
        ("ptb_mos", "small"),
        ("ptb_char", "small"),
        ("wikitext2", "small"),
        ("wikitext103", "small"),
    ],
)
def test_each_task_is_compared_as_their_code_is(task, preset):
    model = verify.comparable(configs.load(task, preset), 1).model
    assert model.auxiliary_from == "bottom"
    of_text = isinstance(registry.get(task), LanguageTask)
    assert model.untrained_input_id == (-1 if of_text else None)
    if task == "ptb_mos":
        assert model.mixture.epsilon == 1e-8 and model.mixture.latent_dropout == 0.0


def test_what_the_authors_have_not_is_refused():
    config = configs.load("ptb", "small")
    with config.unlocked():
        config.model.groups = 2
    with refuses("`config.model.groups` must be 1, .* Received: .*=2"):
        verify.comparable(config, 1)
    config = configs.load("seq_mnist", "released")
    with config.unlocked():
        config.training.label_smoothing = 0.1
    with refuses("`config.training.label_smoothing` must be 0"):
        verify.comparable(config, 1)
    for preset in ("small_stacked_lstm", "small_lstm"):  # of infinite depth; an LSTM
        with refuses("`config.model.layer` must be 'trellis'"):
            verify.comparable(configs.load("ptb", preset), 1)


@pytest.mark.parametrize(
    "largest, status, last",
    [
        (
            1e-15,
            0,
            "2 steps agree: the largest difference is 1.0e-15 of a tensor's largest value",
        ),
        (1e-3, 1, "diverges first: step 2, loss"),
    ],
)
def test_the_command_compares_and_tells_the_outcome(
    folder, corpus, monkeypatch, capsys, largest, status, last
):
    reference = types.ModuleType("reference")
    reference.Reference = lambda clone, config, size: StandIn(config, corpus)
    monkeypatch.setattr(beside, "reference_module", lambda clone, name: reference)

    def differences(theirs, ours, steps):  # which has a test of its own
        assert isinstance(theirs, StandIn) and ours.model.trellis.depth == 2
        assert steps == 2
        table = theirs.weights()["encoder.weight"]
        assert_array_equal(ours.model.embedding.embeddings, table, strict=True)
        yield verify.Difference(1, "outputs", 0.0, 1.0)
        yield verify.Difference(2, "loss", largest, 1.0)

    monkeypatch.setattr(verify, "differences", differences)
    saved = flagsaver.save_flag_values()
    try:
        verify.parse_flags(
            [
                "verify",
                "--task=text",
                "--preset=released",
                "--reference_dir=clone",
                "--steps=2",
            ]
            + [f"--data_dir={folder}", "--config.model.weight_normalization=True"]
            + [f"--config.model.{name}={value}" for name, value in SIZES.items()]
            + [f"--config.data.{name}={value}" for name, value in DATA.items()]
        )
        assert verify.main(["verify"]) == status
    finally:
        flagsaver.restore_flag_values(saved)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["1", "outputs"], ["2", "loss"]]
    assert lines[1].endswith("diverges") == bool(status)
    assert len(lines) == 3 and lines[2].startswith(last)


def test_without_torch_the_command_says_how_to_get_it(monkeypatch, tmp_path):
    (tmp_path / "TrellisNet").mkdir()
    (tmp_path / "TrellisNet" / "model.py").touch()
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "trainers.authors.reference", raising=False)
    with refuses("it needs torch: pip install"):
        beside.reference_module(str(tmp_path), "model")
