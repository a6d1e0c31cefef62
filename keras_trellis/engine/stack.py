"""The groups of a network as a stack of recurrent layers, with the engine's loop over time."""

from __future__ import annotations

import functools

import tensorflow as tf

from keras_trellis.core import stack
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine.recurrence import recur
from keras_trellis.types import State


def run_groups(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    initial: State,
    plan: Packing | None = None,
    *,
    training: bool,
) -> tuple[tf.Tensor, State]:
    """Runs the groups of a network; see `core.stack.run_groups` and `recurrence.recur`."""
    loop = functools.partial(
        recur, units=network.units // network.groups, training=training
    )
    return stack.run_groups(network, weights, sequences, initial, plan, recur=loop)
