"""Learning to learn: recurrent optimizers, trained on quadratics and on small networks.

Each value has its source beside it. "Andrychowicz": Andrychowicz et al. 2016, recalled and not
checked. "L2L": their published program, google-deepmind/learning-to-learn. "Kuo": Kuo et al. 2020,
section V.C. "MTL2L": the published program of Kuo's first author from the same year. "ours": chosen
here; no source tells.
"""


def paper() -> dict:
    """Quadratics of ten dimensions, 128 of them at once."""
    return dict(
        model=dict(
            cell="lstm",  # Andrychowicz
            units=20,  # Andrychowicz, Kuo
            layers=2,  # Andrychowicz
            projection=20,  # ours: the 20 inputs of Kuo, who does not say how
            update_rule="added",  # Andrychowicz
            scale=0.1,  # MTL2L; of added updates
            p=10.0,  # Andrychowicz
        ),
        data=dict(
            batch_size=128,  # L2L: optimized at once
            dimensions=10,  # Andrychowicz
            steps=100,  # Andrychowicz, Kuo
            unroll=20,  # Andrychowicz
            episodes=1_000,  # L2L: between two evaluations
            evaluated=128,  # ours
        ),
        optimizer=dict(
            name="adam",  # Andrychowicz
            learning_rate=1e-3,  # L2L
            clip_norm=1e6,  # ours: high enough to clip nothing, as L2L does
        ),
        schedule=dict(factor=0.5, epochs=()),  # ours: the rate stays
        training=dict(
            epochs=10,  # L2L
            log_every_steps=50,  # ours
            checkpoint_every_steps=500,  # ours
        ),
    )


def small() -> dict:
    """Four minutes of a CPU core; every value ours."""
    config = paper()
    config["data"].update(episodes=100)
    config["optimizer"].update(learning_rate=3e-3)
    config["training"].update(epochs=10, checkpoint_every_steps=100)
    return config


def networks() -> dict:
    """One network at once, trained on batches of images."""
    config = paper()
    del config["data"]["dimensions"]
    config["data"].update(
        batch_size=128,  # L2L: images
        evaluated=10,  # ours
        validation=5_000,  # ours
    )
    return config


def small_networks() -> dict:
    """A quarter of an hour of a CPU core; every value ours."""
    config = networks()
    config["data"].update(episodes=50, evaluated=5)
    config["optimizer"].update(learning_rate=3e-3)
    config["training"].update(epochs=10, log_every_steps=10, checkpoint_every_steps=100)
    return config


def few_images() -> dict:
    """`small` for relus, whose gradients are far larger, and for few images; every value ours."""
    config = small_networks()
    config["data"].update(validation=500)
    config["optimizer"].update(learning_rate=1e-3, clip_norm=1.0)
    return config


def residual_networks() -> dict:
    """An IHC-LSTM that trains ResNet-34 by the gated update.

    A training step keeps the gates of 21 million coordinates for 20 steps, in about 570 GiB. The
    paper does not say how its authors went about that.
    """
    config = networks()
    config["model"].update(
        cell="ihc_lstm",  # Kuo; `lstm` beside it
        layers=1,  # ours: the cell of Kuo, whose update is a second one
        update_rule="gated",  # Kuo, after Ravi and Larochelle 2017
    )
    config["data"].update(
        depth=34,  # Kuo
        channels=64,  # He et al. 2016, table 1
        evaluated=10,  # ours; `meta_evaluate --draws=50` tries as many as Kuo
    )
    return config


def small_residual_networks() -> dict:
    """A quarter of an hour of a CPU core; every value ours."""
    config = residual_networks()
    few = few_images()
    config["data"].update(
        batch_size=64,
        depth=8,
        channels=4,
        episodes=16,
        evaluated=5,
        validation=few["data"]["validation"],
    )
    config["optimizer"].update(few["optimizer"])
    config["training"].update(few["training"])
    return config


QUADRATIC = {"paper": paper, "small": small}
MNIST_MLP = {"paper": networks, "small": small_networks}
CIFAR10_CNN = {"paper": networks, "small": few_images}
CIFAR10_RESNET = {"paper": residual_networks, "small": small_residual_networks}
