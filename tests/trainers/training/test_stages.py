"""Parts of a run whose steps differ, as those of fewer levels."""

import numpy as np
import pytest

from tests.trainers.training import toy
from trainers.language import modeling, models
from trainers.tasks import config as configs
from trainers.training import loop, runs, schedules, workdir
from trainers.training.schedules import Stages
from trainers.training.trainer import Trainer

STEPS_PER_EPOCH, STEPS = 5, 13
STAGES = ({"penalty": 2.0}, {"penalty": 0.5}, {})


def toy_trainer():
    task = toy.Task(steps_per_epoch=STEPS_PER_EPOCH, dropout=0.3)
    task.stages = Stages(STAGES, costs=(0.5, 0.5, 1.0))
    return toy.Traced(Trainer(task, toy.optimizer_of("adam")))


def values(trainer):
    found = [np.ravel(each.numpy()) for each in toy.variables_of(trainer)]
    return np.concatenate(found)


def fit(trainer, folder):
    with workdir.open_workdir(folder, {}) as opened:
        return loop.fit(
            trainer,
            schedules.Schedule(),
            opened,
            epochs=2,
            steps=STEPS,
            log_every_steps=4,
            checkpoint_every_steps=3,
        )


def test_a_run_takes_each_step_in_its_part_and_goes_on_in_it(tmp_path):
    traced = toy_trainer()
    plain = traced.as_new()
    batches = plain.batches(0)
    for step in range(STEPS):
        if step % STEPS_PER_EPOCH == 0:
            state = plain.task.initial_state()
        _, state = plain.steps(batches, state, 1, step * len(STAGES) // STEPS)
    expected = values(plain)
    whole = traced.as_new()
    assert fit(whole, tmp_path / "whole").finished
    np.testing.assert_array_equal(values(whole), expected)

    stopped = traced.as_new()
    toy.send_at(stopped.task, 5, 15)
    assert not fit(stopped, tmp_path / "stopped").finished
    resumed = traced.as_new()
    result = fit(resumed, tmp_path / "stopped")
    assert result.finished and result.step == STEPS
    np.testing.assert_array_equal(values(resumed), expected)


@pytest.mark.parametrize("stages", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("length", [1, 2, 13, 20, 21])
def test_the_parts_are_equal_and_a_call_ends_with_its_part(stages, length):
    plan = schedules.Plan(1, length, 10**6, 10**6, None, stages * [1.0])
    step, sizes = 0, [0] * stages
    while step < length:
        stage, count = plan.stage(step), plan.until_due(step, length)
        assert plan.stage(step + count - 1) == stage
        sizes[stage] += count
        step += count
    assert step == length and max(sizes) - min(sizes) <= 1


def language_trainer(depth, depths):
    config = configs.load("text", "small")
    config.model.update(
        units=6,
        depth=depth,
        output_units=4,
        embedding_units=4,
        dilation_rate=(1, 2)[:depth],
        dropout=0.2,
        recurrent_dropout=0.2,
        auxiliary_every=1,
        auxiliary_weight=0.3,
    )
    config.data.update(batch_size=2, window=8, horizon=0, history="carried")
    config.training.update(steps=100, depths=depths)
    ids = np.random.default_rng(0).integers(0, 9, 200).astype(np.int32)
    task = modeling.LanguageModeling(models.build(config, 9), config, ids, ids)
    return runs.make_trainer(config, task, runs.make_optimizer(config))


def test_each_part_trains_as_a_network_of_so_many_levels():
    grows = language_trainer(3, (1, 9))
    networks = {depth: language_trainer(depth, ()) for depth in (1, 3)}
    state, batches = grows.task.initial_state(), grows.batches(0)
    for stage, levels in enumerate((1, 3, 3)):
        shallow = networks[levels]
        pairs = zip(toy.variables_of(shallow), toy.variables_of(grows), strict=True)
        for variable, value in pairs:
            variable.assign(value)
        expected, _ = shallow.steps(shallow.batches(stage), state, 1)
        metrics, state = grows.steps(batches, state, 1, stage)
        np.testing.assert_allclose(metrics["loss"], expected["loss"], rtol=1e-6)
        np.testing.assert_allclose(values(grows), values(shallow), atol=1e-6)
