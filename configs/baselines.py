"""What `trainers.compare` begins with for the layers beside a trellis network.

A task has one of these groups as its `baselines` (trainers/kinds/task.py). Each entry changes the
task's preset. `model.units` is solved for, so that it has no value here. All values are ours,
unless a source stands beside them. The learning rates of `ADDING` and
`COPY_MEMORY` are the better ones of two each (docs/notes/comparisons.md). `--trials` tunes all
further. XLA compiles a layer for a task where that is faster on a CPU
(docs/studies/step_time.csv).
"""

from configs import ptb, ptb_char

# Keras's own initializers, and nothing that a trellis network alone has
_OWN = dict(
    initial_deviation=0.0,
    gate="lstm",
    auxiliary_weight=0.0,
    groups=1,
    inject_groups=False,
    dtype="float32",  # as all trials of them
)
_CARRIED = dict(horizon=0, history="carried")


def _layer(name: str, **fields: object) -> dict:
    return dict(model=dict(layer=name, **_OWN, **fields))


def _with(
    settings: dict, rate: float, jit_compile: bool = False, **groups: dict
) -> dict:
    groups["training"] = dict(jit_compile=jit_compile, depths=())
    return {**settings, "optimizer": dict(learning_rate=rate), **groups}


_DOUBLING = tuple(2**level for level in range(8))
_WHOLE = dict(output_units=None)  # all units are outputs
_LSTM, _GRU = _layer("lstm", layers=1, **_WHOLE), _layer("gru", layers=1, **_WHOLE)


def _long_tcn(kernel_size: int) -> dict:
    return _layer(
        "tcn", kernel_size=kernel_size, depth=8, dilation_rate=_DOUBLING, **_WHOLE
    )


def _long_attention(context: int) -> dict:
    sizes = dict(heads=4, context=context)
    return _layer("transformer", layers=2, transformer=sizes, **_WHOLE)


# The TCNs of Bai, Kolter and Koltun (2018) have eight levels; kernel size 8, and 7 for images.
ADDING = {
    "lstm": _with(_LSTM, 1e-2),
    "gru": _with(_GRU, 1e-2, jit_compile=True),
    "tcn": _with(_long_tcn(8), 1e-2, jit_compile=True),
    "transformer": _with(_long_attention(256), 2e-3),
}
COPY_MEMORY = {
    "lstm": _with(_LSTM, 4e-3, jit_compile=True),
    "gru": _with(_GRU, 2e-2, jit_compile=True),
    "tcn": _with(_long_tcn(8), 2e-2, jit_compile=True),
    "transformer": _with(_long_attention(128), 2e-3),
}
# The rates are those of the presets, and not tried here.
ALGORITHMS = {
    "lstm": _with(_LSTM, 5e-3, jit_compile=True),
    "gru": _with(_GRU, 5e-3, jit_compile=True),
    "tcn": _with(_long_tcn(4), 5e-3, jit_compile=True),
    "transformer": _with(_long_attention(32), 2e-3),
}
# Keras's loop is slow where it drops the recurrent state, as the trellis network's preset does:
# 4,242 ms a step of an LSTM in place of 1,517, and 3,005 of a GRU in place of 1,660 (medians of
# five, in turns on one busy thread). So neither drops it. XLA makes both slower over 784 steps,
# 13,100 and 15,600 ms. So it makes the TCN, whose dropout it draws slowly: 4,440 ms in place of
# 341. docs/studies/step_time.py measures them.
_UNDROPPED = dict(recurrent_dropout=0.0)
# An SRU has as many channels in as out: a dense layer makes them of the input's.
_SQUARE = dict(units=64, output_units=64, embedding_units=64)
IMAGES = {
    "lstm": _with(_layer("lstm", layers=1, **_WHOLE, **_UNDROPPED), 2e-3),
    "gru": _with(_layer("gru", layers=1, **_WHOLE, **_UNDROPPED), 2e-3),
    "tcn": _with(_long_tcn(7), 2e-3),
    "transformer": _with(_long_attention(256), 1e-3),
    "sru": _with(
        _layer("sru", layers=2, **_SQUARE, **_UNDROPPED), 2e-3, jit_compile=True
    ),
}

