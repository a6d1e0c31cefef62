"""A `TrellisLayer` reads a long log, and another one writes the word that the log began with.

The decoder is trained on whole words, and then writes a letter a call. It begins from the encoder's
state, `get_initial_cache(batch_size, initial_state=...)`, and goes on by `stream`, which computes
exactly what it was trained to. Do not hand its returned states on from letter to letter, as an
LSTM's: a state of a `TrellisLayer` is not all of its past. `RecurrentLayer` gives an LSTM the same
methods, so that the same program runs with it.

    python examples/encoder_decoder.py    # half a minute on two cores

For your own data, change `draw_logs`, which returns the sequences to read and those to write, as
integers, and the constants above it. The encoder's dilations have to cover the sequences that it
reads: `keras_trellis.depth_for` returns the depth.
"""

import keras
import numpy as np
import tensorflow as tf

from keras_trellis import RecurrentLayer, TrellisLayer

LETTERS = 8  # of which words are made
NOISE = 2  # the other characters, of which the rest of a log is made
START = LETTERS + NOISE  # what the decoder reads before the first letter
WORD, LOG = 4, 60  # the characters of a word and of a log


def draw_logs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns logs `[count, LOG]`, and the words `[count, WORD]` that they begin with."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, LETTERS, (count, WORD))
    rest = rng.integers(LETTERS, LETTERS + NOISE, (count, LOG - WORD))
    return np.concatenate([words, rest], axis=1), words


class EncoderDecoder(keras.Model):
    """Writes a word after reading a log: an encoder's states begin a decoder."""

    def __init__(self, encoder: keras.layers.Layer, decoder: keras.layers.Layer):
        super().__init__()
        self.embedding = keras.layers.Embedding(START + 1, 16)
        self.encoder = encoder
        self.decoder = decoder
        self.dense = keras.layers.Dense(LETTERS)

    def read(self, logs: tf.Tensor) -> list[tf.Tensor]:
        """Returns the encoder's states after logs `[B, LOG]`."""
        _, *states = self.encoder(self.embedding(logs))
        return states

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Returns the logits of all letters at once.

        Args:
            inputs: logs `[B, LOG]`, and the letter before each of the word, `[B, WORD]`.
        """
        logs, before = inputs
        outputs = self.decoder(self.embedding(before), initial_state=self.read(logs))
        return self.dense(outputs)

    def write(self, logs: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Returns words that it writes letter by letter, and their logits."""
        cache = self.decoder.get_initial_cache(len(logs), initial_state=self.read(logs))
        letters = np.full(len(logs), START)
        written, logits = [], []
        for _ in range(WORD):
            step = self.embedding(letters[:, None])  # [B, 1, channels]
            outputs, cache = self.decoder.stream(step, cache)
            logits.append(self.dense(outputs)[:, 0])
            letters = np.argmax(logits[-1], axis=-1)
            written.append(letters)
        return np.stack(written, axis=1), np.stack(logits, axis=1)


def before(words: np.ndarray) -> np.ndarray:
    """Returns the letter before each letter of words."""
    return np.pad(words[:, :-1], [(0, 0), (1, 0)], constant_values=START)


def trellis() -> EncoderDecoder:
    """Returns a model of trellis networks."""
    dilations = [1, 2, 4, 8, 16, 32]  # six levels see 64 steps, and so the whole log
    encoder = TrellisLayer(
        32, 6, dilation_rate=dilations, unit_forget_bias=True, return_state=True
    )
    decoder = TrellisLayer(
        32, 4, dilation_rate=[1, 2], unit_forget_bias=True, return_sequences=True
    )
    return EncoderDecoder(encoder, decoder)


def lstm() -> EncoderDecoder:
    """Returns a model of LSTMs with about as many parameters."""
    encoder = keras.layers.LSTM(46, return_state=True)
    decoder = RecurrentLayer(keras.layers.LSTM(46), return_sequences=True)
    return EncoderDecoder(encoder, decoder)


def accuracy(model: EncoderDecoder, epochs: int) -> tuple[float, float]:
    """Trains a model; returns its accuracy on other logs in one pass, and letter by letter."""
    logs, words = draw_logs(2000, seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss)
    model.fit((logs, before(words)), words, batch_size=64, epochs=epochs, verbose=0)
    logs, words = draw_logs(500, seed=1)
    written, logits = model.write(logs)
    # All at once, each after the letters that it wrote.
    whole = model((logs, before(written)))
    np.testing.assert_allclose(logits, whole, atol=1e-4)
    in_one_pass = np.mean(np.argmax(whole, axis=-1) == words)
    return float(in_one_pass), float(np.mean(written == words))


def main() -> None:
    """Trains both models, the LSTM for more epochs, which are shorter; lets them write."""
    print(f"accuracy of letters; chance is {1 / LETTERS}")
    for name, make, epochs in (("TrellisLayer", trellis, 5), ("LSTM", lstm, 7)):
        keras.utils.set_random_seed(0)
        model = make()
        in_one_pass, written = accuracy(model, epochs)
        print(
            f"{name}, {model.count_params()} parameters: "
            f"in one pass {in_one_pass:.3f}, letter by letter {written:.3f}"
        )
        assert in_one_pass == written
        assert written > 0.5 or name == "LSTM"


if __name__ == "__main__":
    main()
