"""A `TrellisLayer` reads a wave, and another one continues it.

The first hands its state to the second: `return_state` there, `initial_state` here. Besides, the
second reads only how far it is.

    python examples/encoder_decoder.py    # a quarter of a minute on two cores
"""

from typing import Any

import keras
import numpy as np

from keras_trellis import TrellisLayer

PAST, FUTURE = 30, 20


def draw_waves(count: int, seed: int) -> np.ndarray:
    """Returns waves of many lengths and phases, [count, PAST + FUTURE, 1]."""
    rng = np.random.default_rng(seed)
    pace = rng.uniform(0.15, 0.5, (count, 1))
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    return np.sin(pace * np.arange(PAST + FUTURE) + phase)[..., None]


def build() -> keras.Model:
    """Returns a model: (past, position of each future step) -> future."""
    past = keras.Input((None, 1))
    steps = keras.Input((None, 1))
    reach: dict[str, Any] = {"depth": 3, "kernel_size": 4, "dilation_rate": 3}
    reader = TrellisLayer(32, return_state=True, **reach)
    writer = TrellisLayer(32, return_sequences=True, **reach)
    _, *state = reader(past)
    features = writer(steps, initial_state=state)
    outputs = keras.layers.Dense(1)(features)
    return keras.Model([past, steps], outputs)


def inputs(waves: np.ndarray) -> list[np.ndarray]:
    """Returns the inputs of the model for waves."""
    position = np.linspace(0, 1, FUTURE)[:, None]
    return [waves[:, :PAST], np.tile(position, (len(waves), 1, 1))]


def main() -> None:
    """Trains on waves and continues others."""
    keras.utils.set_random_seed(0)
    waves = draw_waves(3000, seed=0)
    others = draw_waves(500, seed=1)
    model = build()
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    model.fit(inputs(waves), waves[:, PAST:], batch_size=64, epochs=4, verbose=0)
    error = model.evaluate(inputs(others), others[:, PAST:], verbose=0)
    of_zeros = np.mean(others[:, PAST:] ** 2)
    print(f"mean squared error {error:.3f}; of zeros {of_zeros:.3f}")
    assert error < 0.1


if __name__ == "__main__":
    main()
