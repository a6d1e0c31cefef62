"""The road from a call to the gate is short."""

import pathlib
import traceback

import pytest
import tensorflow as tf

import keras_trellis
from keras_trellis import TrellisLayer
from keras_trellis.core.gates import LSTMGate

LIBRARY = str(pathlib.Path(keras_trellis.__file__).parent)


class RecordingGate(LSTMGate):
    """Records what of the library has called it."""

    def __init__(self):
        super().__init__()
        self.roads = []

    def step(self, blocks, shifted_state):
        frames = [
            each
            for each in traceback.extract_stack()
            if each.filename.startswith(LIBRARY)
        ]
        self.roads.append(
            [f"{pathlib.Path(each.filename).name}: {each.name}" for each in frames]
        )
        return super().step(blocks, shifted_state)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("steps", [1, 6, None], ids="{} steps".format)
@pytest.mark.parametrize("way", ["call", "stream"])
def test_at_most_eleven_frames(way, steps, training):
    layer = TrellisLayer(4, 20, dilation_rate=(1, 2), return_sequences=True)
    layer.build([2, steps, 3])
    layer.gate = gate = RecordingGate()
    sequences = tf.TensorSpec([2, steps, 3])
    if way == "call":
        run = tf.function(lambda x: layer.call(x, training=training), autograph=False)
    else:
        run = tf.function(
            lambda x: layer.stream(x, layer.get_initial_cache(2)), autograph=False
        )
    run.get_concrete_function(sequences)
    longest = max(gate.roads, key=len)
    assert len(longest) <= 11, longest
    assert longest[0].endswith(f": {way}") and longest[-1].endswith(": activate")
