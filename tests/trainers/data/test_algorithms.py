"""Addition and memorization: what is asked, what is right, and that each example comes once."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.data import algorithms
from trainers.tasks import config as configs
from trainers.tasks import registry

DIGITS = "-0123456789"
SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=20, deadline=None)


def texts(algorithm, written, symbols):
    """The inputs and the outputs as published, a text for each row."""
    length = written.inputs.shape[1]
    begin, end = algorithm.answer
    for asked, said in zip(*(each.numpy() for each in written), strict=True):
        answer = "".join(symbols[each] for each in said)
        output = "-" * begin + answer + "-" * (length - end)
        yield "".join(symbols[each] for each in asked), output


def test_the_layout_is_the_published_one():
    added = algorithms.addition(4)
    pair = (tf.constant([each - 1000], "int64") for each in (2545, 9542))
    expected = [("--2545-9542-------", "-----------12087--")]
    assert list(texts(added, added.write(*pair), DIGITS)) == expected
    symbols = "-" + "".join(sorted(set("hiworld")))
    first, second = (
        [symbols.index(each) - 1 for each in part] for part in ("hiwo", "rld")
    )
    repeated = algorithms.memorization(7, len(symbols))
    numbers = (
        tf.constant([np.polyval(each, len(symbols) - 1)], "int64")
        for each in (first, second)
    )
    expected = [("-hiworld----------", "--------hiworld---")]
    assert list(texts(repeated, repeated.write(*numbers), symbols)) == expected


@few
@given(st.integers(1, 18), SEEDS, st.integers(0, 2**40))
def test_the_answer_is_the_sum(digits, seed, place):
    algorithm = algorithms.addition(digits)
    places = [(place + each) % algorithm.examples for each in range(4)]
    written = algorithm.at(tf.constant(places, "int64"), seed)
    assert written.inputs.shape == (4, 3 * digits + 6)
    for asked, said in texts(algorithm, written, DIGITS):
        first, second = asked.strip("-").split("-")
        assert len(first) == len(second) == digits and "0" not in (first[0], second[0])
        begin, end = algorithm.answer
        assert said[:begin].strip("-") == said[end:].strip("-") == ""
        assert said[begin:end].rstrip("-") == str(int(first) + int(second))
        # The answer follows the last digit at once.
        assert asked[begin - 1].isdigit() and set(asked[begin:]) == {"-"}


@few
@given(st.integers(1, 20), SEEDS)
def test_the_answer_is_what_was_read(symbols, seed):
    algorithm = algorithms.memorization(symbols, 65)
    inputs, answers = algorithm.at(tf.range(min(4, 64**symbols), dtype="int64"), seed)
    begin, end = algorithm.answer
    assert inputs.shape[1] == 2 * symbols + 4 and (begin, end) == (
        1 + symbols,
        1 + 2 * symbols,
    )
    np.testing.assert_array_equal(inputs[:, 1:begin], answers)
    assert not np.any(inputs[:, begin:]) and not np.any(inputs[:, 0])
    assert answers.numpy().min() >= 1 and answers.numpy().max() <= 64


def test_the_order_has_each_example_once():
    orders = set()
    for algorithm in (algorithms.addition(2), algorithms.memorization(5, 5)):
        for seed in (0, 7, 2**32 - 1):
            places = tf.range(algorithm.examples, dtype="int64")
            pairs = [each.numpy().tolist() for each in algorithm.pairs(places, seed)]
            found = list(zip(*pairs, strict=True))
            assert len(set(found)) == algorithm.examples
            assert {max(each) + 1 for each in pairs} <= set(algorithm.sizes)
            orders.add(tuple(found[:50]))
    assert len(orders) == 6


def hashed(number, key):
    """The mixing of SplitMix64, on integers of 64 bits with a sign."""

    def signed(value):
        return (value + 2**63) % 2**64 - 2**63

    mixed = signed((number + key) * -0x61C8864680B583EB)
    for distance in (30, 27, 31):
        mixed = signed((mixed ^ mixed >> distance) * -0x40A7B892E31B1A47)
    return mixed >> 1


@few
@given(st.data(), SEEDS)
def test_the_order_of_a_seed_stays(data, seed):
    """A run that goes on by another release reads the same examples."""
    algorithm = data.draw(
        st.sampled_from([algorithms.addition(3), algorithms.memorization(4, 9)])
    )
    place = data.draw(st.integers(0, algorithm.examples - 1))
    sizes = algorithm.sizes
    pair = [place % sizes[0], place // sizes[0]]
    for turn in range(4):
        at = turn % 2
        pair[at] = (pair[at] + hashed(pair[1 - at], 4 * seed + turn)) % sizes[at]
    found = algorithm.pairs(tf.constant([place], "int64"), seed)
    assert [int(each[0]) for each in found] == pair


def test_each_symbol_is_drawn_as_often_in_each_place():
    for algorithm, symbols in (
        (algorithms.addition(15), 10),
        (algorithms.memorization(20, 65), 64),
    ):
        inputs, _ = algorithm.at(tf.range(100, 20_100, dtype="int64"), 3)
        for place in (4, 9, algorithm.answer[0] - 1):
            counts = np.bincount(inputs.numpy()[:, place], minlength=symbols + 1)[1:]
            spread = counts.std() / np.sqrt(20_000 / symbols)
            assert 0.5 < spread < 1.5  # it is 1 for independent draws


def load(**fields):
    config = configs.load("addition", "small")
    config.seed = fields.pop("seed", 5)
    config.training.epochs = fields.pop("epochs", 3)
    config.data.update(digits=1, batch_size=5, train=20, validation=10, test=11)
    config.data.update(fields)
    return registry.get(config.task).load(config)


def pairs_of(inputs):
    """The two numbers of one digit of each row."""
    asked = np.asarray(inputs).argmax(-1)
    return [(row[2], row[4]) for row in asked.tolist()]


def test_no_example_comes_twice_and_none_that_is_held_out():
    data = load()
    batches = list(data.batches(5, 5, epochs=3, first_step=0))
    held_out = pairs_of(data.validation.inputs) + pairs_of(data.test.inputs)
    read = sum((pairs_of(inputs) for inputs, _ in batches), [])
    assert len(batches) == 12 and len(set(held_out + read)) == 10 + 11 + 60 == 81
    assert data.count == 20 and "20 new training sequences" in data.summary
    (inputs, answers), *others = data.batches(5, 5, epochs=3, first_step=10)
    assert len(others) == 1 and pairs_of(inputs) == pairs_of(batches[10][0])
    assert inputs.dtype == "uint8" and inputs.shape == (5, 9, 11)
    assert answers.dtype == "int32" and answers.shape == (5, 2)
    other = load(seed=6)
    assert pairs_of(other.test.inputs) != pairs_of(data.test.inputs)
    assert other.checksums() != data.checksums() == load(train=15).checksums()


@pytest.mark.parametrize(
    "task, fields, message",
    [
        (
            "addition",
            dict(digits=1, train=100),
            "sees each example once, and there are 81. Received: 200 that are held out",
        ),
        (
            "memorization",
            dict(symbols=40, kinds=65),
            r"must be below 2\*\*62. Received: config.data.kinds=65, config.data.symbols=40",
        ),
    ],
)
def test_examples_that_cannot_be_are_refused(task, fields, message):
    config = configs.load(task, "paper")
    config.data.update(fields)
    with pytest.raises(ValueError, match=message):
        registry.get(config.task).load(config)
