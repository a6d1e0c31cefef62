"""Reads the published files of MNIST, CIFAR-10 and SVHN; an error names a file that is not sound.

MNIST    IDX files (http://yann.lecun.com/exdb/mnist), with gzip or without: big-endian numbers for
         the kind, the number of items and the size of each, then the items' bytes
CIFAR-10 the binary version (https://www.cs.toronto.edu/~kriz/cifar.html): for each image a label,
         then 1,024 bytes of red, of green and of blue
SVHN     Format 2 (http://ufldl.stanford.edu/housenumbers): Matlab files with X, the images' bytes
         `[32, 32, 3, N]`, and y, their labels, in which 10 is the digit 0
"""

import gzip
import math
import os
import zlib
from typing import NamedTuple

import numpy as np
import scipy.io
from etils import epath

from trainers.data.stores import to_path
from trainers.data.text import find_files, is_there

SPLITS = ("train", "test")
CLASSES = 10  # in each
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
CIFAR10_FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
_MNIST_SHAPE = (28, 28)
_SVHN_SHAPE = (32, 32, 3)
_CIFAR10_FOLDER = "cifar-10-batches-bin"  # in the published archive
_CIFAR10_CHANNELS, _CIFAR10_PIXELS = 3, 32 * 32
_CIFAR10_RECORD = 1 + _CIFAR10_CHANNELS * _CIFAR10_PIXELS  # bytes


class Images(NamedTuple):
    """Images as sequences of pixels, with their classes.

    Attributes:
        pixels: `[N, height * width, channels]` uint8; an image's pixels row by row.
        labels: `[N]` int32; classes from 0 on.
    """

    pixels: np.ndarray
    labels: np.ndarray


def read_mnist(data_dir: epath.PathLike) -> dict[str, Images]:
    """Reads "train" and "test" of MNIST from its four files, in the files' order.

    Raises:
        ValueError: a file is missing or not valid.
    """
    folder = to_path(data_dir)
    names = [name for pair in MNIST_FILES.values() for name in pair]
    paths = find_files(
        data_dir,
        {name: name if is_there(folder / name) else f"{name}.gz" for name in names},
    )
    return {
        split: _labelled(paths[images], paths[labels])
        for split, (images, labels) in MNIST_FILES.items()
    }


def read_cifar10(data_dir: epath.PathLike) -> dict[str, Images]:
    """Reads "train" and "test" of CIFAR-10 from its binary files, in the files' order.

    Args:
        data_dir: the folder of the files, or the folder that holds `cifar-10-batches-bin`. Some of
            the five training files may be missing.

    Raises:
        ValueError: all training files or the test file are missing, or a file is not valid.
    """
    folder = to_path(data_dir)
    if (folder / _CIFAR10_FOLDER).is_dir():
        folder = folder / _CIFAR10_FOLDER
    present = [name for name in CIFAR10_FILES["train"] if is_there(folder / name)]
    names = {"train": present or CIFAR10_FILES["train"], "test": CIFAR10_FILES["test"]}
    paths = find_files(
        folder, {name: name for split in SPLITS for name in names[split]}
    )
    read = {split: [_cifar10(paths[name]) for name in names[split]] for split in SPLITS}
    return {
        split: Images(*map(np.concatenate, zip(*read[split], strict=True)))
        for split in read
    }


def read_svhn(data_dir: epath.PathLike) -> dict[str, Images]:
    """Reads "train" and "test" of SVHN, 32 x 32, from its Matlab files, in the files' order.

    Raises:
        ValueError: a file is missing or not valid.
    """
    paths = find_files(data_dir, SVHN_FILES)
    return {split: _svhn(paths[split]) for split in SPLITS}


