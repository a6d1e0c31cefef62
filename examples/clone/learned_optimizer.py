"""A network learns to optimize small quadratics, and is then compared with tuned SGD and Adam.

Meta-training differentiates the losses of an optimization by the weights of the optimizer. On draws
that it has not seen, the optimizer then goes below SGD with the best of ten rates. At the end it
trains a Keras model, as any other optimizer.

    python examples/clone/learned_optimizer.py    # half a minute, no data

It needs a clone, which has `trainers`. For your own problems, change `QUADRATICS`, those that
the optimizer learns on, and `fit`, which trains a Keras model by it.
"""

import keras
import numpy as np
import tensorflow as tf

from trainers.learned_optimizers import core, rules
from trainers.learned_optimizers.optimizees import Quadratics
from trainers.learned_optimizers.optimizer import RecurrentOptimizer

QUADRATICS = Quadratics(5)
DRAWS, STEPS, UNROLL = 64, 40, 20
EPISODES = 200
RATES = [10 ** (-exponent / 3) for exponent in range(10)]


def meta_train(network: core.UpdateNetwork) -> None:
    """Trains the network on drawn quadratics, in truncations of `UNROLL` steps."""
    adam = keras.optimizers.Adam(3e-3)
    variables = network.trainable_variables
    adam.build(variables)

    @tf.function
    def truncation(seed: tf.Tensor, theta: tf.Tensor, states: core.States) -> tuple:
        draw = QUADRATICS.draw(seed, DRAWS)
        with tf.GradientTape() as tape:
            carried = core.unroll(network, draw.loss, theta, states, UNROLL)
            losses, theta, states = carried
            meta_loss = tf.reduce_sum(losses) / DRAWS
        adam.apply(tape.gradient(meta_loss, [v.value for v in variables]), variables)
        return theta, states

    for episode in range(EPISODES):
        seed = tf.constant([0, episode])
        theta = QUADRATICS.draw(seed, DRAWS).theta
        states = network.initial_states(tf.size(theta))
        for _ in range(STEPS // UNROLL):
            theta, states = truncation(seed, theta, states)


def median_loss(rule: rules.Rule, seed: int, steps: int = STEPS) -> float:
    """Returns the median loss after the last step, on quadratics of a seed."""
    draw = QUADRATICS.draw(tf.constant([1, seed]), 100)
    last = tf.function(rules.losses)(rule, draw, steps)[-1]
    return float(np.median(np.nan_to_num(last, nan=np.inf)))


def tuned(name: str) -> tuple[float, float]:
    """Returns the best rate of an optimizer on draws of their own, and its loss on others."""
    make = rules.TUNED[name]
    rate = min(RATES, key=lambda rate: median_loss(make(tf.constant(rate)), seed=0))
    return rate, median_loss(make(tf.constant(rate)), seed=1)


def fit(network: core.UpdateNetwork) -> tuple[float, float]:
    """Trains a Keras model by the network; returns its first and last loss."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(64, 4)).astype("float32")
    targets = inputs @ generator.normal(size=(4, 1))
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(RecurrentOptimizer(network), "mse")
    losses = model.fit(inputs, targets, batch_size=64, epochs=40, verbose=0)
    return losses.history["loss"][0], losses.history["loss"][-1]


def main() -> None:
    """Trains, compares, and uses the optimizer."""
    keras.utils.set_random_seed(0)
    network = core.UpdateNetwork([keras.layers.LSTMCell(16)], projection=8)
    meta_train(network)
    learned = median_loss(rules.learned(network), seed=1)
    print(f"after {STEPS} steps, median loss of 100 new quadratics:")
    print(f"  learned {learned:.3f}")
    for name in ("SGD", "Adam"):
        rate, loss = tuned(name)
        print(f"  {name} {loss:.3f} (best of ten rates: {rate:.2g})")
        assert name != "SGD" or learned < loss
    first, last = fit(network)
    print(f"it trains a Keras model: loss {first:.3f} -> {last:.3f}")
    assert last < 0.1 * first


if __name__ == "__main__":
    main()
