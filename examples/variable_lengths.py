"""Sequences of many lengths: masked padding, reading from both sides, callbacks.

The model reads the words of a character's Unicode name and predicts whether it is a letter, a mark,
a number, a punctuation or a symbol. Python has the names and the answers.

    python examples/variable_lengths.py    # a quarter of a minute on two cores
"""

import tempfile
import unicodedata
import zlib
from pathlib import Path

import keras
import numpy as np

from keras_trellis import TrellisLayer

KINDS = "LMNPS"
WORDS = 1000


def named_characters() -> tuple[np.ndarray, np.ndarray]:
    """Returns the words of names, padded with zeros, [characters, longest], and their kinds."""
    names: list[list[int]] = []
    kinds: list[int] = []
    for character in map(chr, range(0x1000)):
        name = unicodedata.name(character, "")
        kind = unicodedata.category(character)[0]
        if name and kind in KINDS:
            words = name.encode().split()
            names.append([1 + zlib.crc32(word) % WORDS for word in words])
            kinds.append(KINDS.index(kind))
    padded = keras.utils.pad_sequences(names, padding="post")
    order = np.random.default_rng(0).permutation(len(names))
    return padded[order], np.array(kinds)[order]


def main() -> None:
    """Trains, and scores the model of the best epoch on names that it has not seen."""
    keras.utils.set_random_seed(0)
    names, kinds = named_characters()
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(WORDS + 1, 32, mask_zero=True),
            keras.layers.Bidirectional(TrellisLayer(32, depth=6, dropout=0.1)),
            keras.layers.Dense(len(KINDS), activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(5e-3),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    with tempfile.TemporaryDirectory() as folder:
        best = Path(folder, "best.keras")
        callbacks = [
            keras.callbacks.EarlyStopping("val_accuracy", patience=1),
            keras.callbacks.ModelCheckpoint(best, "val_accuracy", save_best_only=True),
        ]
        model.fit(
            names[500:],
            kinds[500:],
            validation_split=0.1,
            epochs=4,
            callbacks=callbacks,
            verbose=0,
        )
        model = keras.models.load_model(best)
    _, accuracy = model.evaluate(names[:500], kinds[:500], verbose=0)
    print(
        f"{accuracy:.1%} of 500 names, {np.mean(kinds[:500] == 0):.1%} of them letters"
    )
    assert accuracy > 0.85


if __name__ == "__main__":
    main()
