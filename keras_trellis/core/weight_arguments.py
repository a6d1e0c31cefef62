"""`WeightArguments`: how weights begin, and what they may be."""

from __future__ import annotations

from typing import Any

import keras

_KINDS = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}
_PREFIXES = ("kernel", "recurrent", "bias")

RESTRAINTS = tuple(
    f"{prefix}_{kind}" for kind in ("regularizer", "constraint") for prefix in _PREFIXES
)
"""The arguments that act in training alone."""


class WeightArguments(keras.layers.Layer):
    """A layer or a cell with an initializer, a regularizer and a constraint of each kind of weight.

    Args:
        kernel_initializer: of what multiplies the input.
        recurrent_initializer: of what multiplies the state.
        bias_initializer: of the bias.
        kernel_regularizer: of what multiplies the input, and so on.
        recurrent_regularizer: see above.
        bias_regularizer: see above.
        kernel_constraint: see above.
        recurrent_constraint: see above.
        bias_constraint: see above.
        **kwargs: the arguments of the next base class.
    """

    def __init__(
        self,
        *,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = keras.regularizers.get(recurrent_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.recurrent_constraint = keras.constraints.get(recurrent_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def _new_weight(
        self,
        name: str,
        shape: tuple[int, ...],
        prefix: str,
        initializer: Any = None,
        **others: Any,
    ) -> keras.Variable:
        """Adds a variable as the arguments of its kind of weight say.

        Args:
            name: the variable's.
            shape: the variable's.
            prefix: its kind, "kernel", "recurrent" or "bias".
            initializer: None for that of its kind.
            **others: further arguments of `add_weight`.
        """
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer or getattr(self, f"{prefix}_initializer"),
            regularizer=getattr(self, f"{prefix}_regularizer"),
            constraint=getattr(self, f"{prefix}_constraint"),
            **others,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        for kind, module in _KINDS.items():
            for prefix in _PREFIXES:
                name = f"{prefix}_{kind}"
                config[name] = module.serialize(getattr(self, name))
        return config
