"""The unigram model beside which a run's score stands."""

import hypothesis
import numpy as np
from hypothesis import strategies as st

from trainers.language import unigram


@hypothesis.given(data=st.data(), types=st.integers(1, 6), block=st.integers(1, 9))
def test_it_is_the_add_one_estimate(data, types, block):
    ids = st.lists(st.integers(0, types - 1), min_size=1, max_size=20)
    train, targets = data.draw(ids), data.draw(ids)
    before, unigram._BLOCK = unigram._BLOCK, block
    try:
        found = unigram.nats(np.array(train), np.array(targets), types)
    finally:
        unigram._BLOCK = before
    probabilities = [(train.count(each) + 1) / (len(train) + types) for each in targets]
    np.testing.assert_allclose(found, -np.mean(np.log(probabilities)))
    # Of all types together the probability is 1.
    every = [
        unigram.nats(np.array(train), np.array([each]), types) for each in range(types)
    ]
    np.testing.assert_allclose(np.exp(-np.array(every)).sum(), 1)
