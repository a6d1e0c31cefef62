"""MNIST, CIFAR-10 and SVHN as sequences of pixels.

MNIST    60,000 + 10,000 handwritten digits of 28 x 28 pixels, one channel
CIFAR10  50,000 + 10,000 photographs of 32 x 32 pixels, three channels
SVHN     73,257 + 26,032 digits of house numbers, 32 x 32 pixels, three channels

tensorflow-datasets downloads and prepares them, or this module reads the published files in
`data_dir`. The arrays are the same, in the order of the files. tensorflow-datasets itself shuffles
while it writes, and cannot read a user's files. Hence the builders and readers here.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from absl import logging
from etils import epath

from trainers.data import downloads, image_files
from trainers.data.image_files import SPLITS, Images

_BATCH = 1000  # images, in reading what tensorflow-datasets has prepared


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Images of ten classes.

    Attributes:
        train: The training images.
        test: The test images.
        classes: The name of each class.
    """

    train: Images
    test: Images
    classes: tuple[str, ...]


class _InOrder:
    """Makes tensorflow-datasets keep the order of the files."""

    def _info(self) -> tfds.core.DatasetInfo:
        features = super()._info().features  # type: ignore[misc]
        return tfds.core.DatasetInfo(
            builder=self, features=features, disable_shuffling=True
        )


class MnistInOrder(_InOrder, tfds.image_classification.MNIST):
    """MNIST, in the order of its files."""

    url_infos = tfds.image_classification.MNIST.url_infos


class Cifar10InOrder(_InOrder, tfds.image_classification.Cifar10):
    """CIFAR-10, in the order of its files."""

    url_infos = tfds.image_classification.Cifar10.url_infos


@functools.cache
def svhn_in_order() -> Any:
    """Returns the builder of SVHN, in the order of its files.

    tensorflow-datasets names no class for it. It looks the builder up, which takes a while.
    """
    svhn = tfds.builder_cls("svhn_cropped")
    return type("SvhnInOrder", (_InOrder, svhn), {"url_infos": svhn.url_infos})


class ImageSource(NamedTuple):
    """A source of images.

    Attributes:
        title: The name in messages.
        builder: Returns the builder for tensorflow-datasets; takes its arguments.
        read: Reads the images from the files in a folder.
        files: The names of these files.
        sizes: The published number of images of each split.
        classes: The name of each class.
        shape: The shape of an image before it is read pixel by pixel.
        mean: What the authors' script subtracts from values that go from 0 to 1.
        deviation: What it then divides by.
    """

    title: str
    builder: Callable[..., tfds.core.DatasetBuilder]
    read: Callable[[epath.PathLike], dict[str, Images]]
    files: tuple[str, ...]
    sizes: dict[str, int]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    mean: float
    deviation: float

    @property
    def sequence_shape(self) -> tuple[int, int]:
        """Time steps and channels of an image read pixel by pixel."""
        height, width, channels = (*self.shape, 1)[:3]
        return height * width, channels


MNIST = ImageSource(
    "MNIST",
    MnistInOrder,
    image_files.read_mnist,
    tuple(f"{name}.gz" for pair in image_files.MNIST_FILES.values() for name in pair),
    {"train": 60_000, "test": 10_000},
    tuple("0123456789"),
    (28, 28),
    mean=0.1307,
    deviation=0.3081,
)

CIFAR10 = ImageSource(
    "CIFAR-10",
    Cifar10InOrder,
    image_files.read_cifar10,
    tuple(name for names in image_files.CIFAR10_FILES.values() for name in names),
    {"train": 50_000, "test": 10_000},
    tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
    (32, 32, 3),
    mean=0.5,
    deviation=0.5,
)

SVHN = ImageSource(
    "SVHN",
    lambda **arguments: svhn_in_order()(**arguments),
    image_files.read_svhn,
    tuple(image_files.SVHN_FILES.values()),
    {"train": 73_257, "test": 26_032},
    tuple("0123456789"),
    (32, 32, 3),
    mean=0.5,
    deviation=0.5,
)