# For recordings of some hundred steps. The rates are not tried here. Milliseconds of a training
# step over windows of 512 steps, with XLA and without: LSTM 336 and 128, GRU 406 and 165, TCN 171
# and 29, SRU 90 and 163, the trellis network 10 and 21, by
# `python -m docs.studies.step_time --task=watch --layers=lstm,gru,tcn,sru` on one thread beside
# other work. A Transformer is not measured.
SERIES = {
    "lstm": _with(_layer("lstm", layers=1, **_WHOLE, **_UNDROPPED), 4e-3),
    "gru": _with(_layer("gru", layers=1, **_WHOLE, **_UNDROPPED), 4e-3),
    "tcn": _with(_long_tcn(7), 2e-3),
    "transformer": _with(_long_attention(256), 1e-3),
    "sru": _with(
        _layer("sru", layers=2, **_SQUARE, **_UNDROPPED), 4e-3, jit_compile=True
    ),
}
# With an answer at each step, by the same command for `anomaly`: LSTM 114 and 68, GRU 119 and 83,
# TCN 86 and 164, SRU 53 and 94, the trellis network 85 both times. Of kernel sizes, 5 gives a TCN
# nearly the trellis network's number of parameters; with 7 it is 6 % smaller or larger.
ANOMALY = {**SERIES, "tcn": _with(_long_tcn(5), 2e-3, jit_compile=True)}


def _text_settings(
    window: int,
    compiled: bool,
    rate: float,
    skip_rate: float,
    outputs: dict,
    **dropouts: float,
) -> dict[str, dict]:
    """Returns the settings for texts: the state is carried from window to window.

    Args:
        window: that of a TCN and a Transformer, and how far the latter attends.
        compiled: whether XLA compiles a GRU's steps. Else it has batches as large as an LSTM's.
        rate: an LSTM's learning rate.
        skip_rate: that of LSTMs that both read the input.
        outputs: fields that lead from a GRU, a TCN or a Transformer to the words.
        dropouts: an LSTM's.
    """
    data = dict(window=window, batch_size=16, **_CARRIED)
    short = dict(window=40, batch_size=16, **_CARRIED)
    # as in `small_lstm` of configs/ptb.py
    broad = dict(window=40, batch_size=32, **_CARRIED)
    sizes = dict(heads=4, context=window)
    # Bai, Kolter and Koltun (2018): kernel size 3 and four levels for words.
    temporal = _layer(
        "tcn", kernel_size=3, depth=4, dilation_rate=(1, 2, 4, 8), **outputs
    )
    attention = _layer("transformer", layers=4, transformer=sizes, **outputs)

    def lstms(name: str) -> dict:
        # Their head is that of the preset, as in `small_lstm` and `small_skip_lstm`.
        return _layer(name, layers=2, **dropouts)

    return {
        "lstm": _with(lstms("lstm"), rate, data=broad),
        "skip_lstm": _with(lstms("skip_lstm"), skip_rate, data=broad),
        "gru": _with(
            _layer("gru", layers=2, **outputs),
            4e-3,
            jit_compile=compiled,
            data=short if compiled else broad,
        ),
        "tcn": _with(temporal, 2e-3, data=data),
        "transformer": _with(attention, 1e-3, data=data),
    }


# Over the adaptive softmax XLA makes a GRU slow: 610 ms a step, 515 without, by
# `python -m docs.studies.step_time --task=ptb --layers=gru --data_dir=DIR` beside other work.
_PTB = ptb.small_lstm()
WORDS = _text_settings(
    window=64,
    compiled=False,
    rate=_PTB["optimizer"]["learning_rate"],
    skip_rate=ptb.small_skip_lstm()["optimizer"]["learning_rate"],
    outputs={},
    recurrent_dropout=0.0,
    **{
        name: value for name, value in _PTB["model"].items() if name.endswith("dropout")
    },
)
# The dropouts of words cost an LSTM 0.3 bits a character in 200 seconds.
CHARACTERS = _text_settings(
    window=128,
    compiled=True,
    rate=ptb_char.small_lstm()["optimizer"]["learning_rate"],
    skip_rate=ptb_char.small_skip_lstm()["optimizer"]["learning_rate"],
    outputs=dict(head="tied", output_units=64),
    dropout=0.0,
    recurrent_dropout=0.0,
)
