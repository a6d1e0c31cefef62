"""Stacked LSTMs that read the input, gated and tensorized recurrent layers, and cells."""

from keras_trellis.recurrent.cells import FastGRNNCell as FastGRNNCell
from keras_trellis.recurrent.cells import IHCLSTMCell as IHCLSTMCell
from keras_trellis.recurrent.cells import IRCFastGRNNCell as IRCFastGRNNCell
from keras_trellis.recurrent.cells import IRCGRUCell as IRCGRUCell
from keras_trellis.recurrent.cells import IRCLSTMCell as IRCLSTMCell
from keras_trellis.recurrent.cells import IRCSRUCell as IRCSRUCell
from keras_trellis.recurrent.cells import IRCTLSTMCell as IRCTLSTMCell
from keras_trellis.recurrent.cells import SRUCell as SRUCell
from keras_trellis.recurrent.cells import TLSTMCell as TLSTMCell
from keras_trellis.recurrent.cells import WeightDropLSTMCell as WeightDropLSTMCell
from keras_trellis.recurrent.gated import IHCLSTM as IHCLSTM
from keras_trellis.recurrent.gated import IRCGRU as IRCGRU
from keras_trellis.recurrent.gated import IRCLSTM as IRCLSTM
from keras_trellis.recurrent.gated import IRCSRU as IRCSRU
from keras_trellis.recurrent.gated import IRCTLSTM as IRCTLSTM
from keras_trellis.recurrent.gated import SRU as SRU
from keras_trellis.recurrent.gated import TLSTM as TLSTM
from keras_trellis.recurrent.gated import FastGRNN as FastGRNN
from keras_trellis.recurrent.gated import IRCFastGRNN as IRCFastGRNN
from keras_trellis.recurrent.gated import WeightDropLSTM as WeightDropLSTM
from keras_trellis.recurrent.stacked import StackedLSTM as StackedLSTM
from keras_trellis.recurrent.tensorized import TensorizedLSTM as TensorizedLSTM
from keras_trellis.recurrent.tensorized import TensorizedLSTMCell as TensorizedLSTMCell

__all__ = sorted(name for name, value in vars().items() if isinstance(value, type))
