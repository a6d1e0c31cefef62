"""Scores averaged weights beside the last ones, for docs/notes/series.md.

    python -m docs.studies.averaged_weights --folds=0,1,2

A run trains the network of a preset of `watch` in `fit`, with Keras's Adam and its moving average
of the weights, along a cosine and at a constant rate. The lines, in CSV, have the accuracies by
window and by recording that the last weights and the averages of the same run reach.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import app, flags

from trainers.studies import budget
from trainers.tasks import config as configs
from trainers.time_series import models
from trainers.time_series.objectives import Classes
from trainers.time_series.tasks import WATCH

FLAGS = flags.FLAGS
flags.DEFINE_list("folds", ["0", "1", "2"], "The folds, each with its number as seed.")
flags.DEFINE_string("preset", "small", "The preset.")
flags.DEFINE_integer("steps", None, "Training steps. Default: those of the preset.")
flags.DEFINE_float("momentum", 0.99, "The share of the average that a step leaves.")
flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")


def train(config: Any, data: Any, cosine: bool) -> Iterator[tuple[str, keras.Model]]:
    """Trains a model; yields it with its last weights, and then with their average."""
    keras.utils.set_random_seed(config.seed)
    model, last = models.build(config, data.facts), []
    steps, rate = config.training.steps, config.optimizer.learning_rate
    model.compile(
        keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(rate, steps) if cosine else rate,
            global_clipnorm=config.optimizer.clip_norm,
            use_ema=True,
            ema_momentum=FLAGS.momentum,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=config.training.jit_compile,
    )
    batches = tf.data.Dataset.from_tensor_slices(tuple(data.train)).shuffle(data.count)
    batches = batches.repeat().batch(config.data.batch_size)
    # `fit` ends with the averages in the variables.
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: last.append(model.get_weights())
    )
    model.fit(
        batches, steps_per_epoch=steps, verbose=0, shuffle=False, callbacks=[keep]
    )
    averages = model.get_weights()
    for name, weights in (("last", last[0]), ("averaged", averages)):
        model.set_weights(weights)
        yield name, model


def main(argv: Sequence[str]) -> None:
    """Prints two lines for each run."""
    del argv
    budget.fix_threads(1)
    print("fold,rate,weights,split,windows,recordings")
    for fold in map(int, FLAGS.folds):
        config: Any = configs.load("watch", FLAGS.preset)
        config.data.fold = config.seed = fold
        config.training.steps = FLAGS.steps or config.training.steps
        data = WATCH.load(config, FLAGS.data_dir)
        for cosine in (True, False):
            for weights, model in train(config, data, cosine):
                runner = models.Runner(model, data.facts, config.evaluation.batch_size)
                for split in ("validation", "test"):
                    score = Classes(config, data).window_score(split, runner.windows)
                    shares = ",".join(f"{v:.2f}" for v in score.values.values())
                    rate = "cosine" if cosine else "constant"
                    print(f"{fold},{rate},{weights},{split},{shares}", flush=True)


if __name__ == "__main__":
    app.run(main)
