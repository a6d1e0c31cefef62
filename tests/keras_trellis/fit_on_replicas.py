"""A program: `fit` on one logical CPU and on two; prints the weights that each ends with."""

import contextlib
import json

import keras
import numpy as np
import tensorflow as tf

from keras_trellis import TrellisLayer


def fit(scope):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 5, 3)), rng.normal(size=(24, 5, 6))
    with scope:
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((None, 3)), TrellisLayer(6, 3, return_sequences=True)]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return [value.ravel().tolist() for value in model.get_weights()]


def main():
    keras.config.set_floatx("float64")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    weights = fit(contextlib.nullcontext()), fit(strategy.scope())
    print(json.dumps({"replicas": strategy.num_replicas_in_sync, "weights": weights}))


if __name__ == "__main__":
    main()
