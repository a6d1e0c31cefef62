"""The released pixel model's training steps, taken by the trainer's own task and loop."""

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis import convert
from tests.golden import assert_equal, part
from trainers import optimizers
from trainers.data.long_memory import Examples
from trainers.data.sequences import SequenceData
from trainers.sequences.modeling import SequenceModeling
from trainers.training.trainer import Trainer


def check_pixel_run(arrays, config):
    """Takes a `pixel_*` file's steps and compares all that it recorded.

    Args:
        arrays: The file's arrays.
        config: Its sizes and its recipe.
    """
    model = model_of(arrays, config, "param.")
    batches = [
        (tf.constant(images), tf.constant(labels.astype("int32")))
        for images, labels in zip(
            np.swapaxes(arrays["X"], 2, 3), arrays["Y"], strict=True
        )
    ]
    images, labels = batches[0]
    log_probs = tf.nn.log_softmax(model(images))
    assert_equal(log_probs, arrays["log_probs"], "log_probs")
    task = SequenceModeling(model, *_recipe(images, labels))
    with tf.GradientTape() as tape:
        loss, count, _, _ = task.loss(batches[0], ())
        loss /= count
    gradients = tape.gradient(loss, model.trainable_variables)
    _assert_all_close(gradients, model_of(arrays, config, "grad."))
    optimizer = optimizers.Adam(config["lr"], weight_decay=config["wd"])
    trainer = Trainer(task, optimizer, clip_norm=config["clip"])
    for step, batch in enumerate(batches):
        metrics, _ = trainer.step(batch, ())
        assert_equal(metrics["loss"], arrays["losses"][step], f"loss, step {step}")
        norm = metrics["gradient_norm"]
        assert_equal(norm, arrays["norms"][step], f"norm, step {step}")
    _assert_all_close(model.trainable_variables, model_of(arrays, config, "final."))


def model_of(arrays, config, prefix):
    return convert.classifier_from_torch(
        part(arrays, prefix),
        depth=config["num_layers"],
        dilation_rate=config["dilations"],
        permutation=arrays["order"],
        dtype="float64",
    )


def _recipe(images, labels):
    """The config and the data of a task on these examples."""
    examples = Examples(images.numpy(), labels.numpy())
    data = SequenceData(examples, examples, examples, lambda inputs: inputs, 1)
    config = {
        "task": "seq_cifar10",
        "data": {"batch_size": len(labels)},
        "training": {"depths": ()},
    }
    return ConfigDict(config), data


def _assert_all_close(values, expected):
    for value, other in zip(values, expected.trainable_variables, strict=True):
        assert_equal(value, other.numpy(), other.path)
