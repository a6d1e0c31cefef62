"""What the task of sequences gives the loop: losses, their weight, and scores."""

import dataclasses
import types

import keras
import ml_collections
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from trainers.data.long_memory import Examples
from trainers.data.sequences import SequenceData
from trainers.kinds.measures import Metric
from trainers.sequences import experiment, models
from trainers.sequences.layer import sequence_layer
from trainers.sequences.modeling import SequenceModeling
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.training.experiment import ExamplesExperiment

CLASSES, STEPS = 3, 4
CONFIG = ml_collections.ConfigDict(
    dict(
        task="seq_mnist",
        seed=1,
        data=dict(batch_size=4),
        training=dict(epochs=2, steps=0, epoch_steps=0, depths=()),
        evaluation=dict(batch_size=2),
    )
)


class Linear(keras.Model):
    """Logits [B, T, classes], or those of the last step; in training, half of them."""

    def __init__(self, outputs, every_step=False):
        super().__init__(dtype="float64")
        self.every_step = every_step
        draw = np.random.default_rng(0).normal(size=(1, outputs))
        self.kernel = self.add_weight(
            shape=(1, outputs),
            initializer=lambda *_, **__: tf.constant(draw),
            regularizer=keras.regularizers.L2(0.1),
        )
        self.built = True

    def call(self, sequences, training=False):
        logits = tf.cast(sequences, tf.float64) @ self.kernel
        logits = logits / 2 if training else logits
        return logits if self.every_step else logits[:, -1]


def data_of(targets):
    """Splits of five, three and four sequences with the targets that a function gives them."""
    generator = np.random.default_rng(2)

    def examples(count):
        inputs = generator.integers(0, 9, (count, STEPS, 1)).astype("uint8")
        return Examples(inputs, targets(inputs, generator))

    def normalise(inputs):
        return tf.cast(inputs, tf.float32) - 4

    return SequenceData(examples(5), examples(3), examples(4), normalise, CLASSES)


def labels(inputs, generator):
    return generator.integers(0, CLASSES, len(inputs)).astype("int32")


def symbols(inputs, generator):
    return generator.integers(0, CLASSES, inputs.shape[:2]).astype("int32")


def values(inputs, generator):
    return generator.normal(size=len(inputs))


def cross_entropies(targets, logits):
    log_sums = np.log(np.exp(logits).sum(-1))
    return log_sums - np.take_along_axis(logits, targets[..., None], -1)[..., 0]


def logits_of(model, examples):
    inputs = examples.inputs.astype("float64") - 4
    logits = inputs @ np.asarray(model.kernel)
    return logits if model.every_step else logits[:, -1]


@pytest.mark.parametrize("targets, every_step", [(labels, False), (symbols, True)])
def test_classes(targets, every_step):
    data = data_of(targets)
    model = Linear(CLASSES, every_step)
    task = SequenceModeling(model, CONFIG, data)
    batch = tuple(map(tf.constant, data.train))
    loss, weight, state, metrics = task.loss(batch, ())
    logits = logits_of(model, data.train) / 2
    count = data.train.targets.size
    penalty = 0.1 * np.square(np.asarray(model.kernel)).sum()
    expected = cross_entropies(data.train.targets, logits).sum() + count * penalty
    assert (float(loss), float(weight), state) == (pytest.approx(expected), count, ())
    right = (logits.argmax(-1) == data.train.targets).sum()
    assert float(metrics["accuracy"]) == right
    score = task.score("test")
    logits = logits_of(model, data.test)
    assert score.loss == pytest.approx(
        cross_entropies(data.test.targets, logits).mean()
    )
    assert score.accuracy == (logits.argmax(-1) == data.test.targets).mean()
    assert np.array_equal(score.predictions, logits.argmax(-1))
    assert score.targets == data.test.targets.size
    evaluated = task.score("validation")
    assert task.evaluate() == {"loss": evaluated.loss, "accuracy": evaluated.accuracy}