def _svhn(path: epath.Path) -> Images:
    try:
        with path.open("rb") as file:
            content = scipy.io.loadmat(file, variable_names=["X", "y"])
    except Exception as error:  # scipy raises many types
        message = f"{type(error).__name__}: {error}"
        raise _refusal(path, "be a Matlab file of version 5", message) from error
    missing = [name for name in ("X", "y") if name not in content]
    if missing:
        raise _refusal(path, "hold X and y", f"a file without {' and '.join(missing)}")
    pixels, labels = content["X"], content["y"].ravel()
    if pixels.ndim != 4 or pixels.shape[:3] != _SVHN_SHAPE or pixels.dtype != np.uint8:
        received = f"X of shape {_by(pixels.shape)}, {pixels.dtype}"
        raise _refusal(path, "hold X of shape 32 x 32 x 3 x N, uint8", received)
    count = pixels.shape[-1]
    if not count or len(labels) != count:
        received = f"{count:,} images and {len(labels):,} labels"
        raise _refusal(path, "hold as many labels as images, at least one", received)
    if labels.min() < 1 or labels.max() > CLASSES:
        received = f"labels from {labels.min()} to {labels.max()}"
        raise _refusal(path, f"hold labels from 1 to {CLASSES}", received)
    ordered = np.ascontiguousarray(pixels.transpose(3, 0, 1, 2))
    flat = ordered.reshape(count, -1, _SVHN_SHAPE[-1])
    return Images(flat, (labels % CLASSES).astype(np.int32))


def _labelled(images: epath.Path, labels: epath.Path) -> Images:
    """Reads one split of MNIST."""
    pixels, classes = _idx(images, _MNIST_SHAPE), _idx(labels, ())
    if len(pixels) != len(classes):
        raise _refusal(
            labels,
            f"hold {len(pixels):,} labels, as {images.name} holds images",
            f"{len(classes):,}",
        )
    return Images(pixels.reshape(len(pixels), -1, 1), _checked_labels(labels, classes))


def _idx(path: epath.Path, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the bytes `[N, *shape]` of an IDX file."""
    content = _content(path)
    # 8 stands for bytes; the number of dimensions follows.
    magic = bytes([0, 0, 8, 1 + len(shape)])
    if content[:4] != magic:
        kind = "images" if shape else "labels"
        expected = f"begin with the bytes {magic.hex(' ')}, of an IDX file of {kind}"
        raise _refusal(path, expected, content[:4].hex(" ") or "no bytes")
    start = 4 * (2 + len(shape))
    if len(content) < start:
        raise _refusal(
            path, f"have a header of {start} bytes", f"a file of {len(content)} bytes"
        )
    count, *size = np.frombuffer(content[4:start], ">u4").tolist()
    if tuple(size) != shape:
        raise _refusal(
            path, f"hold images of {_by(shape)} pixels", f"images of {_by(size)} pixels"
        )
    if not count:
        raise _refusal(path, "hold at least one item", "a header that tells of none")
    length, received = count * math.prod(shape), len(content) - start
    if received != length:
        expected = (
            f"hold {length:,} bytes after its header, which tells of {count:,} items"
        )
        raise _refusal(path, expected, f"{received:,} bytes")
    return np.frombuffer(content, np.uint8, offset=start).reshape(count, *shape)


def _content(path: epath.Path) -> bytes:
    """Returns a file's content, unpacked where its name ends in .gz."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with path.open("rb") as file, gzip.open(file) as unpacked:
            return unpacked.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _refusal(
            path, "be a whole gzip file", f"{type(error).__name__}: {error}"
        ) from error


def _cifar10(path: epath.Path) -> Images:
    content = path.read_bytes()
    if not content or len(content) % _CIFAR10_RECORD:
        raise _refusal(
            path,
            f"hold {_CIFAR10_RECORD:,} bytes for each image, and at least one image",
            f"{len(content):,} bytes",
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR10_RECORD)
    planes = records[:, 1:].reshape(-1, _CIFAR10_CHANNELS, _CIFAR10_PIXELS)
    pixels = np.ascontiguousarray(planes.transpose(0, 2, 1))
    return Images(pixels, _checked_labels(path, records[:, 0]))


def _checked_labels(path: epath.Path, labels: np.ndarray) -> np.ndarray:
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        raise _refusal(
            path,
            f"hold labels from 0 to {CLASSES - 1}",
            f"{labels[wrong[0]]}, of image {wrong[0]:,} counted from 0",
        )
    return labels.astype(np.int32)


def _by(size: list[int] | tuple[int, ...]) -> str:
    return " x ".join(map(str, size))


def _refusal(path: epath.Path, expected: str, received: str) -> ValueError:
    return ValueError(f"{os.fspath(path)} must {expected}. Received: {received}")
