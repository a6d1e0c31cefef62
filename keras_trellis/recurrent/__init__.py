"""Gated recurrent layers and their cells, and Keras's own, as sequence layers."""

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
]
