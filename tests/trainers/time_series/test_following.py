"""A recording that is followed: each answer is that of all samples so far."""

import keras
import numpy as np

from keras_trellis import StreamedModel, TrellisLayer
from trainers.data.recordings import Facts, Recording
from trainers.time_series import following


def test_answers_are_those_of_the_samples_so_far():
    model = keras.Sequential(
        [
            keras.Input((None, 2)),
            keras.layers.Conv1D(4, 3, strides=2, padding="causal"),
            TrellisLayer(4, depth=4),
            keras.layers.Dense(3, "softmax"),
        ]
    )
    samples = np.random.default_rng(0).normal(size=(9, 2)).astype("float32")
    probabilities, seconds = following.answers(StreamedModel(model), samples)
    assert probabilities.shape == (4, 3) and seconds > 0
    for number, answer in enumerate(probabilities, 1):
        expected = model(samples[None, : 2 * number])[0]
        np.testing.assert_allclose(answer, expected, atol=1e-6)
    facts = Facts(("a", "b"), (0, 0), (1, 1), 3, False, 8, False, ("x", "y", "z"))
    recording = Recording("r", samples, np.array(1))
    above, below = following.drawn(samples, probabilities, 2, recording, facts).axes
    assert len(above.lines) == 2 and len(below.lines) == 3
    assert below.lines[1].get_linewidth() > below.lines[0].get_linewidth()
    np.testing.assert_array_equal(below.lines[0].get_xdata(), [2, 4, 6, 8])
