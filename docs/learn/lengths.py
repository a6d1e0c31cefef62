# %% [markdown]
# # Classify text of many lengths
#
# Every character of Unicode has a name, such as *LATIN SMALL LETTER A WITH GRAVE*. From the words
# of a name, mostly three to six, a model is to tell whether the character is a letter, a mark, a
# number, punctuation or a symbol. Names are padded to one length, and masks keep the padding out.
# Python has the names and the answers; this needs the library and matplotlib: `python
# lengths.py`.

# %%
import tempfile
import unicodedata
import zlib
from pathlib import Path

import keras
import numpy as np
from matplotlib import pyplot

from keras_trellis import TrellisLayer

keras.utils.set_random_seed(0)
KINDS = {"L": "letter", "M": "mark", "N": "number", "P": "punctuation", "S": "symbol"}
WORDS = 1000  # ids of words, by a checksum; 0 is padding

# %% [markdown]
# ## The data

# %%
names, kinds = [], []
for character in map(chr, range(0x1000)):
    name, kind = unicodedata.name(character, ""), unicodedata.category(character)[0]
    if name and kind in KINDS:
        names.append([1 + zlib.crc32(word.encode()) % WORDS for word in name.split()])
        kinds.append(list(KINDS).index(kind))
lengths = [len(name) for name in names]
names = keras.utils.pad_sequences(names, padding="post")
order = np.random.default_rng(0).permutation(len(names))
names, kinds = names[order], np.array(kinds)[order]
(new_names, new_kinds), (names, kinds) = (
    (names[:500], kinds[:500]),
    (names[500:], kinds[500:]),
)

figure, axes = pyplot.subplots(figsize=(6, 2), layout="constrained")
axes.hist(lengths, bins=np.arange(0.5, max(lengths) + 1))
axes.set(xlabel="words in a name", ylabel="names")
pyplot.show()

# %% [markdown]
# ## The model
#
# `Embedding(mask_zero=True)` makes the mask, and the layer uses it as an LSTM does: a padded step
# changes no state, and without `return_sequences` the output is the one after the last word.
# `Bidirectional` reads names from both ends.


# %%
def train(layer, folder):
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(WORDS + 1, 32, mask_zero=True),
            keras.layers.Bidirectional(layer),
            keras.layers.Dense(len(KINDS), activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adam(5e-3)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    best = Path(folder, f"{layer.name}.keras")
    callbacks = [
        keras.callbacks.EarlyStopping("val_accuracy", patience=1),
        keras.callbacks.ModelCheckpoint(best, "val_accuracy", save_best_only=True),
    ]
    data = dict(x=names, y=kinds, validation_split=0.1)
    model.fit(**data, epochs=4, callbacks=callbacks, verbose=0)
    model = keras.models.load_model(best)
    _, accuracy = model.evaluate(new_names, new_kinds, verbose=0)
    print(
        f"{layer.name}: {model.count_params():,} parameters, {accuracy:.1%} of 500 new names"
    )
    return model


with tempfile.TemporaryDirectory() as folder:
    layer = TrellisLayer(32, depth=6, dilation_rate=[1, 2, 4], dropout=0.1)
    model = train(layer, folder)
    train(keras.layers.LSTM(49, dropout=0.1), folder)
guess = np.bincount(kinds).max() / len(kinds)
print(f"The most frequent kind is right for {guess:.1%}.")

# %% [markdown]
# Callbacks, `Bidirectional`, saving and loading work as with Keras's own layers. On short
# sequences a trellis network is not ahead: take whichever layer you like.
#
# ## What a mask does
#
# Padding on the left moves the words and changes no prediction.

# %%
rolled = np.array([np.roll(row, np.count_nonzero(row == 0)) for row in new_names])
same = np.allclose(
    model.predict(rolled, verbose=0), model.predict(new_names, verbose=0), atol=1e-5
)
print("Padding on the left gives the same predictions:", same)

# %% [markdown]
# For your own text replace `names` and `kinds`. For lengths of hundreds of steps see [Your first
# trellis layer](first_layer.py); for a text as long as it happens to be, a [language
# model](language_model.py).
