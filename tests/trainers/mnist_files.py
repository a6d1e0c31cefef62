"""MNIST's files, with images of the test's own."""

import numpy as np

NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def idx(items):
    """The IDX format: zero, zero, 8 for bytes, the dimensions' number, their sizes, the bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in items.shape)
    return bytes([0, 0, 8, items.ndim]) + sizes + items.tobytes()


def write(folder, split, images, labels):
    """Writes uint8 images [N, 28, 28] and labels [N] of a split, without gzip."""
    for name, items in zip(NAMES[split], (images, labels), strict=True):
        (folder / name).write_bytes(idx(np.asarray(items, "uint8")))


def write_rows(folder, value):
    """Writes sixty and twenty images of which each class lights a row of its own."""
    for split, count in (("train", 60), ("test", 20)):
        labels = np.arange(count) % 10
        images = np.zeros((count, 28, 28))
        images[np.arange(count), 2 + 2 * labels] = value
        write(folder, split, images, labels)
