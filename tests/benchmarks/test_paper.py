"""The exported recipe: the trainers' own steps, and no difference after a kill."""

import csv
import shutil
import subprocess
import sys
import time

import keras
import ml_collections
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.paper import export, lowering, run
from tests import ROOT
from tests.benchmarks import commands
from trainers.language import experiment, modeling, models
from trainers.sequences import modeling as sequence_modeling
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs
from trainers.tasks import sequences
from trainers.training import runs, schedules, strategies, variables
from trainers.training.trainer import Trainer

pytest.importorskip("jax", reason="the exported recipe needs JAX")
EPOCHS = 3


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    words = np.random.default_rng(0).choice(list("abcdefgh"), 500)
    for split, count in (("train", 85), ("valid", 60), ("test", 40)):
        lines = [" ".join(words[i : i + 4]) for i in range(0, count, 4)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.fixture(scope="module")
def config():
    values = configs.load("text", "small")
    values.update(seed=3)
    values.model.update(units=6, depth=2, embedding_units=4, output_units=4)
    values.model.update(
        dilation_rate=(1, 2), dropout=0.1, weight_dropout=0.2, auxiliary_every=1
    )
    values.model.update(recurrent_dropout=0.1, output_dropout=0.1, auxiliary_weight=0.1)
    values.data.update(batch_size=2, window=6, horizon=2, history="carried")
    values.optimizer.update(name="sgd", learning_rate=1.0)
    values.schedule.update(epochs=(1,), factor=0.5, average_after=2)
    values.training.update(epochs=EPOCHS)
    values.evaluation.update(batch_size=2, exact_batch_size=2, exact_chunk=8)
    return ml_collections.ConfigDict(values)


@pytest.fixture(scope="module")
def folder(config, data_dir, tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe")
    export.write(config, data_dir, path)
    return path


def program(folder, *arguments):
    command = [sys.executable, str(folder / "run.py"), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(folder, *arguments):
    process = program(folder, *arguments)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def kept(folder):
    with np.load(folder / "state.npz") as arrays:
        return {name: arrays[name] for name in arrays if name != "record"}


@pytest.fixture(scope="module")
def undisturbed(folder, tmp_path_factory):
    path = shutil.copytree(folder, tmp_path_factory.mktemp("undisturbed") / "copy")
    finish(path)
    return path


def rows(folder):
    with open(folder / "curve.csv", newline="") as file:
        return list(csv.DictReader(file))


def assert_same(folder, model, optimizer):
    """The folder's variables are those of a model and its optimizer."""
    arrays = kept(folder)
    named = {
        **variables.model_variables(model),
        **variables.optimizer_variables(optimizer, model),
    }
    assert {f"variable/{name}" for name in named} == {
        n for n in arrays if n.startswith("var")
    }
    for name, variable in named.items():
        np.testing.assert_allclose(
            arrays[f"variable/{name}"], variable, atol=1e-5, err_msg=name
        )


def test_its_steps_are_those_of_the_trainers(undisturbed, config, data_dir):
    strategies.make_deterministic(config.seed)
    corpus = experiment.load_corpus(config, data_dir)
    model = models.build(config, corpus.vocabulary.size)
    export.round_weights(model)
    optimizer = runs.make_optimizer(config)
    task = modeling.LanguageModeling(model, config, corpus.train, corpus.validation)
    trainer = Trainer(task, optimizer, clip_norm=config.optimizer.clip_norm)
    schedule = schedules.Schedule(**config.schedule.to_dict())
    batches, losses, steps = trainer.batches(0), [], task.steps_per_epoch
    assert EPOCHS * steps >= 20
    for row in rows(undisturbed):
        metrics, _ = trainer.steps(batches, task.initial_state(), steps)
        with optimizer.evaluation_weights(model.trainable_variables):
            losses.append(task.evaluate()["loss"])
            exact = task.evaluator.score("exact", corpus.test).mean
        schedule.after_epoch(losses, optimizer)
        expected = {
            "training": np.mean(metrics["prediction"]),
            "validation_trellisnet": losses[-1],
            "test_exact": exact,
        }
        for name, value in expected.items():
            assert float(row[name]) == pytest.approx(value, abs=1e-5), name
    assert_same(undisturbed, model, optimizer)


def test_an_lstm_is_scored_as_by_the_trainers(config, data_dir, tmp_path):
    """Its dropout draws a seed in evaluation too. XLA's masks are other than TensorFlow's."""
    values = config.to_dict()
    values["model"] |= dict(layer="lstm", auxiliary_weight=0.0, weight_dropout=0.0)
    values["schedule"]["average_after"] = None
    config, folder = ml_collections.ConfigDict(values), tmp_path / "recipe"
    export.write(config, data_dir, folder)
    finish(folder)
    corpus = experiment.load_corpus(config, data_dir)
    model = models.build(config, corpus.vocabulary.size)
    arrays = kept(folder)
    for name, variable in variables.model_variables(model).items():
        variable.assign(arrays[f"variable/{name}"])
    task = modeling.LanguageModeling(model, config, corpus.train, corpus.validation)
    row = rows(folder)[-1]
    exact = task.evaluator.score("exact", corpus.test).mean
    assert float(row["validation_trellisnet"]) == pytest.approx(
        task.evaluate()["loss"], abs=1e-5
    )
    assert float(row["test_exact"]) == pytest.approx(exact, abs=1e-5)


def test_windows_of_drawn_lengths_are_those_of_the_trainers(config, data_dir, tmp_path):
    """Padded to two lengths, with rates in proportion, averages and DropConnect."""
    values = config.to_dict()
    values["model"] |= dict(layer="weight_drop_lstm", auxiliary_weight=0.0)
    values["model"] |= dict(activation_weight=2.0, temporal_weight=1.0)
    values["data"] |= dict(window=12, horizon=0, lengths="drawn")
    values["schedule"] |= dict(epochs=(), average_after=1)
    values["training"] |= dict(epochs=2)
    config = ml_collections.ConfigDict(values)
    export.write(config, data_dir, tmp_path / "recipe")
    assert len(list((tmp_path / "recipe").glob("step_*.stablehlo"))) == 2
    finish(tmp_path / "recipe")
    strategies.make_deterministic(config.seed)
    corpus = experiment.load_corpus(config, data_dir)
    model = models.build(config, corpus.vocabulary.size)
    export.round_weights(model)
    optimizer = runs.make_optimizer(config)
    task = modeling.LanguageModeling(model, config, corpus.train, corpus.validation)
    trainer = runs.make_trainer(config, task, optimizer)
    schedule, batches, losses = runs.make_schedule(config), trainer.batches(0), []
    for row in rows(tmp_path / "recipe"):
        state, metrics = task.initial_state(), []
        for _ in range(task.steps_per_epoch):
            step, state = trainer.step(next(batches), state)
            metrics.append(float(step["prediction"]))
        with optimizer.evaluation_weights(model.trainable_variables):
            losses.append(task.evaluate()["loss"])
        schedule.after_epoch(losses, optimizer)
        assert float(row["training"]) == pytest.approx(np.mean(metrics), abs=1e-5)
        assert float(row["validation_trellisnet"]) == pytest.approx(
            losses[-1], abs=1e-5
        )
    arrays = kept(tmp_path / "recipe")
    named = variables.model_variables(model)
    named |= variables.optimizer_variables(optimizer, model)
    for name, variable in named.items():
        np.testing.assert_allclose(
            arrays[f"variable/{name}"], variable, atol=1e-5, err_msg=name
        )


def test_steps_on_examples_are_those_of_the_trainers(tmp_path):
    """In epochs that are parts of a cosine, with averages, the last batch of a pass shorter."""
    values = configs.load("copy_memory")
    values.model.update(units=6, depth=2, kernel_size=2, dilation_rate=(1, 2))
    values.model.update(recurrent_dropout=0.1)
    values.data.update(steps=3, batch_size=8, train=20, validation=6, test=7)
    values.optimizer.update(name="sgd", learning_rate=0.1)
    values.schedule.update(epochs=(1,), average_after=1)  # epochs mean nothing here
    values.training.update(epochs=2, steps=7)
    values.evaluation.update(batch_size=4)
    config = ml_collections.ConfigDict(values)
    export.write(config, None, tmp_path / "recipe")
    finish(tmp_path / "recipe")

    strategies.make_deterministic(config.seed)
    data = sequences.load(config)
    model = sequence_models.build(config, data)
    export.round_weights(model)
    optimizer = runs.make_optimizer(config)
    task = sequence_modeling.SequenceModeling(model, config, data)
    trainer = runs.make_trainer(config, task, optimizer)
    batches, schedule = trainer.batches(0), runs.make_schedule(config)
    for epoch, steps in enumerate((3, 4)):
        row = rows(tmp_path / "recipe")[epoch]
        metrics = [trainer.step(next(batches), ())[0] for _ in range(steps)]
        loss = np.mean([float(each["loss"]) for each in metrics])
        assert float(row["training"]) == pytest.approx(loss, abs=1e-5)
        for split in ("validation", "test"):
            with optimizer.evaluation_weights(model.trainable_variables):
                score = task.score(split)
            for name in ("loss", "accuracy"):
                expected = getattr(score, name)
                assert float(row[f"{split}_{name}"]) == pytest.approx(
                    expected, abs=1e-5
                )
        schedule.after_epoch([1.0] * (epoch + 1), optimizer)
    assert optimizer.averaging
    assert_same(tmp_path / "recipe", model, optimizer)


def test_constant_masks_are_lowered(tmp_path):
    """Those of a Transformer's attention: TensorFlow writes eight truth values in a byte."""
    mask = np.random.default_rng(0).random((5, 13)) < 0.5
    variable = keras.Variable(np.ones(13, "float32"))
    lowered = lowering.Lowering({"weights": variable}, tmp_path)
    lowered.add(
        "masked", lambda x: [tf.where(mask, x * variable, 0.0)], tf.ones([5, 13])
    )
    module = (tmp_path / "masked.stablehlo").read_bytes()
    weights = {"weights": [[13], "float32"]}
    masked = run.compiled(lowered.programs["masked"], weights, module, False)
    (found,), _ = masked([np.ones([5, 13], "float32")], {"weights": variable.numpy()})
    np.testing.assert_array_equal(found, mask)


def test_a_killed_training_goes_on_bit_for_bit(folder, undisturbed, tmp_path):
    path = shutil.copytree(folder, tmp_path / "copy")
    # What is compiled already need not be compiled again.
    shutil.copytree(undisturbed / run.COMPILED, path / run.COMPILED)
    process = program(path, "--save_every=2")
    deadline = time.monotonic() + 200
    while not (path / "state.npz").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert "going on from step" in finish(path)
    expected, found = kept(undisturbed), kept(path)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    timeless = [
        name for name in rows(path)[0] if "seconds" not in name and "bytes" not in name
    ]
    for one, other in zip(rows(path), rows(undisturbed), strict=True):
        assert [one[name] for name in timeless] == [other[name] for name in timeless]


def test_nothing_in_the_folder_names_this_machine(folder):
    for file in folder.iterdir():
        assert str(ROOT).encode() not in file.read_bytes(), file


def test_a_folder_with_files_is_not_written(tmp_path):
    export.check_output(tmp_path / "new")
    export.check_output(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"--output must be a new or an empty folder. Received"
    ):
        export.check_output(tmp_path)


def test_a_task_whose_data_cannot_be_written_is_refused(forks):
    ended = commands.run(forks, "paper", "--task=addition", "--output=folder")
    assert ended.returncode == 2
    assert (
        "--task must have training data that can be written; those of this task are computed "
        "step by step. Received: --task=addition" in ended.stderr
    )


def test_a_recipe_that_the_program_does_not_follow_is_refused(forks):
    flags = ("--preset=small", "--config.training.steps=100")
    flags += ("--config.training.depths=4", "--output=folder")
    ended = commands.run(forks, "paper", "--task=ptb", *flags)
    assert ended.returncode == 2
    assert "--config.training.depths must be (): all steps" in ended.stderr
