"""Stacked LSTMs that read the input, gated and tensorized recurrent layers, and cells."""

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
    WeightDropLSTMCell,
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
    WeightDropLSTM,
)
from keras_trellis.recurrent.stacked import StackedLSTM
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
    "StackedLSTM",
    "TLSTM",
    "TLSTMCell",
    "TensorizedLSTM",
    "TensorizedLSTMCell",
    "WeightDropLSTM",
    "WeightDropLSTMCell",
]
