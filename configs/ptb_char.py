"""Character-level Penn Treebank (section 5.2 of the paper).

Each value has its source beside it. "Table 5" is the paper's table of hyperparameters. "released"
is a default of the authors' `char_ptb.py`; where the table omits a value, it is the paper's too.
"both": the script and the table agree. "ours": chosen here. The sources of the tensorized LSTMs are
those of `configs.algorithms`.
"""


def released() -> dict:
    """The authors' script with its defaults."""
    return dict(
        # released: the file as it is, a space at both ends of a line
        corpus=dict(form="released"),
        model=dict(
            units=1250,  # released: nhid 1050 + nout 200
            depth=140,  # released
            output_units=200,  # released: the embedding's
            embedding_units=200,  # both
            weight_normalization=True,  # both
            initial_deviation=0.01,  # released: kernels and bias from N(0, 0.01^2)
            embedding_dropout=0.02,  # released
            dropout=0.1,  # released
            recurrent_dropout=0.29,  # released
            weight_dropout=0.26,  # released
            output_dropout=0.1,  # both
            auxiliary_every=80,  # released
            auxiliary_from="bottom",  # released
            auxiliary_weight=0.3,  # both
            # released: torch's padding_idx=-1, no gradient to the last symbol's vector through
            # the input
            untrained_input_id=-1,
        ),
        data=dict(
            batch_size=24,  # released
            window=140,  # released: the horizon, with repackaging
            horizon=0,  # released: with repackaging all outputs are scored
            history="carried",  # released: repackaging
        ),
        optimizer=dict(
            name="adam",  # both
            learning_rate=2e-3,  # both
            clip_norm=0.2,  # both
            weight_decay=8e-7,  # released
        ),
        # released: no plateau rule, no averages
        schedule=dict(
            factor=0.1,  # released: a tenth
            minimum=1e-5,  # released: no step down from there on
            epochs=(220, 350),  # released
        ),
        training=dict(epochs=400),  # released
        evaluation=dict(
            batch_size=10,  # released: the streams of the protocol `trellisnet`
            exact_batch_size=10,  # ours: pieces of the protocol `exact`; changes no number
            exact_chunk=512,  # ours: steps a call; changes no number
        ),
    )


def paper() -> dict:
    """Table 5, where it differs from the released values."""
    config = released()
    # ours: the form that other published results are of; "paper" has the paper's counts
    config["corpus"].update(form="mikolov")
    config["model"].update(
        units=1200,  # Table 5: hidden 1000, and the output's 200 as in the released code
        depth=125,  # Table 5
        embedding_dropout=0.0,  # Table 5
        recurrent_dropout=0.3,  # Table 5
        weight_dropout=0.25,  # Table 5
        auxiliary_every=70,  # Table 5
        auxiliary_from="top",  # appendix B.2
    )
    config["optimizer"].update(weight_decay=1e-6)  # Table 5
    return config


def small() -> dict:
    """A trellis network of 16 levels, for twenty minutes of a CPU core; every value ours.

    It sees 17 characters. A run begins with 4 levels, which see more text in the same time, and
    goes on with 8. docs/notes/language_models.md has the trials.
    """
    config = paper()
    # Keras's own initializers: N(0, 0.01^2) is slow to start.
    config["model"] = dict(
        units=144,  # 252,867 parameters
        depth=16,
        dilation_rate=(1,),
        output_units=144,
        embedding_units=64,
        # Vectors in [-0.1, 0.1] are slow, too.
        embeddings_initializer=dict(config=dict(minval=-1.0, maxval=1.0)),
        auxiliary_every=6,
        # One expert: a dense layer between the outputs and the softmax.
        head="mixture",
        mixture=dict(experts=1),
    )
    # In windows no longer than the network is deep the carried history reaches all of them.
    config["data"].update(batch_size=32, window=8)
    config["optimizer"].update(learning_rate=8e-3, clip_norm=1.0, weight_decay=0.0)
    config["schedule"].update(factor=0.25, epochs=())
    # The rate falls along a cosine over the steps, which are two thirds of a pass over the text.
    config["training"] = dict(epochs=6, steps=13200, depths=(4, 8))
    return config


def small_stacked_lstm() -> dict:
    """Two stacked LSTMs that both read the input, for ten minutes of a CPU core; every value ours.

    docs/notes/language_models.md has the trials.
    """
    config = small()
    for field in ("depth", "dilation_rate", "auxiliary_every"):
        del config["model"][field]
    config["model"].update(
        layer="equilibrium",
        units=422,  # 661,002 parameters
        groups=2,
        inject_groups=True,
        unit_forget_bias=True,
        output_units=211,
    )
    config["data"].update(window=40)
    config["optimizer"].update(learning_rate=9e-3)
    # The rate falls along a cosine over the steps, which are 1.1 passes over the text.
    config["training"] = dict(epochs=6, steps=4500, jit_compile=True)
    return config


def small_lstm() -> dict:
    """Two layers of Keras's LSTM, as large as `small_stacked_lstm` and with its head; ours.

    XLA would make it slower.
    """
    config = small_skip_lstm()
    config["model"].update(layer="lstm", units=230)  # 661,478 parameters
    config["optimizer"].update(learning_rate=6e-3)
    return config


def small_skip_lstm() -> dict:
    """The network of `small_stacked_lstm` out of Keras's own layers, for as many steps; ours.

    The second of the two layers reads the outputs of the first and the input.
    """
    config = small_stacked_lstm()
    for field in ("groups", "inject_groups", "unit_forget_bias"):
        del config["model"][field]
    # 661,002 parameters too
    config["model"].update(layer="skip_lstm", layers=2, units=211)
    config["training"].update(jit_compile=False)
    return config


def paper_tensorized() -> dict:
    """The tensorized LSTM of He et al. (2017) for Wikipedia: 1.264 bits a character (recalled).

    Here the word vectors, as wide as the channels, are the output's weights too.
    """
    config = paper()
    config["model"] = dict(
        layer="tensorized",
        units=1200,  # recalled
        embedding_units=1200,  # ours: the outputs' width
        tensorized=dict(
            size=6,  # recalled
            rank=3,  # recalled
            channel_normalization=True,  # recalled
            forget_bias=1.0,  # A
        ),
    )
    config["data"].update(batch_size=100, window=50)  # A
    config["optimizer"].update(
        learning_rate=1e-3,  # A
        clip_norm=1.0,  # ours
        weight_decay=0.0,  # recalled: none
    )
    config["schedule"].update(epochs=())  # recalled: the rate stays
    config["training"].update(epochs=50)  # A
    return config


def small_tensorized() -> dict:
    """A line of 4 places, for hours of one CPU core; other values ours, and not run."""
    config = paper_tensorized()
    config["model"].update(
        units=128,
        embedding_units=128,
        embeddings_initializer=dict(config=dict(minval=-1.0, maxval=1.0)),
    )
    config["model"]["tensorized"].update(size=4, rank=2)
    config["optimizer"].update(learning_rate=3e-3)
    config["training"].update(epochs=3)
    return config


PRESETS = {
    "paper": paper,
    "released": released,
    "small": small,
    "small_stacked_lstm": small_stacked_lstm,
    "small_lstm": small_lstm,
    "small_skip_lstm": small_skip_lstm,
    "paper_tensorized": paper_tensorized,
    "small_tensorized": small_tensorized,
}