def load(
    source: ImageSource,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
) -> ImageSet:
    """Loads images; warns if their number is not the published one.

    Args:
        source: Which images.
        data_dir: The folder of the published files; None to download them.
        cache_dir: A local folder for downloads, which may be deleted at any time; None:
            `downloads.DEFAULT_CACHE_DIR`.

    Raises:
        ValueError: A file is missing or not valid.
        OSError: The images cannot be downloaded.
    """
    if data_dir is None:
        parts = _prepared(source, downloads.cache_folder(cache_dir))
    else:
        parts = source.read(data_dir)
    _warn_of_a_part(source, {split: len(parts[split].labels) for split in SPLITS})
    return ImageSet(**parts, classes=source.classes)


def normalise(source: ImageSource, pixels: np.ndarray | tf.Tensor) -> tf.Tensor:
    """Returns pixels as the authors' script feeds them to the network, float32.

    That is (pixel / 255 - mean) / deviation, by the data set's mean and deviation.

    Args:
        source: Whose pixels.
        pixels: From 0 to 255, of any shape.
    """
    return (tf.cast(pixels, tf.float32) / 255 - source.mean) / source.deviation


def as_sequences(source: ImageSource, pictures: tf.Tensor) -> tf.Tensor:
    """Returns images `[B, *shape]` as the network reads them, row by row: `[B, T, p]` float32.

    Args:
        source: Whose images.
        pictures: From 0 to 255.
    """
    _, channels = source.sequence_shape
    return normalise(
        source, tf.reshape(pictures, [tf.shape(pictures)[0], -1, channels])
    )


def split(images: Images, validation: int, seed: int) -> tuple[Images, Images]:
    """Draws a validation part; both parts keep the order of `images`.

    Args:
        images: The training images, N of them.
        validation: The size of the validation part, from 1 to N - 1.
        seed: The seed of the draw.

    Returns:
        The images that remain for training, and the validation part.

    Raises:
        ValueError: `validation` is too large.
    """
    count = len(images.labels)
    if validation >= count:
        raise ValueError(
            f"`config.data.validation` must be at most {count - 1}, as there are {count} training "
            f"images. Received: config.data.validation={validation}"
        )
    aside = np.zeros(count, bool)
    aside[np.random.default_rng(seed).choice(count, validation, replace=False)] = True
    rest, chosen = (
        Images(*(array[part] for array in images)) for part in (~aside, aside)
    )
    return rest, chosen


def _prepared(source: ImageSource, cache: epath.Path) -> dict[str, Images]:
    with downloads.quiet():
        builder = source.builder(data_dir=cache / "tensorflow_datasets")
        url = next(iter(builder.url_infos))
        instead = "what needs no download: --task=copy_memory or --task=adding"
        downloads.prepare(builder, source.title, url, source.files, instead)
        return {split: _examples(builder, split) for split in SPLITS}


def _examples(builder: tfds.core.DatasetBuilder, split: str) -> Images:
    batches = list(tfds.as_numpy(builder.as_dataset(split=split).batch(_BATCH)))
    pixels, labels = (
        np.concatenate([batch[feature] for batch in batches])
        for feature in ("image", "label")
    )
    return Images(
        pixels.reshape(len(pixels), -1, pixels.shape[-1]), labels.astype(np.int32)
    )


def _warn_of_a_part(source: ImageSource, sizes: dict[str, int]) -> None:
    if sizes != source.sizes:
        logging.warning(
            "%s: these are not all of the published images, so that no result on them stands "
            "beside another: there are %s; published are %s",
            source.title,
            _numbers(sizes),
            _numbers(source.sizes),
        )


def _numbers(sizes: dict[str, int]) -> str:
    return " + ".join(f"{sizes[split]:,}" for split in SPLITS)
