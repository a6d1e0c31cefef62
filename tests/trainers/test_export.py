"""`python -m trainers.export`: what a run has learned, as a served model."""

import datetime
import json
import math
import pathlib
import re
from importlib import metadata

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.formats import manifest
from keras_trellis.serving import runtime
from tests.trainers import calls, mnist_files
from trainers import export
from trainers.data import files, images
from trainers.language import corpora, exporting
from trainers.language import experiment as language_runs
from trainers.sequences import experiment as sequence_runs
from trainers.sequences import models as sequence_models
from trainers.synthetic.tasks import DrawnTask
from trainers.tasks import config as configs
from trainers.tasks import registry, run_folders
from trainers.training import checkpoints, variables
from trainers.training.workdir import open_workdir

SIZES = {"units": 12, "depth": 3, "output_units": 8, "embedding_units": 8}
CLASSIFIER = {"units": 12, "output_units": 10, "depth": 3, "dilation_rate": (1, 2, 4)}


def changed(task, model):
    config = configs.load(task, "small")
    with config.unlocked():
        config.model.update(model)
    return config


def save_weights(path, model):
    """Gives a run random weights, as the best of its epochs."""
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    arrays = variables.arrays(variables.model_variables(model))
    assert checkpoints.Checkpoints(path / "checkpoints").save_best(arrays)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    words = np.random.default_rng(0).integers(0, 30, 1800)
    lines = [" ".join(f"w{word}" for word in row) for row in words.reshape(-1, 10)]
    lines[-1] = " ".join(["new", *lines[-1].split()[1:-1], "other"])
    for name, part in (
        ("train", lines[:100]),
        ("valid", lines[100:140]),
        ("test", lines[140:]),
    ):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in part))
    return folder


