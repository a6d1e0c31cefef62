"""Optimizers with torch's formulas, as the paper's recipes need.

Keras's own differ: its Adam scales epsilon, its weight decay is decoupled from the gradient, its
clipping lacks the 1e-6. `variables` holds everything that one step hands on to the next, so a
checkpoint of them is the whole optimizer.
"""

from trainers.optimizers.adam import Adam
from trainers.optimizers.optimizer import Optimizer, clip_by_global_norm
from trainers.optimizers.sgd import SGD

__all__ = ["OPTIMIZERS", "SGD", "Adam", "Optimizer", "clip_by_global_norm"]

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
}
"""The optimizers that `config.optimizer.name` chooses. A new one is an entry here."""
