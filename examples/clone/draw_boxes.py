"""DRAW learns to draw boxes, with an LSTM and with an IHC-LSTM as its decoder.

The bound says how many nats a drawing's pixels take at most. The mean image, the best guess without
a code, takes more. At the end the program shows how a box grows.

    python examples/clone/draw_boxes.py    # half a minute on two cores

It needs a clone, which has `trainers`. For your own images, change `boxes`: it returns `[count,
height, width, channels]` with values from 0 to 1. `trainers.draw` trains on published images.
"""

import keras
import numpy as np

from keras_trellis.recurrent import IHCLSTMCell
from trainers.drawing.model import DRAW

SIZE = 12
SHADES = " .:oO@"


def boxes(count: int, seed: int) -> np.ndarray:
    """Returns images of one box each, [count, SIZE, SIZE, 1]."""
    generator = np.random.default_rng(seed)
    images = np.zeros((count, SIZE, SIZE, 1), "float32")
    for image in images:
        top, left = generator.integers(0, SIZE - 4, 2)
        height, width = generator.integers(3, 6, 2)
        image[top : top + height, left : left + width] = 1.0
    return images


def nats_of_the_mean(images: np.ndarray) -> float:
    """Returns -log p of the images' pixels, each with its mean as the probability."""
    mean = images.mean(axis=0).clip(1e-6, 1 - 1e-6)
    entropies = -mean * np.log(mean) - (1 - mean) * np.log(1 - mean)
    return float(entropies.sum())


def learn(decoder_cell: keras.layers.Layer) -> DRAW:
    """Trains and scores a model."""
    keras.utils.set_random_seed(0)
    model = DRAW(
        (SIZE, SIZE, 1), 6, 48, 8, attention=(5, 5), decoder_cell=decoder_cell, seed=0
    )
    model.compile(keras.optimizers.Adam(4e-3))
    model.fit(boxes(6000, seed=0), batch_size=50, epochs=2, verbose=0)
    found = model.evaluate(boxes(500, seed=1), return_dict=True, verbose=0)
    name, size = type(decoder_cell).__name__, decoder_cell.count_params()
    print(
        f"{name}, {size:,} parameters: {found['loss']:.1f} nats, "
        f"{found['kl']:.1f} of them the code's"
    )
    assert found["loss"] < 0.8 * nats_of_the_mean(boxes(500, seed=1))
    return model


def show(canvases: np.ndarray) -> None:
    """Prints an image after each step, side by side."""
    levels = (canvases[..., 0] * (len(SHADES) - 1)).round().astype(int)
    for row in range(SIZE):
        print(" | ".join("".join(SHADES[n] for n in step[row]) for step in levels))


def main() -> None:
    """Trains both and draws with the first."""
    print(f"mean image: {nats_of_the_mean(boxes(500, seed=1)):.1f} nats")
    model = learn(keras.layers.LSTMCell(48))
    learn(IHCLSTMCell(48))
    print("a box copied, after each step:")
    show(np.asarray(model.reconstruct(boxes(1, seed=2)).canvases[0]))


if __name__ == "__main__":
    main()
