"""A quarter of weeks ahead, of the carbon dioxide over Mauna Loa (`trainers.data.co2`).

Every value is ours: chosen here.
"""


def small() -> dict:
    """Half a minute of one CPU core."""
    return dict(
        model=dict(
            units=24,  # ours: 11K parameters
            depth=3,  # ours: each dilation once
            kernel_size=4,  # ours
            dilation_rate=(1, 4, 16),  # ours: 64 weeks, more than a year
            recurrent_dropout=0.1,  # ours
            weight_dropout=0.1,  # ours
        ),
        data=dict(
            ahead=13,  # ours: weeks
            validation=364,  # ours: seven years
            test=468,  # ours: nine years, the last
            window=208,  # ours: four years
            hop=13,  # ours
            batch_size=16,  # ours
        ),
        optimizer=dict(
            name="adam",  # ours
            learning_rate=3e-3,  # ours
            clip_norm=0.5,  # ours
            weight_decay=0.0,  # ours
        ),
        schedule=dict(
            factor=0.1,  # ours: without a use, since `steps` has a cosine
            epochs=(),  # ours
        ),
        training=dict(
            steps=400,  # ours
            epochs=10,  # ours: validations
            log_every_steps=40,  # ours
            checkpoint_every_steps=400,  # ours
            jit_compile=True,  # ours
        ),
    )


PRESETS = {"small": small}
