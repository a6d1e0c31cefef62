# %% [markdown]
# # Find anomalies
#
# A network that has learned what usually comes next is surprised by what is unusual. Here it
# learns five exercises of six people from their smartwatches: at each sample it predicts what the
# watch will read half a second later. Other people then do these exercises, and two that the
# network has never seen. The surprise at each sample is the score.
#
# The data come with the package `seglearn`, and are read by this repository's trainers: run it in
# a clone, `python -m docs.learn.anomalies`.

# %%
import os
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from matplotlib import pyplot
from sklearn.metrics import average_precision_score

from keras_trellis import StreamedModel, TrellisLayer
from trainers.tasks import config
from trainers.time_series import tasks

keras.utils.set_random_seed(0)
budget = float(os.environ.get("SECONDS", 12))  # of the processor
AHEAD = 25  # samples, 50 a second

# %% [markdown]
# ## The data
#
# Windows of ten seconds, six channels. No training window has an anomaly in it: the labels serve
# only to score.

# %%
data = tasks.ANOMALY.load(config.load("anomaly", "small"), None)
print(*data.notes, data.summary, sep="\n")
windows, _ = data.train
mean, deviation = np.array(data.facts.mean), np.array(data.facts.deviation)

# %% [markdown]
# ## The model
#
# It returns the mean and the log-variance of each channel. Its loss is the negative
# log-likelihood of what the watch then reads. It has an output at every step, where a trellis
# network is slower than an LSTM.


# %%
def surprise(values, predicted):
    """The negative log-likelihood of samples `[B, T, 6]`, in nats a channel: `[B, T - AHEAD]`."""
    center, log_variance = ops.split(predicted[:, :-AHEAD], 2, axis=-1)
    error = (values[:, AHEAD:] - center) ** 2 * ops.exp(-log_variance)
    return 0.5 * ops.mean(error + log_variance + np.log(2 * np.pi), axis=-1)


def scaled(values):
    return np.asarray((values - mean) / deviation, "float32")


trellis = TrellisLayer(
    32, depth=3, kernel_size=8, dilation_rate=(1, 8, 64), return_sequences=True
)
model = keras.Sequential([keras.Input((None, 6), name="x"), trellis, layers.Dense(12)])
model.compile(
    keras.optimizers.Adam(3e-3, clipnorm=1.0),
    loss=lambda values, predicted: ops.mean(surprise(values, predicted), axis=-1),
)
inputs = scaled(windows)
end = time.process_time() + budget
while time.process_time() < end:
    batch = np.random.choice(len(inputs), 16)
    model.train_on_batch(inputs[batch], inputs[batch])
print(
    f"{model.count_params():,} parameters, {int(model.optimizer.iterations)} training steps"
)

# %% [markdown]
# ## New people
#
# The score of a recording is its mean surprise. Average precision is 1 if all anomalies have
# higher scores than everything else, and the share of anomalies if the score says nothing. The
# baseline is the energy of the signal. The four new people are the task's validation and test
# people: no choice is made on them here.

# %%
recordings = [*data.recordings["validation"], *data.recordings["test"]]
strange = [int(recording.target) for recording in recordings]
scores, energies = [], []
for recording in recordings:
    values = scaled(recording.values)[None]
    scores.append(ops.convert_to_numpy(surprise(values, model(values)))[0])
    energies.append(np.mean(values**2))
surprises = [np.mean(steps) for steps in scores]
half = len(strange) // 2
for people in slice(half), slice(half, None), slice(None):
    found = average_precision_score(strange[people], surprises[people])
    baseline = average_precision_score(strange[people], energies[people])
    share = np.mean(strange[people])
    print(
        f"average precision {found:.2f}, energy {baseline:.2f}, no information {share:.2f}"
    )

# %% [markdown]
# The lines are of the first two people, of the next two, and of all four. Two people say little
# about a detector: [Recordings](../howto/recordings.md) has the other people and exercises.
#
# ## As the samples arrive
#
# After each sample the streamed model returns what one pass returns at that step. A detector on a
# device keeps its last predictions, and compares them with what comes half a second later.

# %%
streamed = StreamedModel(model)
step, cache = tf.function(streamed.stream), streamed.get_initial_cache(1)
normal, anomaly = strange.index(0), strange.index(1)
values, predictions = scaled(recordings[anomaly].values), []
for sample in values:
    predicted, cache = step(sample[None, None], cache)
    predictions.append(predicted[0, 0])
online = surprise(values[None], ops.stack(predictions)[None])[0]
np.testing.assert_allclose(online, scores[anomaly], rtol=1e-3, atol=1e-3)

figure, rows = pyplot.subplots(2, sharey=True, layout="constrained")
for row, index, name in zip(rows, (normal, anomaly), ("known", "unknown"), strict=True):
    row.plot(np.arange(len(scores[index])) / 50, scores[index], linewidth=0.8)
    row.set(title=f"{name} exercise, {recordings[index].name}", ylabel="surprise")
rows[1].set_xlabel("seconds")
pyplot.show()

# %% [markdown]
# For your own signals replace `windows`, `recordings` and the scaling. Take the threshold from
# normal data, as a high quantile of their scores, never from the anomalies that it is to find.
