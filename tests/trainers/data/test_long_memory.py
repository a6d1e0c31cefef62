"""The generated tests of memory: what is asked, what the answer is, and what needs no memory."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trainers.data import long_memory
from trainers.data.sequences import SPLITS
from trainers.tasks import config as configs
from trainers.tasks import registry

COUNTS, SEEDS = st.integers(1, 5), st.integers(0, 2**32)


def load(task, **data):
    config = configs.load(task, "small")
    config.data.update(steps=30, train=40, validation=20, test=10)
    config.data.update(data)
    return registry.get(config.task).load(config)


@given(COUNTS, st.integers(1, 40), SEEDS)
def test_what_comes_first_is_said_at_the_end(count, delay, seed):
    inputs, targets = long_memory.copy_memory(count, delay, np.random.default_rng(seed))
    assert inputs.shape == (count, delay + 20, 1) and inputs.dtype == np.uint8
    assert targets.shape == (count, delay + 20) and targets.dtype == np.int32
    for read, said in zip(inputs[..., 0].tolist(), targets.tolist(), strict=True):
        symbols = read[:10]
        assert set(symbols) <= set(range(1, 9))
        assert read[10:] == [0] * (delay - 1) + [9] * 11
        assert said == [0] * (delay + 10) + symbols


@given(COUNTS, st.integers(2, 40), SEEDS)
def test_the_marked_numbers_are_added(count, steps, seed):
    inputs, targets = long_memory.adding(count, steps, np.random.default_rng(seed))
    assert inputs.shape == (count, steps, 2) and targets.shape == (count,)
    assert inputs.dtype == targets.dtype == np.float32
    for read, said in zip(inputs, targets, strict=True):
        marked = [number for number, mark in read.tolist() if mark]
        assert len(marked) == 2 and set(read[:, 1].tolist()) <= {0.0, 1.0}
        assert said == pytest.approx(sum(marked))
        assert 0 <= read[:, 0].min() and read[:, 0].max() <= 1


def test_every_symbol_and_every_pair_of_steps_is_drawn():
    generator = np.random.default_rng(0)
    symbols = long_memory.copy_memory(2_000, 1, generator).inputs[:, :10]
    share = np.bincount(symbols.ravel(), minlength=9)[1:] / symbols.size
    assert_allclose(share, 1 / 8, atol=0.01)
    marks = long_memory.adding(10_000, 5, generator).inputs[..., 1]
    pairs, counts = np.unique(marks, axis=0, return_counts=True)
    assert len(pairs) == 10
    assert_allclose(counts / len(marks), 1 / 10, atol=0.015)


def test_copying_without_memory_costs_what_is_stated():
    delay = 30
    _, targets = long_memory.copy_memory(2_000, delay, np.random.default_rng(0))
    # Of each step's answer no more is known than how often which class was right there.
    entropies = []
    for step in range(targets.shape[1]):
        share = np.bincount(targets[:, step], minlength=10) / len(targets)
        entropies.append(-sum(p * math.log(p) for p in share if p))
    assert np.mean(entropies) == pytest.approx(
        10 * math.log(8) / (delay + 20), rel=0.01
    )


def test_adding_without_memory_costs_what_is_stated():
    _, targets = long_memory.adding(20_000, 9, np.random.default_rng(0))
    assert np.mean((targets - 1) ** 2) == pytest.approx(1 / 6, rel=0.03)


@pytest.mark.parametrize(
    "task, shapes, outputs",
    [("copy_memory", ((40, 50, 1), (40, 50)), 10), ("adding", ((40, 30, 2), (40,)), 1)],
)
def test_a_task_has_three_splits_that_differ(task, shapes, outputs):
    data = load(task)
    assert (data.train.inputs.shape, data.train.targets.shape) == shapes
    assert len(data.validation.inputs) == 20 and len(data.test.inputs) == 10
    assert data.outputs == outputs and not data.classes and data.permutation is None
    rows = np.concatenate([getattr(data, split).inputs for split in SPLITS])
    assert len(np.unique(rows.reshape(len(rows), -1), axis=0)) == len(rows)
    normal = data.normalise(data.test.inputs)
    assert normal.dtype == "float32" and np.array_equal(normal, data.test.inputs)


@pytest.mark.parametrize("task", ["copy_memory", "adding"])
def test_a_split_is_a_function_of_the_seed_and_its_own_length(task):
    first, longer = load(task).checksums(), load(task, train=41).checksums()
    assert load(task).checksums() == first
    assert {split for split in first if first[split] != longer[split]} == {"train"}
    config = configs.load(task, "small")
    config.data.update(steps=30, train=40, validation=20, test=10)
    config.seed += 1
    other = registry.get(config.task).load(config).checksums()
    assert not set(first.values()) & set(other.values())


def test_what_has_no_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--data_dir has no use for --task=adding"):
        registry.get("adding").load(configs.load("adding", "small"), tmp_path)
