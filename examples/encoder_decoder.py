"""A `TrellisLayer` reads a wave, and another one goes on with it.

What the first hands to the second is its state: `return_state` there, `initial_state` here. All
that the second reads besides is how far it is.

    python examples/encoder_decoder.py    # a quarter of a minute on two cores
"""

import keras
import numpy as np

from keras_trellis import TrellisLayer

PAST, FUTURE = 30, 20


def draw_waves(count: int, seed: int) -> np.ndarray:
    """Returns waves of many lengths and phases, [count, PAST + FUTURE, 1]."""
    rng = np.random.default_rng(seed)
    pace, phase = rng.uniform(0.15, 0.5, (count, 1)), rng.uniform(0, 2 * np.pi, (count, 1))
    return np.sin(pace * np.arange(PAST + FUTURE) + phase)[..., None]


def build() -> keras.Model:
    """Returns a model (what has been, how far the steps to come are) -> what comes."""
    past, steps = keras.Input((None, 1)), keras.Input((None, 1))
    reader = TrellisLayer(32, depth=3, kernel_size=4, dilation_rate=3, return_state=True)
    writer = TrellisLayer(32, depth=3, kernel_size=4, dilation_rate=3, return_sequences=True)
    _, *state = reader(past)
    outputs = keras.layers.Dense(1)(writer(steps, initial_state=state))
    return keras.Model([past, steps], outputs)


def inputs(waves: np.ndarray) -> list[np.ndarray]:
    """Returns what the model reads of waves."""
    return [waves[:, :PAST], np.tile(np.linspace(0, 1, FUTURE)[:, None], (len(waves), 1, 1))]


def main() -> None:
    """Trains on waves and goes on with others."""
    keras.utils.set_random_seed(0)
    waves, others = draw_waves(3000, seed=0), draw_waves(500, seed=1)
    model = build()
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    model.fit(inputs(waves), waves[:, PAST:], batch_size=64, epochs=4, verbose=0)
    error = model.evaluate(inputs(others), others[:, PAST:], verbose=0)
    print(f"mean squared error {error:.3f}; of zeros {np.mean(others[:, PAST:] ** 2):.3f}")
    assert error < 0.1


if __name__ == "__main__":
    main()
