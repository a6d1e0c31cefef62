"""The language-model task: what the training loop and its replicas make of it."""

import json
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisLM
from trainers.language.modeling import LanguageModeling
from trainers.tasks import config as configs
from trainers.training import runs, variables

WINDOW = 12


def test_two_replicas_end_with_the_weights_of_one(forks):
    done = forks.run("-m", "tests.trainers.replicas")
    assert done.returncode == 0, done.stderr
    for one, two in json.loads(done.stdout.splitlines()[-1]).values():
        assert (one["replicas"], two["replicas"]) == (1, 2)
        assert one["steps_per_epoch"] == 6
        assert_allclose(two["loss"], one["loss"], rtol=1e-10)
        for first, second in zip(one["weights"], two["weights"], strict=True):
            assert_allclose(second, first, rtol=1e-8, atol=1e-10)


def test_a_large_lstm_trains_more_than_one_step(forks):
    """TensorFlow rewrites a graph that takes hundreds of MiB; the second step failed."""
    done = forks.run("-m", "tests.trainers.large_lstm")
    assert done.returncode == 0, done.stderr
    assert np.all(np.isfinite(json.loads(done.stdout.splitlines()[-1])))


def _drawn(**optimizer):
    """A trainer on windows of drawn lengths, and its first batches."""
    config = configs.load("text", "small")
    config.seed = 5
    config.data.update(
        batch_size=2, window=WINDOW, horizon=0, history="carried", lengths="drawn"
    )
    config.optimizer.update(name="sgd", weight_decay=0.01, **optimizer)
    config.schedule.average_after = 1
    keras.utils.set_random_seed(1)
    layer = keras.layers.LSTM(3, dtype="float64")
    model = TrellisLM(9, layer, embedding_units=3, dtype="float64")
    ids = np.random.default_rng(0).integers(0, 9, 400).astype(np.int32)
    task = LanguageModeling(model, config, ids, ids[:50])
    trainer = runs.make_trainer(config, task, runs.make_optimizer(config))
    return trainer, trainer.batches(0), task.initial_state()


def test_the_rate_is_proportional_to_the_length_of_a_drawn_window():
    drawn, batches, state = _drawn(learning_rate=3.0)
    plain, _, other = _drawn(learning_rate=3.0)
    plain.usual_steps = None
    lengths = set()
    while len(lengths) < 2:  # each is traced for itself
        ids, targets = next(batches)
        lengths.add(ids.shape[1])
        metrics, state = drawn.step((ids, targets), state)
        plain.optimizer.learning_rate = 3.0 * ids.shape[1] / WINDOW
        expected, other = plain.step((ids, targets), other)
        assert_allclose(metrics["loss"], expected["loss"], rtol=1e-12)
    pairs = zip(drawn.task.model.variables, plain.task.model.variables, strict=True)
    for one, two in pairs:
        assert_allclose(one.numpy(), two.numpy(), rtol=1e-10, atol=1e-14)


def test_calls_of_any_number_of_drawn_windows_end_with_the_same_bits():
    ends = []
    for counts in ((6,), (1, 3, 2)):
        trainer, batches, state = _drawn(learning_rate=3.0)
        trainer.task.loss = mock.Mock(side_effect=trainer.task.loss)
        for count in counts:
            _, state = trainer.steps(batches, state, count)
        ends.append([v.numpy() for v in trainer.task.model.variables])
        if counts == (6,):
            trainer.task.loss.assert_called_once()  # all lengths share a trace
    tf.nest.map_structure(assert_array_equal, *ends)


def test_averaged_steps_on_drawn_windows_go_on_from_their_variables(eagerly):
    """The next step's rate follows from the window before it, as with torch's ASGD."""

    def named(trainer):
        model = trainer.task.model
        return (
            variables.model_variables(model),
            variables.optimizer_variables(trainer.optimizer, model),
        )

    whole, batches, state = _drawn(learning_rate=3.0)
    whole.optimizer.start_averaging()
    _, state = whole.steps(batches, state, 3)
    kept = [variables.arrays(each) for each in named(whole)]
    resumed, _, _ = _drawn(learning_rate=3.0)
    for each, arrays in zip(named(resumed), kept, strict=True):
        variables.assign(each, arrays)
    _, other = resumed.steps(resumed.batches(3), state, 3)
    _, state = whole.steps(batches, state, 3)
    tf.nest.map_structure(assert_array_equal, other, state)
    for one, two in zip(named(resumed), named(whole), strict=True):
        arrays, expected = variables.arrays(one), variables.arrays(two)
        tf.nest.map_structure(assert_array_equal, arrays, expected)
