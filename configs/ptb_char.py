"""Character-level Penn Treebank (section 5.2 of the paper).

Sources, given beside each value: "Table 5": the paper's table of hyperparameters; "released": the
defaults of the authors' `char_ptb.py`, which also stand in for what the table omits; "ours": chosen
here.
"""


def released() -> dict:
    """The authors' script with its defaults."""
    return dict(
        seed=1111,  # released
        corpus=dict(
            form="released",  # released: the file as it is, a space at both ends of a line
        ),
        model=dict(
            units=1250,  # released: nhid 1050 + nout 200
            depth=140,  # released
            output_units=200,  # released
            embedding_units=200,  # released
            weight_normalization=True,  # released
            initial_deviation=0.01,  # released: kernels and bias from N(0, 0.01^2)
            embedding_dropout=0.02,  # released
            dropout=0.1,  # released
            recurrent_dropout=0.29,  # released
            weight_dropout=0.26,  # released
            output_dropout=0.1,  # released
            auxiliary_every=80,  # released
            auxiliary_weight=0.3,  # released
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
            name="adam",  # released
            learning_rate=2e-3,  # released
            clip_norm=0.2,  # released
            weight_decay=8e-7,  # released
        ),
        schedule=dict(
            factor=0.1,  # released: a tenth
            patience=None,  # released: no plateau rule
            minimum=1e-5,  # released: no step down from there on
            epochs=(220, 350),  # released
            average=False,  # released: none
        ),
        training=dict(
            epochs=400,  # released
            log_every_steps=20,  # ours
            checkpoint_every_steps=200,  # ours
        ),
        evaluation=dict(
            batch_size=10,  # released: the streams of the protocol `trellisnet`
            exact_batch_size=10,  # ours: pieces of the protocol `exact`; changes no number
            exact_chunk=512,  # ours: steps a call; changes no number
        ),
    )


def paper() -> dict:
    """Table 5; what it omits is the released value."""
    config = released()
    # ours: the form that other published results are of; "paper" has the paper's counts
    config["corpus"].update(form="mikolov")
    config["model"].update(
        units=1200,  # Table 5: hidden 1000, and the output's 200 as in the released code
        depth=125,  # Table 5
        output_units=200,  # released: the embedding's
        embedding_units=200,  # Table 5
        weight_normalization=True,  # Table 5
        embedding_dropout=0.0,  # Table 5
        recurrent_dropout=0.3,  # Table 5
        weight_dropout=0.25,  # Table 5
        output_dropout=0.1,  # Table 5
        auxiliary_every=70,  # Table 5
        auxiliary_weight=0.3,  # Table 5
    )
    config["optimizer"].update(
        name="adam",  # Table 5
        learning_rate=2e-3,  # Table 5
        clip_norm=0.2,  # Table 5
        weight_decay=1e-6,  # Table 5
    )
    return config


def small() -> dict:
    """Fit for an hour or two of two CPU cores; every value ours.

    Ten levels see 63 characters, a dozen words.
    """
    config = paper()
    del config["model"]["untrained_input_id"]  # here every symbol learns
    config["model"].update(
        units=256,
        depth=10,
        output_units=64,
        embedding_units=64,
        dilation_rate=(1, 2, 4, 8, 16),
        weight_normalization=False,
        initial_deviation=0.0,  # Keras's own initializers: N(0, 0.01^2) is slow to start
        # So are vectors in [-0.1, 0.1]: 3.9 bpc after 340 steps, with these 2.6.
        embeddings_initializer=dict(config=dict(minval=-1.0, maxval=1.0)),
        dropout=0.0,
        recurrent_dropout=0.05,
        weight_dropout=0.0,
        output_dropout=0.0,
        auxiliary_every=5,
        auxiliary_weight=0.0,
    )
    config["data"].update(batch_size=16, window=128, horizon=0, history="carried")
    config["optimizer"].update(learning_rate=3e-3, clip_norm=1.0, weight_decay=0.0)
    config["schedule"].update(factor=0.25, patience=1, minimum=1e-5, epochs=(2,))
    config["training"].update(epochs=3)
    return config


PRESETS = {"paper": paper, "released": released, "small": small}
