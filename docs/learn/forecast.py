# %% [markdown]
# # Forecast a series
#
# Carbon dioxide over Mauna Loa, 2,284 weeks since 1958, is a trend with a wave on it. We forecast
# the next 13 weeks by a network, by last year's change, and by a linear regression. **The network
# loses to the regression here**, and the notebook shows how to find that out.
#
# The data come with the package `statsmodels`, and are read by this repository's trainers: run it
# in a clone, `python -m docs.learn.forecast`.

# %%
import os
import time

import keras
import numpy as np
from matplotlib import pyplot
from sklearn.linear_model import Ridge

from keras_trellis import TrellisLayer
from trainers.data import co2

keras.utils.set_random_seed(0)
budget = float(os.environ.get("SECONDS", 10))  # of the processor, for each training
AHEAD, YEAR = 13, 52

# %% [markdown]
# ## The data
#
# 59 weeks are missing. A gap is filled with the value before it: a forecast must not see the
# future. The last nine years are for the test, the seven before them for validation, the others
# for training. A forecast belongs to a split only if all of its weeks do.

# %%
series = co2.read()
values = co2.filled(series.values)
print(f"{len(values):,} weeks, {np.isnan(series.values).sum()} missing")
weeks = np.arange(2 * YEAR, len(values) - AHEAD)  # that a forecast can be made in
later = co2.later(values, values, AHEAD)[weeks]  # what to forecast
test = len(values) - 9 * YEAR
validation = test - 7 * YEAR
splits = {
    "train": weeks + AHEAD < validation,
    "validation": (weeks >= validation) & (weeks + AHEAD < test),
    "test": weeks >= test,
}

figure, axes = pyplot.subplots(figsize=(7, 2.5), layout="constrained")
axes.plot(series.dates, series.values, linewidth=0.7)
axes.set(ylabel="ppm", title="carbon dioxide over Mauna Loa")
pyplot.show()

# %% [markdown]
# ## What has to be beaten
#
# The naive forecast repeats last year's change. The regression predicts each of the next weeks by
# the last 104, relative to this one.


# %%
def score(name, forecasts):
    print(f"{name}, root mean square error in ppm:")
    for split, chosen in splits.items():
        error = np.sqrt(np.mean((forecasts[chosen] - later[chosen]) ** 2))
        print(f"  {split} {error:.3f}")


naive = [values[t + 1 - YEAR : t + 1 - YEAR + AHEAD] - values[t - YEAR] for t in weeks]
score("last year's change", np.array(naive))
lags = np.array([values[t] - values[t - 2 * YEAR : t] for t in weeks])
linear = Ridge(1.0).fit(lags[splits["train"]], later[splits["train"]])
score("ridge regression", linear.predict(lags))

# %% [markdown]
# ## Networks
#
# Both read two numbers a week, the change over a week and over a year, for 104 weeks. They have
# about the same number of parameters and the same CPU time.

# %%
changes = np.nan_to_num(co2.changes(values))
changes /= changes.std(0)
windows = np.array([changes[t - 2 * YEAR : t + 1] for t in weeks])
scale = later[splits["train"]].std()


def train(layer):
    model = keras.Sequential(
        [keras.Input([2 * YEAR + 1, 2]), layer, keras.layers.Dense(AHEAD)]
    )
    model.compile(keras.optimizers.Adam(2e-3), "mse")
    chosen, held, best = splits["train"], splits["validation"], (np.inf, None)
    data = windows[chosen], later[chosen] / scale
    end = time.process_time() + budget
    while time.process_time() < end:  # the validation years choose the epoch
        model.fit(*data, batch_size=32, verbose=0)
        loss = model.evaluate(windows[held], later[held] / scale, 364, verbose=0)
        best = min(best, (loss, model.get_weights()), key=lambda pair: pair[0])
    model.set_weights(best[1])
    forecasts = model.predict(windows, batch_size=256, verbose=0) * scale
    score(f"{layer.name}, {model.count_params():,} parameters", forecasts)
    return forecasts


trellis = train(
    TrellisLayer(24, depth=5, kernel_size=3, dilation_rate=(1, 3, 9, 27, 81))
)
_ = train(keras.layers.LSTM(41))

# %% [markdown]
# ## A picture, and what is lost
#
# A year of forecasts, each made when the one before it ended.

# %%
figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
begin = np.flatnonzero(splits["test"])[100]
for color, label, forecasts in (
    ("C0", "trellis network", trellis),
    ("C1", "regression", linear.predict(lags)),
):
    for index in range(begin, begin + YEAR, AHEAD):
        ahead = slice(weeks[index] + 1, weeks[index] + 1 + AHEAD)
        level = values[weeks[index]] + forecasts[index]
        axes.plot(series.dates[ahead], level, color, label=label)
        label = None
year = slice(weeks[begin], weeks[begin] + YEAR + 1)
axes.plot(series.dates[year], series.values[year], "k.", markersize=3, label="measured")
axes.set(ylabel="ppm")
axes.legend()
pyplot.show()

# %% [markdown]
# A trend and a wave leave little for a network to find: the regression has the smallest error in
# the test years, and trains in a millisecond. A network pays with many channels, many series, or
# effects that are not linear. Always print the naive forecast and a regression too.
#
# `python -m trainers.series --task=forecast` makes the same comparison from the command line, and
# `--task=csv_numbers` trains on your own tables ([your own recordings](../howto/recordings.md)).
