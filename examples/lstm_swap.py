"""A Keras model of text with its `LSTM` swapped for a `TrellisLayer`, on real text.

Both predict the next character of Python's reference text, which comes with Python, and are scored
on text that they have not seen. They have nearly the same number of parameters, and train for the
same time. The LSTM is a little better, as it is on text in general. README.md has a program in
which the trellis network is better.

    python examples/lstm_swap.py    # half a minute on two cores

For your own text, change `windows`, which returns bytes for training and for the test. For answers
of another kind, change the two lines of `learn` that add the embedding and the last layer.
"""

import time
from pydoc_data.topics import topics

import keras
import numpy as np

from keras_trellis import TrellisLayer

STEPS = 64


def windows() -> tuple[np.ndarray, np.ndarray]:
    """Returns characters for training and for the test, each [windows, STEPS + 1]."""
    # Topics repeat each other.
    lines = dict.fromkeys("\n".join(topics.values()).splitlines())
    text = "\n".join(lines).encode("ascii", "ignore")
    characters = np.frombuffer(text, np.uint8)
    count = len(characters) // (STEPS + 1)
    rows = characters[: count * (STEPS + 1)].reshape(count, STEPS + 1)
    seen = count * 9 // 10
    return rows[:seen], rows[seen:]


def baseline() -> float:
    """Returns how often the most frequent character is right."""
    rows, unseen = windows()
    return float(np.mean(unseen == np.bincount(rows.ravel()).argmax()))


class Stopwatch(keras.callbacks.Callback):
    """Ends training after some seconds, counted from the end of the first step, which compiles."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit
        self.seconds = 0.0
        self.start = 0.0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Stops when the time is up."""
        self.start = self.start or time.monotonic()
        self.seconds = time.monotonic() - self.start
        self.model.stop_training = self.seconds > self.limit


def learn(layer: keras.layers.Layer, epochs: int, limit: float = float("inf")) -> float:
    """Trains and scores a model around a recurrent layer; returns for how many seconds."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((None,), dtype="int32")])
    model.add(keras.layers.Embedding(128, 32))
    model.add(layer)
    model.add(keras.layers.Dense(128))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-2), loss, metrics=["accuracy"])
    rows, unseen = windows()
    watch = Stopwatch(limit)
    model.fit(rows[:, :-1], rows[:, 1:], 32, epochs, verbose=0, callbacks=[watch])
    _, accuracy = model.evaluate(unseen[:, :-1], unseen[:, 1:], verbose=0)
    steps = int(model.optimizer.iterations)
    print(f"{type(layer).__name__}, {layer.count_params():,} parameters:")
    print(
        f"{accuracy:.1%} of the characters, after {steps} steps in {watch.seconds:.0f} s"
    )
    assert accuracy > 1.5 * baseline()
    return watch.seconds


def main() -> None:
    """Trains one for an epoch, the other for as long."""
    print(f"baseline: {baseline():.1%}, always the most frequent character")
    trellis = TrellisLayer(88, depth=4, return_sequences=True)
    seconds = learn(trellis, epochs=1)
    learn(keras.layers.LSTM(128, return_sequences=True), epochs=100, limit=seconds)


if __name__ == "__main__":
    main()
