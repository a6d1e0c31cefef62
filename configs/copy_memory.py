"""Copy memory: ten symbols, and again after 1,000 steps (`trainers.data.long_memory.copy_memory`).

Sources, given beside each value: "released": the defaults of `copymem_test.py` in
https://github.com/locuslab/TCN, the code of Bai, Kolter and Koltun (2018), "An Empirical Evaluation
of Generic Convolutional and Recurrent Networks for Sequence Modeling"; "paper": that paper; "ours":
chosen here.
"""

import ml_collections

PRESETS = ("tcn", "small")


def get_config(preset: str = "tcn") -> ml_collections.ConfigDict:
    """Returns the locked config of one of `PRESETS`."""
    config = {"tcn": tcn, "small": small}[preset]()
    return ml_collections.ConfigDict(config).lock()


def tcn() -> dict:
    """The experiment that TCNs were published with, a trellis network in the TCN's place.

    The authors have no validation data, and read the test set after each epoch.
    """
    return dict(
        seed=1111,  # released
        model=dict(
            units=22,  # ours: 16.5K parameters; the paper's networks have 16K
            depth=4,  # ours: each dilation once
            kernel_size=8,  # released
            dilation_rate=(1, 8, 64, 512),  # ours: each step by one path
            initial_deviation=0.1,  # ours
        ),
        data=dict(
            steps=1_000,  # released: from the symbols to the answer
            batch_size=32,  # released
            train=10_000,  # released
            validation=1_000,  # ours
            test=1_000,  # released
        ),
        optimizer=dict(
            name="adam",  # ours: released: RMSprop, which the trainers do not have
            learning_rate=5e-4,  # released
            clip_norm=1.0,  # released
            weight_decay=0.0,  # released
        ),
        schedule=dict(
            factor=0.5,  # ours; of no effect without a plateau rule or epochs
            patience=ml_collections.config_dict.placeholder(int),  # released: the rate stays
            minimum=0.0,  # released: likewise
            epochs=(),  # released: likewise
            average=False,  # released: none
        ),
        training=dict(
            epochs=50,  # released
            log_every_steps=50,  # released
            checkpoint_every_steps=400,  # ours
        ),
        evaluation=dict(
            batch_size=250,  # ours: sequences a call; changes no number
        ),
    )


def small() -> dict:
    """A minute of one CPU core; every change ours, found by trials of a minute.

    After 500 steps instead of 100 such a network has learnt nothing in its first 1,000 batches.
    """
    config = tcn()
    config["model"].update(
        units=24,
        depth=3,
        kernel_size=5,
        dilation_rate=(1, 5, 25),
        initial_deviation=0.2,
    )
    config["data"].update(steps=100)
    config["optimizer"].update(learning_rate=2e-2)
    config["schedule"].update(factor=0.3, epochs=(6, 8))
    config["training"].update(epochs=10)
    return config
