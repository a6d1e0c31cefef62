"""Packing of valid steps against a loop over rows."""

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from keras_trellis.core import masks

MASKS = hnp.arrays(
    bool, st.tuples(st.integers(0, 4), st.integers(0, 7)), elements=st.booleans()
)


def draw(mask, channels=2):
    return np.random.default_rng(0).normal(size=(*mask.shape, channels)) + 1.0


def packed_by_hand(x, mask, right=False):
    packed = np.zeros_like(x)
    for row, valid in enumerate(mask):
        first = len(valid) - valid.sum() if right else 0
        packed[row, first : first + valid.sum()] = x[row, valid]
    return packed


@hypothesis.settings(max_examples=30)
@hypothesis.given(MASKS, st.booleans())
def test_pack_moves_valid_steps_to_one_end(mask, right):
    x = draw(mask)
    expected = packed_by_hand(x, mask, right)
    x[~mask] = np.nan
    plan = masks.packing(tf.constant(mask), right=right)
    assert np.array_equal(masks.pack(tf.constant(x), plan), expected)
    assert np.array_equal(plan.valid, expected[..., 0] != 0)
    assert np.array_equal(plan.count, mask.sum(1))


@hypothesis.settings(max_examples=30)
@hypothesis.given(MASKS, st.booleans())
def test_unpack_moves_them_back_and_repeats(mask, right):
    x, before = draw(mask), np.random.default_rng(1).normal(size=(len(mask), 2))
    plan = masks.packing(tf.constant(mask), right=right)
    packed = tf.constant(packed_by_hand(x, mask, right))
    got = masks.unpack(packed, plan, tf.constant(before)).numpy()
    last = before.copy()
    for t in range(mask.shape[1]):
        last = np.where(mask[:, t, None], x[:, t], last)
        assert np.array_equal(got[:, t], last)
    if not right:
        (final,) = masks.last_valid((packed,), plan, (tf.constant(before),))
        assert np.array_equal(final, last)


@pytest.mark.parametrize("steps", [0, 3])
def test_last_valid_without_a_mask(steps):
    x, before = draw(np.ones((2, steps), bool)), np.ones((2, 2))
    expected = x[:, -1] if steps else before
    (final,) = masks.last_valid((tf.constant(x),), None, (tf.constant(before),))
    assert np.array_equal(final, expected)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_masks_of_any_type(dtype):
    mask = np.array([[0, 1, 1, 0]], dtype)
    plan = masks.packing(tf.constant(mask))
    assert np.array_equal(plan.valid, [[True, True, False, False]])
    assert np.array_equal(plan.seen, [[0, 1, 2, 2]])


def test_nan_in_padding_reaches_no_gradient():
    mask = np.array([[True, False, True]])
    x = np.where(mask[..., None], draw(mask), np.nan)
    plan, x = masks.packing(tf.constant(mask)), tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(masks.pack(x, plan) ** 2)
    expected = np.where(mask[..., None], 2 * x, 0.0)
    assert np.array_equal(tape.gradient(loss, x), expected)


def test_sizes_may_be_unknown():
    specs = [
        tf.TensorSpec([None, None], tf.bool),
        tf.TensorSpec([None, None, 2], tf.float64),
    ]
    pack = tf.function(
        lambda m, x: masks.pack(x, masks.packing(m)), input_signature=specs
    )
    for shape in [(2, 3), (1, 0)]:
        mask = np.random.default_rng(0).random(shape) < 0.5
        assert np.array_equal(pack(mask, draw(mask)), packed_by_hand(draw(mask), mask))
