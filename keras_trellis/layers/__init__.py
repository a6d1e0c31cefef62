"""Layers from sequences to sequences, by the protocol of `keras.layers.LSTM`."""