@pytest.fixture(scope="module")
def language_run(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "language"
    config = changed("text", SIZES)
    loaded = corpora.load_corpus(config, str(corpus))
    with open_workdir(path, config.to_dict()):
        corpora.keep_corpus(path, loaded)
        save_weights(
            path, language_runs.LanguageExperiment(config, str(corpus)).build()
        )
    score = {"nll": 1.0, "tokens": 1234, "perplexity": 56.789}
    files.write_json(path / "result.json", {"scores": {"test": {"exact": score}}})
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    rng = np.random.default_rng(0)
    for split, count in (("train", 60), ("test", 20)):
        pixels = rng.integers(256, size=(count, 28, 28))
        mnist_files.write(folder, split, pixels, np.arange(count) % 10)
    return folder


@pytest.fixture(scope="module")
def digits_run(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "digits"
    config = changed("permuted_mnist", CLASSIFIER)
    with config.unlocked():
        config.data.validation, config.data.batch_size = 20, 10
    with open_workdir(path, config.to_dict()):
        experiment = sequence_runs.SequenceExperiment(config, str(digits), path)
        experiment.keep(path)
        save_weights(path, experiment.build())
    return path


@pytest.fixture
def call(capsys):
    """Runs a command line in this process."""
    return calls.in_process(export, capsys)


def card(version):
    return (pathlib.Path(version) / "assets.extra" / "model_card.md").read_text()


def facts_of(version):
    """The first table of a card, by name."""
    table = card(version).split("\n\n")[1].splitlines()[2:]
    return dict(re.fullmatch(r"\| (.*?) \| (.*) \|", row).groups() for row in table)


def test_every_task_says_where_its_data_is_from():
    for task in registry.TASKS.values():
        if isinstance(task, DrawnTask):
            continue
        facts = task.data_facts({})
        assert facts["Trained on"] and facts["Licence of the data"]
        standardized = getattr(task, "standardize", None) is not None
        assert ("Text is made ready" in facts) == standardized


def test_what_a_run_did_not_keep_is_not_known():
    facts = registry.get("ptb").data_facts({})
    facts |= exporting.unknown_words({"sha256": {}})
    assert facts["SHA-256 of the data"] == "not stated"
    assert facts["Unknown words in the test text"] == "not measured"


def test_a_language_model(call, language_run, tmp_path):
    output = call(f"--workdir={language_run}", f"--output={tmp_path / 'served'}")
    version = tmp_path / "served" / "1"
    assert output == (
        f"exported to {version}; assets.extra/model_card.md there describes it\n"
    )
    assert "| Test perplexity | 56.79 (1,234 tokens) |" in card(version)
    facts = facts_of(version)
    assert facts["Task"] == "text"
    assert facts["Trained on"] == "text files of the user's own"
    assert facts["Licence of the data"] == "not stated"
    kept = json.loads((language_run / "corpus.json").read_text())
    sums = [f"{split} {sha256}" for split, sha256 in kept["sha256"].items()]
    assert facts["SHA-256 of the data"] == ", ".join(sums) and len(sums) == 3
    assert facts["Text is made ready"] == "it is taken as it is"
    assert facts["Text is cut"].startswith(
        "in words at white space; a line break reads `<eos>`"
    )
    # Two of its 400 words are not in the training text; each of the 40 lines has one more token.
    assert facts["Unknown words in the test text"] == "0.45 % (2 of 440 tokens)"
    assert "follows no instructions" in facts["Limits"] and facts["Intended use"]
    assert facts["Written by"].startswith(
        f"keras_trellis {metadata.version('keras_trellis')} "
    )
    written = datetime.date.fromisoformat(facts["Written on"].removesuffix(" (UTC)"))
    assert abs(datetime.datetime.now(datetime.timezone.utc).date() - written).days <= 1

    model, vocabulary, _ = language_runs.load_trained(language_run)
    text = "w3 w7 nothing\nw1"
    ids = np.concatenate(
        [[vocabulary.eos_id], vocabulary.encode(text.replace("\n", " <eos> ").split())]
    )[None]
    nll, _ = model.score(ids[:, :-1], ids[:, 1:])
    signatures = tf.saved_model.load(str(version)).signatures
    found = signatures["score_v2"](
        text=tf.constant([text]), alternatives=tf.constant([0])
    )
    assert_allclose(found["nll"], nll, rtol=1e-5)
    scores = runtime.load(version).score([text])
    assert_allclose(scores.nll, nll, rtol=1e-5)
    assert scores.unknown == [1]
    assert [token.decode() for token in found["tokens"].numpy()[0]] == [
        vocabulary.tokens[index] for index in ids[0, 1:]
    ]


def test_less_precision_is_measured(call, language_run, corpus, tmp_path):
    arguments = [
        f"--workdir={language_run}",
        f"--output={tmp_path}",
        "--precision=int8",
    ]
    call(*arguments, f"--data_dir={corpus}", "--noruntime")
    assert manifest.read(tmp_path / "1").runtime.refused
    row = re.search(
        r"\| Validation perplexity in int8 \| (\S+), in float32 (\S+) \|",
        card(tmp_path / "1"),
    )
    model, _, config = language_runs.load_trained(language_run)
    loaded = corpora.load_corpus(config, str(corpus))
    evaluator = language_runs.evaluation.Evaluator(
        model, config.data, config.evaluation
    )
    assert row[2] == f"{math.exp(evaluator.exact(loaded.validation).mean):.2f}"
    assert row[1] != row[2]


def test_text_of_another_run_measures_nothing(call, language_run, corpus, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for file in corpus.iterdir():
        (other / file.name).write_text(file.read_text() + "w1 w2\n")
    arguments = [
        f"--workdir={language_run}",
        f"--output={tmp_path / 'served'}",
        "--precision=int8",
    ]
    assert "belongs to a run on another text" in call(
        *arguments, f"--data_dir={other}", status=2
    )
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_images_as_they_are(call, digits_run, digits, tmp_path, precision):
    exact = precision == "float32"
    arguments = [
        f"--workdir={digits_run}",
        f"--output={tmp_path}",
        f"--precision={precision}",
    ]
    call(*arguments, *([] if exact else [f"--data_dir={digits}"]))
    assert ("| Validation accuracy in float16 |" in card(tmp_path / "1")) != exact
    facts = facts_of(tmp_path / "1")
    assert (
        facts["Trained on"].startswith("MNIST")
        and facts["Licence of the data"] == "not stated"
    )
    kept = json.loads((digits_run / "data.json").read_text())
    assert f"train {kept['sha256']['train']}" in facts["SHA-256 of the data"]
    assert "Text is cut" not in facts and "one of its classes" in facts["Limits"]

    config = run_folders.load_config(digits_run)
    order = json.loads((digits_run / "data.json").read_text())["permutation"]
    model = sequence_models.classifier(config, (784, 1), 10, order)
    checkpoints.load_best(digits_run, model)
    pictures = np.random.default_rng(1).integers(256, size=(3, 28, 28))
    logits = model(images.normalise(images.MNIST, pictures.reshape(3, 784, 1)))
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    found = signatures["serving_default"](images=tf.constant(pictures, tf.uint8))
    assert_allclose(
        found["probabilities"], tf.nn.softmax(logits), atol=1e-5 if exact else 1e-2
    )
    best = np.argsort(-np.asarray(found["probabilities"]), axis=1)[:, :5]
    assert_array_equal(found["classes"], best)
    assert found["labels"].numpy()[0, 0].decode() == str(best[0, 0])


def test_a_folder_that_is_none_is_told_before_anything_is_measured(
    call, language_run, tmp_path
):
    (tmp_path / "file").write_text("mine")
    place = (f"--workdir={language_run}", f"--output={tmp_path / 'file'}")
    assert "which is a file" in call(
        *place, "--precision=int8", "--data_dir=/nowhere", status=2
    )


def test_a_full_disk_is_a_status_of_its_own(call, language_run, tmp_path, monkeypatch):
    def full(*_, **__):
        raise tf.errors.ResourceExhaustedError(
            None, None, "x; No space left on device\nmore"
        )

    monkeypatch.setattr(tf.saved_model, "save", full)
    monkeypatch.setenv("HOME", str(tmp_path))
    message = call(f"--workdir={language_run}", "--output=~/served", status=4)
    assert message == (
        f"error: no version is written in {tmp_path / 'served'}: x; No space left on device\n"
    )
    assert list((tmp_path / "served").iterdir()) == []
