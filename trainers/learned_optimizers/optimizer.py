"""`RecurrentOptimizer`: a recurrent network as a Keras optimizer."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath

from keras_trellis import arguments
from keras_trellis.types import Tensor
from trainers.data.files import write_atomically
from trainers.data.stores import to_path
from trainers.learned_optimizers.core import ADDED, GATED, UpdateNetwork

_CONFIG = "config"


@keras.saving.register_keras_serializable("trainers")
class RecurrentOptimizer(keras.optimizers.Optimizer):
    """Trains any Keras model by the updates of a network.

    All coordinates of the model are rows of one batch. Their states are variables of the
    optimizer, so they are saved with the model. The network does not change.

    A gated update reads the loss. `fit` gives it to `scale_loss`; a loop of your own calls
    `optimizer.scale_loss(loss)` before `apply`.

    Args:
        network: what computes the updates; a new one has yet to be trained. None: a new one with
            its defaults.
        name: of the optimizer.
        update: the network's update, "added" or "gated". Default: that of `network`, or "added".

    Raises:
        ValueError: `update` is not that of `network`. From `build` or `apply`: a variable is
            frozen, or of another type than the network, a gradient is sparse or missing, there are
            several replicas, or a gated update has been given no loss.
    """

    def __init__(
        self,
        network: UpdateNetwork | None = None,
        name: str = "recurrent_optimizer",
        *,
        update: str | None = None,
    ) -> None:
        # The network decides how far a step goes; Keras asks for a rate.
        super().__init__(learning_rate=1.0, name=name)
        network = network or UpdateNetwork(update=update or ADDED)
        if update not in (None, network.update):
            expected = f"None or {network.update!r}, that of `network`"
            raise arguments.refusal("update", update, expected)
        self.network = network
        self.states: list[list[keras.Variable]] = []
        self._is_gated = network.update == GATED
        self._has_loss = False
        if self._is_gated:
            self.loss = self.add_variable((), dtype=network.compute_dtype, name="loss")

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the states for the coordinates of a model's variables."""
        if self.built:
            return
        dtype = self.network.compute_dtype
        for variable in variables:
            if not variable.trainable:
                raise ValueError(
                    "the variables must be trainable: an update moves them even where the gradient "
                    f"is 0. Received: {variable.path}, which is frozen"
                )
            if keras.backend.standardize_dtype(variable.dtype) != dtype:
                raise ValueError(
                    f"the variables must be {dtype}, as the optimizer's network is. "
                    f"Received: {variable.path} of {variable.dtype}"
                )
        super().build(variables)
        # Keras would take a list of variables for the optimizer's own.
        self._trained = lambda: list(variables)
        total = sum(math.prod(variable.shape) for variable in variables)
        for number, cell in enumerate(self.network.initial_states(total)):
            own = [self._add_state(f"cell_{number}_{i}", s) for i, s in enumerate(cell)]
            self.states.append(own)

    def scale_loss(self, loss: Any) -> Any:
        """Takes the loss of the next step, and returns it scaled, as Keras asks for."""
        if self._is_gated:
            self.loss.assign(loss)
            self._has_loss = True
        return super().scale_loss(loss)

    def _add_state(self, name: str, state: Tensor) -> keras.Variable:
        return self.add_variable(state.shape, dtype=state.dtype.name, name=name)

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None
    ) -> None:
        """Adds the network's updates to the variables.

        Args:
            grads: a dense gradient for each variable.
            trainable_variables: those given to `build`; None: the same.
        """
        if trainable_variables is not None:
            self.build(trainable_variables)
        variables = self._trained()
        if trainable_variables is not None:
            grads = _in_order(grads, trainable_variables, variables)
        _check(grads, variables)
        sizes = [math.prod(variable.shape) for variable in variables]
        gradients = _flat(grads)
        before = [[state.value for state in cell] for cell in self.states]
        further = self._gated_inputs(variables)
        updates, after = self.network(gradients, before, *further)
        parts = tf.split(updates, sizes)
        for variable, part in zip(variables, parts, strict=True):
            variable.assign_add(tf.reshape(part, variable.shape))
        for cell, values in zip(self.states, after, strict=True):
            for state, value in zip(cell, values, strict=True):
                state.assign(value)
        self.iterations.assign_add(1)

    def _gated_inputs(self, variables: Sequence[keras.Variable]) -> tuple[Tensor, ...]:
        """Returns the coordinates and the loss of each, which a gated update reads."""
        if not self._is_gated:
            return ()
        if not self._has_loss:
            raise ValueError(
                "a gated update reads the loss: call `scale_loss(loss)` before `apply`. "
                "Received: no loss"
            )
        theta = _flat(variables)
        return theta, tf.fill(tf.shape(theta), self.loss.value)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments; the network's weights are not among them."""
        network = keras.saving.serialize_keras_object(self.network)
        return {"network": network, "name": self.name}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> RecurrentOptimizer:
        """Returns the optimizer of a config."""
        network = keras.saving.deserialize_keras_object(
            config["network"], custom_objects=custom_objects
        )
        return cls(network, config["name"])

    def save(self, path: epath.PathLike) -> None:
        """Writes the network in one file: its config and its weights."""
        config = keras.saving.serialize_keras_object(self.network)
        weights = {str(i): array for i, array in enumerate(self.network.get_weights())}
        arrays = {_CONFIG: np.array(json.dumps(config)), **weights}
        write_atomically(path, lambda file: np.savez(file, **arrays))

    @classmethod
    def load(cls, path: epath.PathLike) -> RecurrentOptimizer:
        """Returns a new optimizer with the network that `save` wrote.

        Raises:
            ValueError: the file is not one of `save`.
            OSError: it cannot be read.
        """
        try:
            with to_path(path).open("rb") as file, np.load(file) as arrays:
                config = json.loads(str(arrays[_CONFIG]))
                weights = [arrays[str(i)] for i in range(len(arrays.files) - 1)]
            network = keras.saving.deserialize_keras_object(config)
            network.set_weights(weights)
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} must be a file of RecurrentOptimizer.save. Received: {error!r}"
            ) from error
        return cls(network)


def _flat(tensors: Sequence[Any]) -> Tensor:
    """Returns all numbers of tensors, one after the other."""
    return tf.concat(
        [tf.reshape(tf.convert_to_tensor(tensor), [-1]) for tensor in tensors], 0
    )


def _in_order(
    gradients: Sequence[Any],
    given: Sequence[keras.Variable],
    variables: Sequence[keras.Variable],
) -> list[Any]:
    """Returns the gradients of the given variables in the order in which states are of them."""
    by_variable = dict(zip(map(id, given), gradients, strict=True))
    own = set(map(id, variables))
    differing = [("no gradient for", v) for v in variables if id(v) not in by_variable]
    differing += [("a gradient for", v) for v in given if id(v) not in own]
    for what, variable in differing:
        raise ValueError(
            "RecurrentOptimizer moves the variables that it was built for, all of them. "
            f"Received: {what} {variable.path}; compile the model again after a layer was "
            "frozen or released"
        )
    return [by_variable[id(variable)] for variable in variables]


def _check(gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            f"RecurrentOptimizer trains on one device. Received: {replicas} replicas"
        )
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is None or isinstance(gradient, tf.IndexedSlices):
            what = "none" if gradient is None else "a sparse one"
            raise ValueError(
                "RecurrentOptimizer takes a dense gradient for each variable. "
                f"Received: {what} for {variable.path}"
            )
