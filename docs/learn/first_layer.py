# %% [markdown]
# # Your first trellis layer
#
# A shaft turns, and its bearing may be damaged. From one second of its vibration, 1,000 readings,
# a model is to tell whether the bearing is sound, or which of its rings is damaged. We train a
# Keras `LSTM`, swap it for a `TrellisLayer`, look at what changed, and run the trained model
# reading by reading. It takes a minute and needs the library alone: `python first_layer.py`.

# %%
import os
import time

import keras
import numpy as np
from matplotlib import pyplot

from keras_trellis import StreamedModel, TrellisLayer

keras.utils.set_random_seed(1)
budget = float(os.environ.get("SECONDS", 12))  # of the processor, for each training

# %% [markdown]
# ## The data
#
# We simulate them, so that we know what is in them. A damaged ring knocks a few times a turn;
# each knock rings for some milliseconds; noise hides most of it.


# %%
def vibrations(count, seed):
    rng = np.random.default_rng(seed)
    fault = rng.integers(3, size=count)  # 0: sound, 1: outer ring, 2: inner ring
    speed = rng.uniform(20, 30, (count, 1))  # turns a second
    turns = speed * np.arange(1000) / 1000 + rng.random((count, 1))
    knocks = np.array([1, 3.58, 5.42])[fault, None]  # a turn
    since = (knocks * turns + rng.random((count, 1))) % 1 / (knocks * speed)  # seconds
    ringing = np.exp(-since / 0.005) * np.sin(2 * np.pi * 220 * since)
    signal = np.sin(2 * np.pi * turns) + ringing * (fault > 0)[:, None]
    return (signal + rng.normal(0, 0.5, signal.shape))[..., None], fault


CLASSES = "sound", "outer ring", "inner ring"
signals, faults = vibrations(4000, seed=1)
new_signals, new_faults = vibrations(1000, seed=2)

figure, rows = pyplot.subplots(3, sharex=True, sharey=True, layout="constrained")
for fault, row in enumerate(rows):
    row.plot(signals[faults == fault][0, :250, 0], linewidth=0.8)
    row.set_title(CLASSES[fault], fontsize=9)
rows[-1].set_xlabel("milliseconds")
pyplot.show()

# %% [markdown]
# ## The swap
#
# The two models differ in one layer. Both layers have 2,912 parameters, and each is trained for
# as much processor time, at the learning rate that was best for it on other series.


# %%
def train(layer, rate):
    model = keras.Sequential([keras.Input([1000, 1]), layer])
    model.add(keras.layers.Dense(3, activation="softmax"))
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    end = time.process_time() + budget
    while time.process_time() < end:
        batch = np.random.choice(len(signals), 32)
        model.train_on_batch(signals[batch], faults[batch])
    _, accuracy = model.evaluate(new_signals, new_faults, 250, verbose=0)
    steps = int(model.optimizer.iterations)
    print(
        f"{layer.name}: {layer.count_params():,} parameters, {steps} training steps, ",
        end="",
    )
    print(f"right for {accuracy:.1%} of 1,000 new series")
    return model


train(keras.layers.LSTM(26), rate=0.001)
trellis = TrellisLayer(8, depth=3, kernel_size=10, dilation_rate=[1, 10, 100])
model = train(trellis, rate=0.03)

# %% [markdown]
# The LSTM reads one reading after the other, 1,000 times a step; in this time it takes few
# training steps, and has to carry what it has heard over all of them. The trellis network
# computes a whole level at once. Here it has three levels, which share one kernel:
#
# - `kernel_size=10` taps, `dilation_rate` apart: one level combines neighbouring readings, the next
#   one every tenth, the last one every hundredth;
# - together they reach as far back as `receptive_field` says;
# - since only the last output is asked for, a level computes only the steps that it depends on.

# %%
print(f"The last output depends on the last {trellis.receptive_field:,} readings.")

# %% [markdown]
# ## Reading by reading
#
# `StreamedModel` runs the same weights one chunk after the other. What it needs of the past is in
# a cache; after each chunk its answer is the one that the whole model gives to all readings so
# far.

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
axes.stackplot(np.arange(50, 1001, 50), np.transpose(answers), labels=CLASSES)
axes.set(
    xlabel="milliseconds heard", ylabel="probability", xlim=(50, 1000), ylim=(0, 1)
)
axes.set_title(f"the bearing: {CLASSES[new_faults[0]]}")
axes.legend(loc="lower right")
pyplot.show()

# %% [markdown]
# ## With your own data
#
# Replace `vibrations` by arrays `[series, steps, channels]` and their classes. Choose
# `kernel_size` and `dilation_rate` so that `receptive_field` is at least as long as what matters.
# If your series have one length and one answer, try strided convolutions too: on this task they
# are right for 96 to 98 %. The layer pays where you also want [streaming](watch.py), masks or
# states, and where an LSTM is too slow to learn; [Which layer?](../which_layer.md) has the other
# cases.
