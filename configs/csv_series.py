"""Tables of the user's own: a start for small data on a CPU. Every value is ours: chosen here."""


def small() -> dict:
    """A network that sees 1,024 rows; how long it trains depends on the data."""
    return dict(
        model=dict(
            units=64,  # ours
            depth=5,  # ours: each dilation once
            kernel_size=4,  # ours
            dilation_rate=(1, 4, 16, 64, 256),  # ours
            output_units=32,  # ours
            recurrent_dropout=0.15,  # ours
            weight_dropout=0.1,  # ours
        ),
        data=dict(
            channels="",  # ours: all columns without another meaning
            id="id",  # ours
            time="",  # ours: the rows are in order
            label="label",  # ours
            answer="series",  # ours
            split="series",  # ours
            split_column="",  # ours
            validation_share=0.15,  # ours
            test_share=0.15,  # ours
            tolerance=0.05,  # ours
            window=None,  # ours: the longest series
            hop=None,  # ours
            crop=0.5,  # ours: so few series have many ends
            batch_size=32,  # ours
        ),
        optimizer=dict(
            name="adam",  # ours
            learning_rate=4e-3,  # ours
            clip_norm=0.5,  # ours
        ),
        schedule=dict(
            factor=0.5,  # ours
            patience=3,  # ours
            resets=True,  # ours: the rate falls again only after as many epochs
            epochs=(),  # ours
            stop_after=10,  # ours
        ),
        training=dict(
            epochs=40,  # ours: the most; `stop_after` ends it before
            epoch_steps=50,  # ours: few series make an epoch of a few steps
            log_every_steps=20,  # ours
            checkpoint_every_steps=200,  # ours
        ),
    )


def stem() -> dict:
    """`small` after a convolution of stride 4, for long series; each series has one answer."""
    config = small()
    config["model"].update(
        stem=dict(filters=(32,), kernel_size=(8,), strides=(4,)),  # ours
        depth=4,  # ours
        dilation_rate=(1, 4, 16, 64),  # ours: 1,028 rows
    )
    return config


PRESETS = {"small": small, "stem": stem}
