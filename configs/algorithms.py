"""What the presets of addition and memorization share (`trainers.data.algorithms`).

Sources, given beside each value: "A": the appendix of He et al. (2017), "Wider and Deeper, Cheaper
and Faster: Tensorized LSTMs for Sequence Learning", https://arxiv.org/abs/1711.01577; "recalled":
known from that paper, not checked; "ours": chosen here.
"""

from collections.abc import Callable

Preset = Callable[[], dict]


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
            validation=100,  # ours: the authors end a run by the test examples
            test=100,  # A
        ),
        # recalled: no weight decay
        optimizer=dict(
            name="adam",  # A
            learning_rate=1e-3,  # A
            clip_norm=1e9,  # recalled: no clipping
        ),
        schedule=dict(
            factor=0.1,
            epochs=(),  # recalled: the rate stays
            stop_at=1.0,  # A: when all answers are right
        ),
        training=dict(
            epochs=100,  # A: 5M examples at most, each once
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


def tensorized_square(units: int) -> dict:
    """Returns the group `model` of a square of places, with as many parameters as the line."""
    group = tensorized(units)
    group["tensorized"].update(rank=3)
    return group


def stacked(units: int) -> dict:
    """Returns the group `model` of the paper's stack of LSTMs of one set of weights.

    It is a tensorized LSTM without feedback, memory convolution and normalization.
    """
    group = tensorized(units)
    group["tensorized"].update(
        kernel_size=2, memory_convolution=False, channel_normalization=False
    )
    return group


def grid(units: int) -> dict:
    """Returns the group `model` of the paper's Grid LSTM, as many blocks of one set of weights."""
    return dict(layer="grid_lstm", units=units, layers=4)


def lstm(units: int) -> dict:
    """Returns the group `model` of Keras's LSTM, one layer."""
    return dict(layer="lstm", units=units)


def trellis(units: int) -> dict:
    """Returns the group `model` of a trellis network that sees 31 steps, more than there are."""
    dilations = (1, 2, 4, 8)
    return dict(layer="trellis", units=units, depth=8, dilation_rate=dilations)


def presets(
    published: Preset,
    finish: Callable[[dict], dict],
    trellis_units: int,
    lstm_units: int,
    stacked_units: int,
    grid_units: int,
) -> dict[str, Preset]:
    """Returns the presets of a task: the published one, and layers of as many parameters.

    Args:
        published: the published experiment.
        finish: takes the group `model` of a small preset, and returns its config.
        trellis_units: those of the trellis network.
        lstm_units: those of Keras's LSTM.
        stacked_units: those of the stack of LSTMs of one set of weights.
        grid_units: those of the Grid LSTM.
    """
    return {
        "paper": published,
        "small": lambda: finish(trellis(trellis_units)),
        "small_tensorized": lambda: finish(tensorized(units=40)),
        "small_tensorized_3d": lambda: finish(tensorized_square(units=22)),
        "small_stacked_lstm": lambda: finish(stacked(stacked_units)),
        "small_grid_lstm": lambda: finish(grid(grid_units)),
        "small_lstm": lambda: finish(lstm(lstm_units)),
    }
