"""The model of a run's config, its size, and its pixels."""

import functools
import math
from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict

from trainers.drawing.model import DRAW
from trainers.models.cells import CELLS
from trainers.models.kinds import count_parameters
from trainers.training import memory


def build(config: ConfigDict, shape: Sequence[int]) -> DRAW:
    """Returns the model of a config for images of shape (height, width, channels).

    Raises:
        ValueError: a part of the config does not suit the images.
    """
    model = config.model
    attention = None
    if model.read is not None:
        attention = (model.read, model.write)
    cell = CELLS[model.decoder]
    return DRAW(
        shape,
        model.steps,
        model.units,
        model.latent_units,
        attention=attention,
        decoder_cell=cell(model.units, name="decoder"),
        seed=config.seed,
        name="draw",
    )


def check(config: ConfigDict, shape: Sequence[int]) -> None:
    """Raises ValueError if the grids of a config do not suit images of a shape."""
    sizes = {name: config.model[name] for name in ("read", "write")}
    given = [size for size in sizes.values() if size is not None]
    most = min(shape[:2])
    if len(given) == 1 or any(size > most for size in given):
        fields = [f"config.model.{name}={size}" for name, size in sizes.items()]
        received = ", ".join(fields)
        raise ValueError(
            "`config.model.read` and `config.model.write` must both be None, or integers of at "
            f"most {most}, the shorter side of the images. Received: {received}"
        )


def parameters(config: ConfigDict, shape: Sequence[int]) -> int:
    """Returns the number of trainable parameters; the model need not be built."""
    return count_parameters(functools.partial(build, config, shape))


def need(config: ConfigDict, shape: Sequence[int]) -> memory.Need:
    """Returns the memory that training takes: each step keeps images, patches and gates."""
    model = config.model
    patches = _pixels(shape, model.read) + _pixels(shape, model.write)
    step_numbers = 6 * math.prod(shape) + 4 * patches + 20 * model.units
    about = model.steps * config.data.batch_size * step_numbers
    return memory.training(config, parameters(config, shape), 0, about)


def binarised(pixels: np.ndarray, split: str) -> np.ndarray:
    """Returns pixels of 0 and 255, each drawn once with its grey value as the probability.

    The draw depends on nothing but the split, so that all runs have the same images.

    Args:
        pixels: uint8, of any shape.
        split: "train" or "test".
    """
    generator = np.random.default_rng(len(split))
    drawn = generator.integers(0, 255, pixels.shape, dtype=np.uint8)
    return np.where(drawn < pixels, np.uint8(255), np.uint8(0))


def _pixels(shape: Sequence[int], taps: int | None) -> int:
    """Returns the numbers in a patch of taps x taps, or in the whole image."""
    if taps:
        return taps * taps * shape[-1]
    return math.prod(shape)
