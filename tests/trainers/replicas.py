"""A program: some steps on one logical CPU and on two; prints the weights that each ends with."""

import json

import numpy as np
import tensorflow as tf

from keras_trellis import TrellisLayer, TrellisLM
from trainers.language.modeling import LanguageModeling
from trainers.tasks import config as configs
from trainers.training import runs, strategies
from trainers.training.trainer import Trainer

# More than an epoch of six, the last of whose windows is a shorter one; then a few of full length.
STEPS = {"carried": 7, "zero": 2}


class OfArrays(LanguageModeling):
    """Language modelling whose batches are NumPy's, each made when it is asked for."""

    def dataset(self, first_step):
        """Yields the batches."""
        for batch in super().dataset(first_step):
            yield tuple(part.numpy() for part in batch)


def train(strategy_name, history, kind):
    config = configs.load("text", "small")
    config.data.update(batch_size=4, window=10, history=history)
    config.data.horizon = 0 if history == "carried" else 4
    config.evaluation.batch_size = 2
    ids = np.random.default_rng(0).integers(0, 30, 4 * 57).astype(np.int32)
    if history == "zero":
        ids = ids[: 4 * 39]
    strategy = strategies.get_strategy(strategy_name)
    with strategy.scope():
        model = TrellisLM(
            30,
            TrellisLayer(6, depth=3, output_units=5, dtype="float64"),
            embedding_units=5,
            auxiliary_every=2,
            auxiliary_weight=0.1,
            activation_weight=1.0,
            temporal_weight=1.0,
            dtype="float64",
        )
        optimizer = runs.make_optimizer(config)
    generator = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(generator.normal(0, 0.3, variable.shape))
    task = kind(model, config, ids, ids)
    trainer = Trainer(task, optimizer, clip_norm=0.2, strategy=strategy)
    batches = trainer.batches(0)
    for step in range(STEPS[history]):
        if step % task.steps_per_epoch == 0:
            state = trainer.spread(task.initial_state())
        metrics, state = trainer.step(next(batches), state)
    return {
        "steps_per_epoch": task.steps_per_epoch,
        "replicas": strategy.num_replicas_in_sync,
        "loss": float(metrics["loss"]),
        "weights": [
            variable.numpy().ravel().tolist() for variable in model.trainable_variables
        ],
    }


def main():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    print(
        json.dumps(
            {
                f"{history}, {kind.__name__}": [
                    train(name, history, kind) for name in ("none", "mirrored")
                ]
                for history in STEPS
                for kind in (LanguageModeling, OfArrays)
            }
        )
    )


if __name__ == "__main__":
    main()