def test_labels_are_smoothed_in_training_alone():
    """The targets are (1 - s) of the label and s / K of each of the K classes."""
    data, model = data_of(labels), Linear(CLASSES)
    config = CONFIG.copy_and_resolve_references()
    config.training.label_smoothing = smoothing = 0.3
    task = SequenceModeling(model, config, data)
    loss, _, _, metrics = task.loss(tuple(map(tf.constant, data.train)), ())
    logits = logits_of(model, data.train) / 2
    shares = np.full([5, CLASSES], smoothing / CLASSES)
    shares[np.arange(5), data.train.targets] += 1 - smoothing
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    penalty = 0.1 * np.square(np.asarray(model.kernel)).sum()
    assert float(loss) == pytest.approx(-(shares * log_probs).sum() + 5 * penalty)
    right = logits.argmax(-1) == data.train.targets
    assert float(metrics["accuracy"]) == right.sum()
    plain = SequenceModeling(model, CONFIG, data)
    assert task.evaluate() == plain.evaluate()


@pytest.mark.parametrize(
    "task, targets, every_step",
    [
        ("seq_mnist", labels, False),
        ("copy_memory", symbols, True),
        ("adding", values, False),
    ],
)
def test_a_metric_is_the_mean_over_the_targets(monkeypatch, task, targets, every_step):
    def loss(found, targets):
        if targets.dtype.is_integer:
            return -tf.gather(found, targets, batch_dims=targets.shape.rank)
        return tf.square(found - targets)

    metric = Metric("again", loss, decimals=3, unit=" nats")
    known = dataclasses.replace(registry.get(task), metrics=(metric,))
    monkeypatch.setitem(registry.TASKS, task, known)
    data = data_of(targets)
    model = Linear(CLASSES if targets is not values else 1, every_step)
    config = ml_collections.ConfigDict({**CONFIG.to_dict(), "task": task})
    score = SequenceModeling(model, config, data).score("test")
    assert score.metrics == {metric: pytest.approx(score.loss)}
    line = experiment.describe(known.measure, "test", score)
    assert line.endswith(f", again {score.loss:.3f} nats")


def test_answers():
    """An answer is right if all of its symbols are."""
    data = data_of(symbols)
    config = CONFIG.copy_and_resolve_references()
    config.task = "addition"
    model = Linear(CLASSES, every_step=True)
    hits = logits_of(model, data.train).argmax(-1) == data.train.targets
    first = np.where(np.arange(5)[:, None] < 2, True, hits)  # two are right
    predicted = logits_of(model, data.train).argmax(-1).astype("int32")
    targets = np.where(first, predicted, (predicted + 1) % CLASSES).astype("int32")
    examples = Examples(data.train.inputs, targets)
    data = dataclasses.replace(data, train=examples, validation=examples)
    task = SequenceModeling(model, config, data)
    *_, metrics = task.loss(tuple(map(tf.constant, examples)), ())
    whole = first.all(-1).mean()
    assert whole in (0.4, 0.6)
    assert float(metrics["right_answers"]) == pytest.approx(whole * targets.size)
    evaluated = task.evaluate()
    assert evaluated["right_answers"] == pytest.approx(whole)
    assert evaluated["accuracy"] == pytest.approx(first.mean())
    shown = task.display(evaluated)
    assert list(shown) == ["accuracy", "right_answers", "loss"]
    assert shown["right_answers"] == pytest.approx(100 * whole)


def test_only_the_answer_is_asked_for():
    """The dense layer reads the features of the answer's steps alone."""
    sequences = data_of(symbols)
    data = dataclasses.replace(sequences, answer=(1, 3))
    whole = models.WithDense(keras.layers.ReLU(), sequences)
    part = models.WithDense(keras.layers.ReLU(), data)
    part.set_weights(whole.get_weights())
    inputs = sequences.test.inputs.astype("float32")
    assert_array_equal(part(inputs), whole(inputs)[:, 1:3])


def test_values():
    data, model = data_of(values), Linear(1)
    task = SequenceModeling(model, CONFIG.copy_and_resolve_references(), data)
    score = task.score("validation")
    errors = logits_of(model, data.validation)[:, 0] - data.validation.targets
    assert score.loss == pytest.approx(np.square(errors).mean())
    assert (score.accuracy, score.targets, score.predictions.size) == (None, 3, 0)
    assert task.evaluate() == {"loss": score.loss}
    *_, metrics = task.loss(tuple(map(tf.constant, data.train)), ())
    assert metrics == {}


