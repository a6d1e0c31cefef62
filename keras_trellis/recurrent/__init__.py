"""Gated and tensorized recurrent layers, their cells, and Keras's as sequence layers."""

from keras_trellis.recurrent.cells import (
    FastGRNNCell,
    IHCLSTMCell,
    IRCFastGRNNCell,
    IRCGRUCell,
    IRCLSTMCell,
    IRCSRUCell,
    IRCTLSTMCell,
    SRUCell,
    TLSTMCell,
)
from keras_trellis.recurrent.gated import (
    IHCLSTM,
    IRCGRU,
    IRCLSTM,
    IRCSRU,
    IRCTLSTM,
    SRU,
    TLSTM,
    FastGRNN,
    IRCFastGRNN,
)
from keras_trellis.recurrent.tensorized import TensorizedLSTM, TensorizedLSTMCell

__all__ = [
    "FastGRNN",
    "FastGRNNCell",
    "IHCLSTM",
    "IHCLSTMCell",
    "IRCFastGRNN",
    "IRCFastGRNNCell",
    "IRCGRU",
    "IRCGRUCell",
    "IRCLSTM",
    "IRCLSTMCell",
    "IRCSRU",
    "IRCSRUCell",
    "IRCTLSTM",
    "IRCTLSTMCell",
    "SRU",
    "SRUCell",
    "TLSTM",
    "TLSTMCell",
    "TensorizedLSTM",
    "TensorizedLSTMCell",
]
