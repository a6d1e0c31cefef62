"""Copy memory: ten symbols, and again after 1,000 steps (`trainers.data.long_memory.copy_memory`).

Sources, given beside each value: "released": the defaults of `copymem_test.py` in
https://github.com/locuslab/TCN, the code of Bai, Kolter and Koltun (2018), "An Empirical Evaluation
of Generic Convolutional and Recurrent Networks for Sequence Modeling"; "paper": that paper; "ours":
chosen here.
"""


def tcn() -> dict:
    """The experiment that TCNs were published with, a trellis network in the TCN's place.

    The authors have no validation data, and read the test set after each epoch.
    """
    return dict(
        model=dict(
            units=32,  # ours: 47K parameters; the paper's networks have 16K
            depth=3,  # ours: each dilation once
            kernel_size=11,  # ours: released: 8, in eight levels
            dilation_rate=(1, 11, 121),  # ours: each step by one path
            initial_deviation=0.15,  # ours
        ),
        data=dict(
            steps=1_000,  # released: from the symbols to the answer
            batch_size=32,  # released
            train=10_000,  # released
            validation=1_000,  # ours
            test=1_000,  # released
        ),
        # released: no weight decay
        optimizer=dict(
            name="adam",  # ours: released: RMSprop, which the trainers do not have
            learning_rate=1e-2,  # ours: released: 5e-4
            clip_norm=1.0,  # released
        ),
        # released: no plateau rule, no least rate, no averages
        schedule=dict(
            factor=0.3,  # ours: released: the rate stays
            epochs=(9, 11),  # ours: released: none
        ),
        training=dict(
            epochs=12,  # ours: released: 50
            log_every_steps=50,  # released
            checkpoint_every_steps=400,  # ours
        ),
    )


def small() -> dict:
    """A minute of one CPU core; every change ours, found by trials of a minute."""
    config = tcn()
    config["model"].update(
        units=24, kernel_size=5, dilation_rate=(1, 5, 25), initial_deviation=0.2
    )
    config["data"].update(steps=100)
    config["optimizer"].update(learning_rate=2e-2)
    config["schedule"].update(epochs=(6, 8))
    config["training"].update(epochs=10)
    return config


PRESETS = {"tcn": tcn, "small": small}
