"""A sequence layer of one's own: linear attention, whose state is a matrix for each head.

The layer is `LinearAttention`, and no other line of the library knows it. It derives from
`SequenceLayer` and defines how a chunk of steps is computed from a cache; all else follows: `fit`,
masks, `initial_state`, `stateful`, `stream`, `StreamedModel` and its exports, `TrellisLM`.
`keras_trellis.testing.verify_layer(LinearAttention)` tests that it keeps its promises.

    python examples/linear_attention.py    # half a minute on two cores

Here it remembers readings: each step brings the reading of one sensor and asks for the last one of
another. For your own data, change `draw_readings`, which returns the sequences `[rows, steps,
channels]` and a class for each step. For another layer, change `run_chunk` and its variables.
"""

import tempfile
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_trellis import SequenceLayer, StreamedModel
from keras_trellis.core import masks
from keras_trellis.core.convolution import axis_size, zero_rows
from keras_trellis.types import State, Tensor

SENSORS, READINGS, STEPS = 8, 6, 40


class Past(NamedTuple):
    """The cache: the last output `[B, units]`, and the state, `[B, heads * size * size]`."""

    output: Tensor
    state: State


@keras.saving.register_keras_serializable("examples")
class LinearAttention(SequenceLayer):
    """S_t = a S_{t-1} + k_t v_t^T, o_t = S_t^T q_t in each head, with a fixed decay a.

    It is the retention of Sun et al., "Retentive Network", 2023, https://arxiv.org/abs/2307.08621.

    Args:
        units: the channels of the output.
        heads: how many heads share them; each has a decay of its own.
        **kwargs: as for `SequenceLayer`.
    """

    receptive_field = None  # all steps

    def __init__(self, units: int = 16, heads: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_units, self.heads, self.size = units, heads, units // heads

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {"units": self.output_units, "heads": self.heads}
        return super().get_config() | own

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of the state: a matrix for each head."""
        return (self.heads * self.size**2,)

    def add_variables(self, inputs: int) -> None:
        """Creates the kernel `[p, 3 units]` of queries, keys and values."""
        shape = inputs, 3 * self.output_units
        self.kernel = self.add_weight(name="kernel", shape=shape)

    def cache_of_state(self, state: State) -> Past:
        """Returns the cache of no output and these matrices."""
        return Past(zero_rows(state[0], self.output_units), state)

    def run_chunk(
        self, sequences: Tensor, cache: Past, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, Past]:
        """Continues sequences, in parallel over the steps of the chunk."""
        plan = masks.packing(mask)  # moves the valid steps of each row together
        packed = masks.pack(sequences, plan)
        rows, steps = axis_size(packed, 0), axis_size(packed, 1)
        projected = ops.matmul(packed, ops.cast(self.kernel, packed.dtype))
        projected = ops.reshape(projected, [rows, steps, 3 * self.heads, self.size])
        by_head = ops.transpose(projected, [0, 2, 1, 3])
        query, key, value = ops.split(by_head, 3, axis=1)  # each [B, heads, n, size]
        shape = [rows, self.heads, self.size, self.size]
        memory = ops.reshape(cache.state[0], shape)
        place = ops.arange(steps, dtype="int32")[:, None]
        count = steps if plan is None else plan.count[:, None, None, None]
        scores = ops.matmul(query, ops.swapaxes(key, 2, 3))
        scores = scores * self._decay(place - place[:, 0], packed.dtype)
        outputs = ops.matmul(scores, value)
        outputs += ops.matmul(query, memory) * self._decay(place + 1, packed.dtype)
        written = key * self._decay(count - 1 - place, packed.dtype)
        memory = memory * self._decay(count, packed.dtype)
        memory += ops.matmul(ops.swapaxes(written, 2, 3), value)
        outputs = ops.transpose(outputs, [0, 2, 1, 3])
        outputs = ops.reshape(outputs, [rows, steps, self.output_units])
        (last,) = masks.last_valid((outputs,), plan, (cache.output,))
        state = (ops.reshape(memory, [rows, *self.state_units]),)
        return masks.unpack(outputs, plan, cache.output), Past(last, state)

    def _decay(self, steps: Any, dtype: Any) -> Tensor:
        """Returns what so many steps leave of a memory, `[heads, 1, 1]`; 0 for less than none."""
        rates = 1 - 2.0 ** -(2 + np.arange(self.heads, dtype="float32"))
        steps = ops.cast(steps, "float32")
        left = ops.power(rates[:, None, None], ops.maximum(steps, 0))
        return ops.cast(ops.where(steps < 0, 0.0, left), dtype)


def draw_readings(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what each step brings, a sensor, its reading and a question, and the answers."""
    rng = np.random.default_rng(seed)
    sensors = rng.integers(0, SENSORS, (rows, STEPS))
    sensors[:, :SENSORS] = rng.permuted(np.tile(np.arange(SENSORS), [rows, 1]), axis=1)
    readings = rng.integers(0, READINGS, (rows, STEPS))
    asked, answers = np.zeros_like(sensors), np.zeros_like(sensors)
    last = np.zeros([rows, SENSORS], int)
    every = np.arange(rows)
    for time in range(STEPS):
        last[every, sensors[:, time]] = readings[:, time]
        asked[:, time] = sensors[every, rng.integers(0, min(time + 1, SENSORS), rows)]
        answers[:, time] = last[every, asked[:, time]]
    kinds = (sensors, SENSORS), (readings, READINGS), (asked, SENSORS)
    steps = [np.eye(count, dtype="float32")[numbers] for numbers, count in kinds]
    return np.concatenate(steps, axis=-1), answers


def model_of(layer: keras.layers.Layer) -> keras.Model:
    """Returns a model that answers at each step."""
    return keras.Sequential(
        [
            keras.Input([None, 2 * SENSORS + READINGS]),
            layer,
            keras.layers.LayerNormalization(),
            keras.layers.Dense(READINGS, activation="softmax"),
        ]
    )


def accuracy(model: keras.Model) -> float:
    """Trains a model; returns the share of right answers in other sequences."""
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.optimizer.learning_rate = 0.01
    model.fit(*draw_readings(2000, seed=0), batch_size=50, epochs=8, verbose=0)
    return model.evaluate(*draw_readings(500, seed=1), verbose=0)[1]


def answers_of_export(model: keras.Model, readings: np.ndarray) -> np.ndarray:
    """Returns the answers of an exported step, one step after the other."""
    import tensorflow as tf  # the layer itself runs on JAX and torch too

    streamed = StreamedModel(model)
    with tempfile.TemporaryDirectory() as folder:
        streamed.export(f"{folder}/step")
        step = tf.saved_model.load(f"{folder}/step").signatures["serving_default"]
    (name,), (answer,) = streamed.input_names, streamed.output_names
    cache = streamed.get_initial_cache(len(readings))
    answers = []
    for time in range(readings.shape[1]):
        inputs = {name: tf.constant(readings[:, time : time + 1])}
        results = step(**inputs, **cache)
        cache = {part: results[part] for part in cache}
        answers.append(results[answer])
    return np.concatenate(answers, axis=1)


def main() -> None:
    """Trains the layer and an LSTM, then runs the layer's model step by step."""
    layers = {
        "LinearAttention": LinearAttention(32, heads=2, return_sequences=True),
        "LSTM": keras.layers.LSTM(16, return_sequences=True),
    }
    print(f"share of right answers; chance is {1 / READINGS:.2f}")
    for name, layer in layers.items():
        keras.utils.set_random_seed(0)
        model = model_of(layer)
        score = accuracy(model)
        print(f"{name}, {model.count_params()} parameters: {score:.3f}")
        if name == "LinearAttention":
            readings, _ = draw_readings(4, seed=2)
            answers = answers_of_export(model, readings)
            difference = np.abs(answers - model(readings)).max()
            print(f"an exported step, step by step: {difference:.1g} from one pass")
            assert difference < 1e-4 and score > 0.8


if __name__ == "__main__":
    main()
