# %% [markdown]
# # Your first trellis layer
#
# One of three parts of a machine knocks. From 1,000 readings of the vibration a model is to tell
# which. We train a Keras `LSTM`, swap it for a `TrellisLayer`, look at what changed, and stream the
# trained model. It takes a minute and needs the library and matplotlib: `python first_layer.py`.

# %%
import os
import time

import keras
import numpy as np
from matplotlib import pyplot

from keras_trellis import StreamedModel, TrellisLayer

keras.utils.set_random_seed(1)
budget = float(os.environ.get("SECONDS", 12))  # CPU seconds of each training

# %% [markdown]
# ## The data
#
# We simulate them. A part knocks at every seventh, ninth or eleventh reading, in noise.


# %%
def vibrations(count):
    part = np.random.randint(3, size=count)
    period = np.array([7, 9, 11])[part, None]  # readings from knock to knock
    knocks = (np.arange(1000) + np.random.randint(period)) % period == 0
    return (knocks + np.random.normal(0, 0.7, knocks.shape))[..., None], part


PARTS = "fan", "gear", "bearing"
signals, parts = vibrations(4000)
new_signals, new_parts = vibrations(1000)

figure, rows = pyplot.subplots(3, sharex=True, sharey=True, layout="constrained")
for part, row in enumerate(rows):
    row.plot(signals[parts == part][0, :200, 0], linewidth=0.8)
    row.set_title(PARTS[part], fontsize=9)
rows[-1].set_xlabel("readings")
pyplot.show()

# %% [markdown]
# ## The swap
#
# The two models differ in one layer. Both layers have 2,912 parameters, and each is trained for
# the same CPU time, at the learning rate that [was best for it](../results/long_series.md).


# %%
def train(layer, rate):
    model = keras.Sequential([keras.Input([1000, 1]), layer])
    model.add(keras.layers.Dense(3, activation="softmax"))
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    end = time.process_time() + budget
    while time.process_time() < end:
        batch = np.random.choice(len(signals), 32)
        model.train_on_batch(signals[batch], parts[batch])
    _, accuracy = model.evaluate(new_signals, new_parts, 250, verbose=0)
    steps = int(model.optimizer.iterations)
    print(
        f"{layer.name}: {layer.count_params():,} parameters, {steps} training steps, ",
        end="",
    )
    print(f"right for {accuracy:.1%} of 1,000 new series")
    return model


train(keras.layers.LSTM(26), rate=0.001)
trellis = TrellisLayer(8, depth=3, kernel_size=10, dilation_rate=[1, 10, 100])
model = train(trellis, rate=0.01)

# %% [markdown]
# The LSTM computes one reading after the other, so it takes few training steps in this time. The
# trellis network computes a whole level at once. Its three levels share one kernel:
#
# - `kernel_size=10` taps, `dilation_rate` apart: one level combines neighbouring readings, the next
#   every tenth, the last every hundredth;
# - together they reach as far back as `receptive_field` says;
# - a level computes only the steps that the last output depends on.

# %%
print(f"The last output depends on the last {trellis.receptive_field:,} readings.")

# %% [markdown]
# ## Streaming
#
# `StreamedModel` runs the same weights one chunk after the other. A cache holds what it needs of
# the past. After each chunk its answer is the model's answer to all readings so far.

# %%
streamed = StreamedModel(model)
cache = streamed.get_initial_cache(1)
answers = []
for begin in range(0, 1000, 50):
    answer, cache = streamed.stream(new_signals[:1, begin : begin + 50], cache)
    answers.append(keras.ops.convert_to_numpy(answer[0]))
whole = model.predict(new_signals[:1], verbose=0)[0]
np.testing.assert_allclose(answers[-1], whole, atol=1e-5)

figure, axes = pyplot.subplots(layout="constrained")
axes.stackplot(np.arange(50, 1001, 50), np.transpose(answers), labels=PARTS)
axes.set(xlabel="readings", ylabel="probability", xlim=(50, 1000), ylim=(0, 1))
axes.set_title(f"the part that knocks: {PARTS[new_parts[0]]}")
axes.legend(loc="lower right")
pyplot.show()

# %% [markdown]
# ## With your own data
#
# Replace `vibrations` by arrays `[series, steps, channels]` and their classes. Choose
# `kernel_size` and `dilation_rate` so that `receptive_field` covers what matters. If your series
# have one length and one answer, try [strided convolutions](../results/long_series.md) too. A
# trellis network has more: [an answer after each reading](watch.py), any length, and states. [Which
# layer?](../which_layer.md) has the other cases.
