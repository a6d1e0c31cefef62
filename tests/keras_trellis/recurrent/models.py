"""A model of all recurrent layers, side by side, for any backend."""

import keras
from keras import ops


def model_of(recurrent, steps, channels):
    """Returns a model; all results of all its layers are its outputs."""
    flags = {"return_sequences": True, "return_state": True}
    normalized = {"rank": 3, "kernel_size": 2, "channel_normalization": True}
    backwards = {"go_backwards": True, "zero_output_for_mask": True}
    layers = [
        recurrent.IRCGRU(channels, **flags),
        recurrent.IRCLSTM(channels, **flags),
        recurrent.IHCLSTM(channels, variant="released", **flags),
        recurrent.SRU(channels, unroll=True, **flags),
        recurrent.IRCSRU(channels, variant="released", **flags),
        recurrent.TLSTM(channels, **flags),
        recurrent.IRCTLSTM(channels, **flags),
        recurrent.FastGRNN(channels, **backwards, **flags),
        recurrent.IRCFastGRNN(channels, variant="released", **flags),
        recurrent.StackedLSTM(channels, **flags),
        recurrent.TensorizedLSTM(channels, 2, recompute=True, **normalized, **flags),
    ]
    inputs = keras.Input((steps, channels))
    mask = keras.Input((steps,), dtype="bool")
    outputs = []
    for layer in layers:
        outputs += layer(inputs, mask=mask)
    return keras.Model([inputs, mask], outputs)


def weighed(outputs):
    """Returns a sum of all numbers, each with a weight of its own."""
    total = 0.0
    for tensor in outputs:
        flat = ops.reshape(tensor, [-1])
        total += ops.sum(flat * ops.sin(ops.arange(flat.shape[0], dtype="float32")))
    return total
