"""DRAW on MNIST, SVHN and CIFAR-10.

Each value has its source beside it. "Kuo": Kuo et al. 2020, section V.B. "Gregor": Gregor et al.
2015, table 3, recalled and not checked. "JB": the published program jbornschein/draw, a second
reading of the paper. "ours": chosen here; no source tells.
"""


def paper() -> dict:
    """MNIST, binarised, at the sizes of the paper."""
    return dict(
        model=dict(
            steps=64,  # Gregor, JB
            units=256,  # Gregor, JB
            latent_units=100,  # Gregor, JB
            read=2,  # Gregor, JB
            write=5,  # Gregor, JB
        ),
        data=dict(
            batch_size=100,  # JB
            validation=10_000,  # ours: the split of binarised MNIST as it is published
            pixels="drawn",  # Gregor: binarised; one draw of each pixel, as published
        ),
        # No source has weight decay.
        optimizer=dict(
            name="adam",  # Gregor, JB
            learning_rate=3e-4,  # JB
            clip_norm=10.0,  # JB
        ),
        schedule=dict(factor=0.3, epochs=()),  # ours: the rate stays
        training=dict(
            epochs=200,  # ours
            log_every_steps=50,  # ours
            checkpoint_every_steps=200,  # ours
        ),
    )


def small() -> dict:
    """A small form for two CPU cores; every value ours."""
    config = paper()
    config["model"].update(steps=10, units=128, latent_units=20, read=5)
    config["optimizer"].update(learning_rate=1e-3)
    config["training"].update(epochs=20)
    return config


def svhn() -> dict:
    """SVHN, grey values as probabilities."""
    config = paper()
    config["model"].update(
        steps=32,  # Kuo
        units=800,  # Kuo
        latent_units=100,  # Kuo
        read=12,  # Gregor
        write=12,  # Gregor
    )
    config["data"].update(
        validation=7_257,  # ours
        pixels="grey",  # Kuo
    )
    return config


def cifar10() -> dict:
    """CIFAR-10, grey values as probabilities."""
    config = svhn()
    config["model"].update(
        steps=64,  # Gregor
        units=400,  # Gregor
        latent_units=200,  # Gregor
        read=5,  # Gregor
        write=5,  # Gregor
    )
    config["data"].update(validation=5_000)  # ours
    return config


def small_colour() -> dict:
    """`small` for images in colour, of which there may be few."""
    config = small()
    config["data"].update(validation=500, pixels="grey")
    return config


MNIST = {"paper": paper, "small": small}
SVHN = {"paper": svhn, "small": small_colour}
CIFAR10 = {"paper": cifar10, "small": small_colour}
