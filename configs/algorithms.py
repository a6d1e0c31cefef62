"""What the presets of addition and memorization share (`trainers.data.algorithms`).

Sources, given beside each value: "A": the appendix of He et al. (2017), "Wider and Deeper, Cheaper
and Faster: Tensorized LSTMs for Sequence Learning", https://arxiv.org/abs/1711.01577; "recalled":
known from that paper, not checked; "ours": chosen here.
"""


def paper(size: int) -> dict:
    """The published experiment with a state of `size` x `size` places."""
    return dict(
        model=dict(
            layer="tensorized",
            units=400,  # recalled: channels of a place
            tensorized=dict(
                size=size,  # recalled: the depth L with the best result
                rank=3,  # recalled: 3-D
                kernel_size=3,  # recalled
                channel_normalization=True,  # recalled
                forget_bias=1.0,  # A: 1, but for images
            ),
        ),
        data=dict(
            batch_size=15,  # A
            train=50_000,  # ours: examples between two validations
            validation=100,  # ours: the authors stop by the test examples
            test=100,  # A
        ),
        # recalled: no weight decay
        optimizer=dict(
            name="adam",  # A
            learning_rate=1e-3,  # A
            clip_norm=1e9,  # recalled: no clipping
        ),
        # recalled: the rate stays
        schedule=dict(factor=0.1, epochs=()),
        training=dict(
            epochs=100,  # A: 5M examples, each once; theirs ends when all answers are right
            log_every_steps=100,  # ours
            checkpoint_every_steps=1_000,  # ours
        ),
    )


def small(model: dict, train: int, epochs: int) -> dict:
    """Some minutes of one CPU core; every value ours, found by trials of minutes.

    Args:
        model: the config's group `model`.
        train: training examples between two validations.
        epochs: how many validations there are.
    """
    return dict(
        model=model,
        data=dict(batch_size=16, train=train, validation=1_000, test=1_000),
        optimizer=dict(name="adam", learning_rate=5e-3, clip_norm=1.0),
        schedule=dict(factor=0.3, epochs=()),
        training=dict(epochs=epochs, log_every_steps=500, checkpoint_every_steps=5_000),
    )


def tensorized(units: int) -> dict:
    """Returns the group `model` of a line of places, as deep as there are."""
    places = dict(size=4, channel_normalization=True)
    return dict(layer="tensorized", units=units, tensorized=places)


def lstm(units: int) -> dict:
    """Returns the group `model` of Keras's LSTM, one layer."""
    return dict(layer="lstm", units=units)


def trellis(units: int) -> dict:
    """Returns the group `model` of a trellis network that sees 31 steps, more than there are."""
    dilations = (1, 2, 4, 8)
    return dict(layer="trellis", units=units, depth=8, dilation_rate=dilations)
