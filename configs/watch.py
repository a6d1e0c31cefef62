"""Exercises recorded by a smartwatch (`trainers.data.watch`): which of seven one is doing.

Every value is ours: chosen here. Burns et al. (2018) train other networks, on windows of other
lengths, and their folds are not published.
"""


def small() -> dict:
    """A minute of one CPU core."""
    return dict(
        model=dict(
            units=64,  # ours: 72K parameters
            depth=5,  # ours: each dilation once
            kernel_size=4,  # ours: each step by one path, as in `small` of configs/seq_mnist.py
            dilation_rate=(1, 4, 16, 64, 256),  # ours: 1,024 steps, more than a window
            output_units=32,  # ours
            recurrent_dropout=0.15,  # ours
            weight_dropout=0.1,  # ours
            output_dropout=0.2,  # ours
        ),
        data=dict(
            window=512,  # ours: ten seconds at 50 Hz, two or three repetitions
            hop=64,  # ours
            fold=None,  # ours: the seed's
            batch_size=32,  # ours
        ),
        optimizer=dict(
            name="adam",  # ours
            learning_rate=4e-3,  # ours
            clip_norm=0.5,  # ours
        ),
        schedule=dict(
            factor=0.1,  # ours: without a use, since `steps` has a cosine
            epochs=(),  # ours
        ),
        training=dict(
            steps=2_000,  # ours: 40 seconds
            epochs=10,  # ours: validations
            log_every_steps=50,  # ours
            checkpoint_every_steps=500,  # ours
            jit_compile=True,  # ours
        ),
    )


def stem() -> dict:
    """A quarter of a minute of one CPU core: a convolution of stride 4 before three levels.

    Streamed it costs a seventh of `small` a sample, and keeps a fourteenth of its cache.
    """
    config = small()
    config["model"].update(
        stem=dict(filters=(32,), kernel_size=(8,), strides=(4,)),  # ours
        depth=3,  # ours
        dilation_rate=(1, 4, 16),  # ours: 64 steps of the stem, five seconds
    )
    # ours: with 2,000 the best validation is that of step 600
    config["training"].update(steps=1_000)
    return config


PRESETS = {"small": small, "stem": stem}
