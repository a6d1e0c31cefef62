"""Tests of shuffled batches."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from trainers.data import datasets, shuffling


def _numbered(count):
    """Images that hold their own number, and so do their labels."""
    labels = np.arange(count, dtype=np.int32)
    return np.repeat(labels.astype(np.uint8), 6).reshape(count, 3, 2), labels


def _batches(count, batch_size, seed, **arguments):
    dataset = datasets.batches_dataset(
        *_numbered(count), batch_size=batch_size, seed=seed, **arguments
    )
    batches = list(dataset.as_numpy_iterator())
    assert int(dataset.cardinality()) == len(batches)
    return batches


@settings(max_examples=15)
@given(
    count=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    epochs=st.integers(1, 3),
    data=st.data(),
)
def test_each_epoch_has_every_image_once_and_goes_on_from_any_step(
    count, seed, epochs, data
):
    batch_size = data.draw(st.integers(1, count))
    steps = shuffling.steps_per_epoch(count, batch_size)
    whole = _batches(count, batch_size, seed, epochs=epochs)
    assert len(whole) == epochs * steps
    for epoch in range(epochs):
        labels = [labels for _, labels in whole[epoch * steps : (epoch + 1) * steps]]
        assert [len(batch) for batch in labels[:-1]] == [batch_size] * (steps - 1)
        assert_array_equal(np.sort(np.concatenate(labels)), np.arange(count))
    first = data.draw(st.integers(0, len(whole)))
    tail = _batches(count, batch_size, seed, epochs=epochs, first_step=first)
    assert len(tail) == len(whole) - first
    for (pixels, labels), (same_pixels, same_labels) in zip(
        tail, whole[first:], strict=True
    ):
        assert_array_equal(labels, same_labels)
        assert_array_equal(pixels, same_pixels)
        assert_array_equal(pixels, _numbered(count)[0][labels])
        assert (pixels.dtype, labels.dtype) == (np.uint8, np.int32)


def test_every_order_is_as_likely():
    """The chi-squared of 6,000 orders of three images, at a probability of 0.001."""
    orders = [tuple(labels) for _, labels in _batches(3, 3, seed=0, epochs=6000)]
    counts = collections.Counter(orders)
    assert len(counts) == 6
    assert sum((number - 1000) ** 2 / 1000 for number in counts.values()) < 20.5


def test_orders_differ_from_epoch_to_epoch_and_from_seed_to_seed():
    orders = [
        tuple(labels)
        for seed in (0, 1)
        for _, labels in _batches(50, 50, seed, epochs=3)
    ]
    assert len(set(orders)) == 6


def test_sequences_of_values_with_a_target_each_step():
    inputs = np.random.default_rng(0).random((5, 3, 2), np.float32)
    targets = np.arange(15, dtype=np.int32).reshape(5, 3)
    dataset = datasets.batches_dataset(inputs, targets, batch_size=5, seed=0)
    ((shuffled, answers),) = dataset.as_numpy_iterator()
    assert (shuffled.dtype, answers.dtype) == (np.float32, np.int32)
    chosen = answers[:, 0] // 3
    assert_array_equal(shuffled, inputs[chosen])
    assert_array_equal(answers, targets[chosen])


@pytest.mark.parametrize("batch_size, static", [(4, 4), (5, None), (12, 12)])
def test_shapes_are_static_where_the_batches_have_one(batch_size, static):
    dataset = datasets.batches_dataset(*_numbered(12), batch_size=batch_size, seed=0)
    shapes = [spec.shape.as_list() for spec in dataset.element_spec]
    assert shapes == [[static, 3, 2], [static]]
