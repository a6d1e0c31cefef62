"""The adding problem: two marked numbers among 600 (`trainers.data.long_memory.adding`).

Sources, given beside each value: "paper": Bai, Kolter and Koltun (2018), "An Empirical Evaluation
of Generic Convolutional and Recurrent Networks for Sequence Modeling"; "released": the defaults of
`add_test.py` in its authors' https://github.com/locuslab/TCN; "ours": chosen here.
"""


def tcn() -> dict:
    """The experiment that TCNs were published with, a trellis network in the TCN's place.

    The authors have no validation data, and read the test set after each epoch.
    """
    return dict(
        model=dict(
            units=24,  # ours: 12.6K parameters; the paper's TCN has 70K
            depth=5,  # ours: each dilation once
            kernel_size=5,  # ours: paper: 8, in eight levels
            # ours: a step on its own first, then each by one path
            dilation_rate=(1, 1, 5, 25, 125),
            initial_deviation=0.2,  # ours
        ),
        data=dict(
            steps=600,  # paper: the longest of three
            batch_size=32,  # released
            train=50_000,  # released
            validation=1_000,  # ours
            test=1_000,  # released
        ),
        # released: no weight decay
        optimizer=dict(
            name="adam",  # released
            learning_rate=5e-3,  # ours: released: 4e-3
            clip_norm=0.3,  # ours: released: no clipping
        ),
        # released: no plateau rule, no least rate, no averages
        schedule=dict(
            factor=0.3,  # ours: released: the rate stays
            epochs=(5, 7),  # ours: released: none
        ),
        training=dict(
            epochs=8,  # ours: released: 10
            log_every_steps=100,  # released
            checkpoint_every_steps=1_000,  # ours
            jit_compile=True,  # ours: a CPU takes half the time for a step
        ),
    )


def small() -> dict:
    """Three minutes of one CPU core; every change ours, found by trials of a minute."""
    config = tcn()
    config["model"].update(
        kernel_size=4,
        dilation_rate=(1, 1, 4, 16, 64),
        initial_deviation=0.3,
    )
    config["data"].update(steps=200)  # paper: the shortest of three
    config["optimizer"].update(learning_rate=1e-2)
    config["schedule"].update(epochs=(3, 5))
    config["training"].update(epochs=6)
    return config


PRESETS = {"tcn": tcn, "small": small}
