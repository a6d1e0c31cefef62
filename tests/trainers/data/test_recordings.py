"""Windows of recordings: together they have every step, and the scaling is of training alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.refusals import refuses
from trainers.data import recordings
from trainers.data.recordings import Facts, Recording


def recording(name, steps, seed=0, every_step=False, gaps=0.0):
    generator = np.random.default_rng(seed)
    values = generator.normal(3, 2, (steps, 2))
    values[generator.random(steps) < gaps, 1] = np.nan
    target = generator.integers(0, 3, steps if every_step else ()).astype("int32")
    return Recording(name, recordings.with_gaps(values), np.array(target))


LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=4)


@given(LENGTHS, st.integers(1, 12), st.integers(1, 15), st.booleans())
def test_windows_are_parts_of_their_recordings_and_have_every_step(
    lengths, window, hop, every_step
):
    hop = min(hop, window)
    whole = [
        recording(f"{n}", length, n, every_step) for n, length in enumerate(lengths)
    ]
    (inputs, targets), owners = recordings.cut(whole, window, hop)
    seen = [set() for _ in whole]
    for values, target, owner in zip(inputs, targets, owners, strict=True):
        steps = whole[owner].values
        count = min(len(steps), window)
        (start,) = [
            start
            for start in range(len(steps) - count + 1)
            if np.array_equal(steps[start : start + count], values[:count])
        ]
        assert np.isnan(values[count:]).all()
        expected = whole[owner].target
        if every_step:
            assert (target[count:] == recordings.NO_CLASS).all()
            expected, target = expected[start : start + count], target[:count]
        assert np.array_equal(target, expected)
        seen[owner] |= set(range(start, start + count))
    assert [len(steps) for steps in seen] == lengths


def test_a_window_without_a_whole_step_or_a_target_is_left_out():
    silent = Recording("gaps", np.full((8, 2), np.nan, "float32"), np.array(1, "int32"))
    values = np.ones((8, 2), "float32")
    half = np.array([0] * 4 + [recordings.NO_CLASS] * 4, "int32")
    assert recordings.cut(
        [silent, silent._replace(values=values)], 4, 4
    ).owners.tolist() == [1, 1]
    (inputs, _), _ = recordings.cut([Recording("half", values, half)], 4, 4)
    assert len(inputs) == 1


@given(st.integers(0, 2**32))
def test_the_scaling_is_that_of_the_whole_training_steps(seed):
    train = [recording("a", 20, seed, gaps=0.3), recording("b", 9, seed + 1)]
    parts = {"train": train}
    facts = []
    for shift in (0.0, 100.0):
        others = [recording("c", 12, seed + 2)]
        parts |= dict.fromkeys(
            ("validation", "test"),
            [others[0]._replace(values=others[0].values + shift)],
        )
        data = recordings.assemble(parts, "ab", window=5, hop=None, classes="xyz")
        facts.append(data.facts)
    assert facts[0] == facts[1]
    steps = np.concatenate([each.values for each in train])
    steps = steps[~np.isnan(steps).any(1)].astype("float64")
    assert_allclose(facts[0].mean, steps.mean(0))
    assert_allclose(facts[0].deviation, steps.std(0))
    assert facts[0].gaps
    assert (facts[0].window, facts[0].outputs, facts[0].every_step) == (5, 3, False)


def assembled(values, target=0):
    """Returns the facts of three recordings of some values, in each split the same."""
    target = np.asarray(target, "float32" if isinstance(target, float) else "int32")
    steps = np.stack([np.arange(3), np.array(values, "float64")], 1)
    one = Recording("q", recordings.with_gaps(steps), target)
    train = [one, one._replace(target=-target)]
    parts = {"train": train, "validation": train, "test": train}
    classes = () if target.dtype == "float32" else "xyz"
    made = recordings.assemble(parts, "ab", window=None, hop=None, classes=classes)
    return made.facts


@pytest.mark.parametrize("scale", [1e-8, 1e-30, 1e20, 3e38])
def test_a_channel_that_float32_cannot_scale_is_refused(scale):
    with refuses("the channel 'b' must have a standard dev"):
        assembled([0.0, scale, -scale])


@given(st.floats(-3e38, 3e38), st.integers(1, 9))
def test_a_channel_that_stays_the_same_is_not_scaled(value, steps):
    # The mean of equal numbers is not always that number.
    values = np.full((steps, 1), value, "float32")
    assert recordings.moments([values])[1] == (1.0,)


@pytest.mark.parametrize("scale", [1e-31, 1e31, 3e38])
def test_numbers_that_float32_cannot_scale_are_refused(scale):
    with refuses("numbers to predict must have a standard dev"):
        assembled([0.0, 1.0, 2.0], scale)
    assert assembled([0.0, 1.0, 2.0], 1e-9).scale == pytest.approx(1e-9)


@given(st.floats(-3e38, 3e38).map(np.float32), st.integers(1, 9))
def test_numbers_that_are_all_the_same_are_not_scaled(value, count):
    numbers = recording("s", 4)._replace(target=np.array(value))
    train = [numbers] * count
    parts = dict.fromkeys(("train", "validation", "test"), train)
    facts = recordings.assemble(parts, "ab", window=None, hop=None).facts
    assert facts.scale == 1.0 and facts.offset == (pytest.approx(value),)


def test_facts_survive_json():
    facts = Facts(("a", "b"), (0.1, 2.0), (1.0, 3.0), 2, True, 8, False, ("x", "y"))
    as_json = {
        k: list(v) if isinstance(v, tuple) else v for k, v in facts._asdict().items()
    }
    assert Facts.from_json(as_json) == facts
