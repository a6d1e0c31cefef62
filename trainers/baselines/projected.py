"""`Projected`: a dense layer, and a sequence layer over it, as one layer for models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from keras_trellis.core import masks
from keras_trellis.layers.hooks import Pass
from keras_trellis.layers.inputs import check_not_stateful
from keras_trellis.layers.sequence import SequenceLayer, deserialized, serialized
from keras_trellis.types import Number, State, Tensor


@keras.saving.register_keras_serializable("trainers")
class Projected(SequenceLayer):
    """A dense layer from the inputs to `units` channels, and a sequence layer that reads these.

    So a layer such as an `SRU`, whose outputs have as many channels as its inputs, reads pixels.
    State and cache are those of the sequence layer.

    Args:
        layer: the sequence layer.
        units: channels of the dense layer.
        **kwargs: as for `SequenceLayer`; the dtype policy is that of the layer.

    Raises:
        ValueError: `stateful` is True.
    """

    def __init__(
        self, layer: SequenceLayer | Mapping[str, Any], units: int, **kwargs: Any
    ) -> None:
        inner = deserialized(layer)
        super().__init__(**{"dtype": inner.dtype_policy, **kwargs})
        check_not_stateful(self)
        self.layer, self.units = inner, units
        self.dense = keras.layers.Dense(units, dtype=self.dtype_policy, name="dense")
        self.output_units = self.layer.output_units
        self.receptive_field = self.layer.receptive_field

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {"layer": serialized(self.layer), "units": self.units}
        return super().get_config() | own

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state."""
        return self.layer.state_units

    @property
    def state_is_exact(self) -> bool:
        """Whether the sequence layer's is."""
        return self.layer.state_is_exact

    def add_variables(self, inputs: int) -> None:
        """Builds both layers."""
        self.dense.build((None, inputs))
        self.layer.build((None, None, self.units))

    def get_initial_state(self, batch_size: Number) -> list[Tensor]:
        """Returns the sequence layer's."""
        return self.layer.get_initial_state(batch_size)

    def cache_of_state(self, state: State) -> Any:
        """Returns the sequence layer's."""
        return self.layer.cache_of_state(state)

    def run(self, sequences: Tensor, request: Pass) -> tuple[Tensor, State, Any]:
        """Runs whole sequences; see `SequenceHooks.run`."""
        return self.layer.run(self._project(sequences, request.mask), request)

    def run_chunk(
        self, sequences: Tensor, cache: Any, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, Any]:
        """Continues sequences from a cache; see `SequenceHooks.run_chunk`."""
        return self.layer.run_chunk(
            self._project(sequences, mask), cache, mask, training
        )

    def _project(self, sequences: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:  # NaN at a masked step would reach the kernel's gradient
            sequences = masks.zero_masked(sequences, mask)
        return self.dense(sequences)
