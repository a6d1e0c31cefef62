"""Prints the losses of an LSTM whose graph takes hundreds of MiB, with deterministic kernels."""

import json

import numpy as np

from trainers.language import models
from trainers.language.modeling import LanguageModeling
from trainers.tasks import config as configs
from trainers.training import runs, strategies

WORDS, ROWS, WINDOW = 10_000, 32, 64


def main() -> None:
    """Trains for one step, then for two in one graph."""
    config = configs.load("text", "small")
    config.model.update(layer="lstm", layers=3, units=32, embedding_units=16)
    config.model.update(output_units=16, dropout=0.4, recurrent_dropout=0.1)
    config.data.update(batch_size=ROWS, window=WINDOW, horizon=0, history="carried")
    strategies.make_deterministic(config.seed)
    ids = (np.arange(ROWS * (2 * WINDOW + 1)) % WORDS).astype("int32")
    model = models.build(config, WORDS)
    task = LanguageModeling(model, config, ids, ids[:2000])
    trainer = runs.make_trainer(config, task, runs.make_optimizer(config))
    losses: list[float] = []
    for count in (1, 2):
        state = task.initial_state()
        metrics, _ = trainer.steps(trainer.batches(0), state, count)
        losses += metrics["loss"].numpy().tolist()
    print(json.dumps(losses))


if __name__ == "__main__":
    main()
