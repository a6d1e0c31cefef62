"""Trains `ptb` or `ptb_char` for some processor seconds, for docs/notes/language_models.md.

    python -m docs.studies.ptb_small DATA_DIR small 100 optimizer.learning_rate=0.004
    python -m docs.studies.ptb_small DATA_DIR ptb_char/small 100 model.depth=4

The arguments are the folder of the Penn Treebank, a preset, processor seconds, and changed fields.
It trains by the step of `trainers.lm`, on one core. The rate warms up over 3 % of the time and
falls to 2 % by a cosine that ends with it. Neither the first step, which compiles, nor the
validation at the end counts as time. It prints steps, tokens and validation nats a token by both
protocols, on the first 20,000 tokens.
"""

import math
import os
import sys
import time

os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1")
os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="-1")

# TensorFlow reads the environment when it is imported.
from docs.studies import running
from trainers.language import modeling, models
from trainers.language.corpora import load_corpus
from trainers.tasks import config as configs
from trainers.training import runs, strategies

VALIDATION, WARM_UP, LEAST_RATE = 20_000, 0.03, 0.02


def rate(share: float) -> float:
    """Returns the learning rate, as a share of the largest one, after a share of the time."""
    if share < WARM_UP:
        return max(share / WARM_UP, LEAST_RATE)
    falling = min((share - WARM_UP) / (1 - WARM_UP), 1)
    return LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * falling)) / 2


def main(data_dir: str, preset: str, seconds: float, *changes: str) -> None:
    """Trains and prints one trial."""
    task_name, _, name = preset.rpartition("/")
    config = configs.load(task_name or "ptb", name)
    config.update_from_flattened_dict(running.changes(changes))
    # The rate below is that of the whole time, and all levels train throughout.
    config.training.update(epochs=1_000, steps=0, depths=())
    strategies.make_deterministic(config.seed)
    corpus = load_corpus(config, data_dir)
    model = models.build(config, corpus.vocabulary.size)
    task = modeling.LanguageModeling(model, config, corpus.train, corpus.validation)
    optimizer = runs.make_optimizer(config)
    trainer = runs.make_trainer(config, task, optimizer)
    batches, state = trainer.batches(0), task.initial_state()
    step, tokens, used = 0, 0, 0.0
    while used < seconds:
        optimizer.learning_rate = config.optimizer.learning_rate * rate(used / seconds)
        began = time.process_time()
        metrics, state = trainer.step(next(batches), state)
        tokens += int(metrics["weight"])
        step += 1
        if step % task.steps_per_epoch == 0:
            state = task.initial_state()
        used += (time.process_time() - began) if step > 1 else 0
    ids = corpus.validation[:VALIDATION]
    windows, exact = task.evaluator.trellisnet(ids), task.evaluator.exact(ids)
    print(
        f"{preset} {' '.join(changes)}: {step} steps, {tokens} tokens, {windows.mean:.4f} nats a "
        f"token, {exact.mean:.4f} with the exact past"
    )


if __name__ == "__main__":
    _, folder, name, budget, *fields = sys.argv
    main(folder, name, float(budget), *fields)