def test_an_epoch_has_each_example_once():
    data = data_of(labels)
    data = dataclasses.replace(
        data,
        train=Examples(
            np.arange(5, dtype="uint8")[:, None, None], np.arange(5, dtype="int32")
        ),
    )
    task = SequenceModeling(Linear(CLASSES), CONFIG, data)
    assert task.steps_per_epoch == 2
    batches = list(task.dataset(0).as_numpy_iterator())
    assert [len(targets) for _, targets in batches] == [4, 1, 4, 1]
    for inputs, targets in batches:
        assert np.array_equal(inputs[:, 0, 0], targets)
    for epoch in (batches[:2], batches[2:]):
        assert sorted(np.concatenate([targets for _, targets in epoch])) == list(
            range(5)
        )
    later = list(task.dataset(3).as_numpy_iterator())
    assert len(later) == 1 and np.array_equal(later[0][1], batches[3][1])


@pytest.mark.parametrize(
    "task, shown",
    [
        ("seq_mnist", {"accuracy": 75.0, "loss": 0.5}),
        ("copy_memory", {"cross_entropy": 0.5, "accuracy": 75.0}),
    ],
)
def test_what_is_shown_begins_with_the_measure(task, shown):
    config = CONFIG.copy_and_resolve_references()
    config.task = task
    modeling = SequenceModeling(Linear(CLASSES), config, data_of(labels))
    displayed = modeling.display({"loss": 0.5, "accuracy": 0.75, "gradient_norm": 1.0})
    assert list(displayed.items()) == list(shown.items())
    assert modeling.unit == {"seq_mnist": "images", "copy_memory": "symbols"}[task]


def test_batches_that_replicas_cannot_share_are_refused():
    class Bound(ExamplesExperiment):
        build = task = need = introduction = describe = numbers = None

    message = "2 replicas cannot share.* 5 .*last batch has 1.*=4"
    with pytest.raises(ValueError, match=message):
        Bound(CONFIG, types.SimpleNamespace(count=5)).check_replicas(2)
    Bound(CONFIG, types.SimpleNamespace(count=6)).check_replicas(2)


@pytest.mark.parametrize("targets, classes", [(labels, "abc"), (symbols, "")])
def test_fewer_levels_train_as_a_network_of_so_many(targets, classes):
    data = dataclasses.replace(data_of(targets), classes=tuple(classes))
    tasks = {}
    for depth in (2, 3):
        config = configs.load("seq_mnist", "small")
        config.model.update(layer="trellis", depth=depth, units=6, output_units=4)
        config.model.dilation_rate = config.model.dilation_rate[:depth]
        tasks[depth] = SequenceModeling(models.build(config, data), config, data)
    tasks[2].model.set_weights(tasks[3].model.get_weights())
    batch = tuple(map(tf.constant, data.train))
    expected = tasks[2].loss(batch, ())[0]
    assert float(tasks[3].loss(batch, (), depth=2)[0]) == float(expected)
    assert float(tasks[3].loss(batch, ())[0]) != float(expected)


@pytest.mark.parametrize(
    "targets, classes", [(labels, ("a", "b", "c")), (values, ()), (symbols, ())]
)
def test_a_model_in_bfloat16_computes_what_it_computes_in_float32(targets, classes):
    data = dataclasses.replace(data_of(targets), classes=classes)
    built = []
    for dtype in ("float32", "mixed_bfloat16"):
        config = configs.load("seq_mnist", "small")
        config.model.update(units=6, output_units=4, dtype=dtype)
        built.append(models.build(config, data))
    whole, half = built
    half.set_weights(whole.get_weights())
    assert sequence_layer(half).compute_dtype == "bfloat16"
    assert {variable.dtype for variable in half.trainable_variables} == {"float32"}
    inputs = data.normalise(data.train.inputs)
    outputs = [np.asarray(tf.cast(each(inputs), "float32")) for each in built]
    assert_allclose(outputs[1], outputs[0], atol=0.05)
