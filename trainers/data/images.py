"""Images as sequences of pixels: MNIST, CIFAR-10, SVHN, and those of a user's own files.

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

from trainers.data import downloads, files, image_files
from trainers.data.image_files import SPLITS, Images

_BATCH = 1000  # images, in reading what tensorflow-datasets has prepared


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Images of some classes.

    Attributes:
        train: the training images.
        test: the test images.
        classes: the name of each class.
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


def _in_order(name: str, published: str) -> Callable[..., tfds.core.DatasetBuilder]:
    """Returns what makes a builder of tensorflow-datasets that keeps the order of the files.

    It looks the published builder up when it is first called: that imports all builders of images,
    which no other task needs.

    Args:
        name: of the builder's class, which names its folder.
        published: the data set's name.
    """

    @functools.cache
    def find() -> Any:
        builder = tfds.builder_cls(published)
        return type(name, (_InOrder, builder), {"url_infos": builder.url_infos})

    return lambda **arguments: find()(**arguments)


class ImageSource(NamedTuple):
    """A source of images.

    Attributes:
        title: the name in messages.
        read: reads the images of each of `SPLITS` from the files in a folder.
        classes: the name of each class.
        shape: the shape of an image before it is read pixel by pixel: height and width, and
            channels if there are several.
        builder: returns the builder for tensorflow-datasets; takes its arguments. None: the images
            cannot be downloaded.
        files: the names of the published files.
        sizes: the published number of images of each split; None: nobody has published one.
        mean: what is subtracted from values that go from 0 to 1, as by the authors' script.
        deviation: what they are then divided by.
    """

    title: str
    read: Callable[[epath.PathLike], dict[str, Images]]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    builder: Callable[..., tfds.core.DatasetBuilder] | None = None
    files: tuple[str, ...] = ()
    sizes: dict[str, int] | None = None
    mean: float = 0.5
    deviation: float = 0.5

    @property
    def sequence_shape(self) -> tuple[int, int]:
        """Time steps and channels of an image read pixel by pixel."""
        height, width, channels = (*self.shape, 1)[:3]
        return height * width, channels


MNIST = ImageSource(
    "MNIST",
    image_files.read_mnist,
    tuple("0123456789"),
    (28, 28),
    _in_order("MnistInOrder", "mnist"),
    tuple(f"{name}.gz" for pair in image_files.MNIST_FILES.values() for name in pair),
    {"train": 60_000, "test": 10_000},
    mean=0.1307,
    deviation=0.3081,
)

CIFAR10 = ImageSource(
    "CIFAR-10",
    image_files.read_cifar10,
    tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
    (32, 32, 3),
    _in_order("Cifar10InOrder", "cifar10"),
    tuple(name for names in image_files.CIFAR10_FILES.values() for name in names),
    {"train": 50_000, "test": 10_000},
)

SVHN = ImageSource(
    "SVHN",
    image_files.read_svhn,
    tuple("0123456789"),
    (32, 32, 3),
    _in_order("SvhnInOrder", "svhn_cropped"),
    tuple(image_files.SVHN_FILES.values()),
    {"train": 73_257, "test": 26_032},
)


def load(
    source: ImageSource,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
) -> ImageSet:
    """Loads images; warns if their number is not the published one.

    Args:
        source: which images.
        data_dir: the folder of the files; None to download the published ones.
        cache_dir: a local folder for downloads, which may be deleted at any time; None:
            `files.DEFAULT_CACHE_DIR`.

    Raises:
        ValueError: a file is missing or not valid, or there is nothing to download.
        OSError: the images cannot be downloaded.
    """
    if data_dir is not None:
        parts = source.read(data_dir)
        for split in SPLITS:
            _check(source, split, parts[split])
    elif source.builder is not None:
        cache = files.cache_folder(cache_dir)
        parts = _prepared(source, source.builder, cache)
    else:
        raise ValueError(
            f"--data_dir must be the folder with the files of {source.title}, which cannot be "
            "downloaded. Received: --data_dir=None"
        )
    _warn_if_partial(source, {split: len(parts[split].labels) for split in SPLITS})
    return ImageSet(**parts, classes=source.classes)


def _check(source: ImageSource, split: str, content: Images) -> None:
    """Refuses what a source has read, if it is not what the source says of itself."""
    pixels, labels = content
    received = f"pixels {pixels.dtype} of shape {pixels.shape}, {len(labels)} labels"
    count, classes = len(pixels), len(source.classes)
    fits = pixels.dtype == np.uint8 and pixels.shape[1:] == source.sequence_shape
    if not (count and fits and labels.shape == (count,)):
        height, width = source.shape[:2]
        raise ValueError(
            f"the {split} images of {source.title} must be at least one, each of {height} x "
            f"{width} pixels: uint8 of shape {(None, *source.sequence_shape)}, with a label each. "
            f"Received: {received}"
        )
    if labels.dtype != np.int32 or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"the {split} labels of {source.title} must be int32 from 0 to {classes - 1}. "
            f"Received: {labels.dtype} from {labels.min()} to {labels.max()}"
        )


def normalise(source: ImageSource, pixels: np.ndarray | tf.Tensor) -> tf.Tensor:
    """Returns pixels as the authors' script feeds them to the network, float32.

    That is (pixel / 255 - mean) / deviation, by the data set's mean and deviation.

    Args:
        source: whose pixels.
        pixels: from 0 to 255, of any shape.
    """
    return (tf.cast(pixels, tf.float32) / 255 - source.mean) / source.deviation


def as_sequences(source: ImageSource, pictures: tf.Tensor) -> tf.Tensor:
    """Returns images `[B, *shape]` as the network reads them, row by row: `[B, T, p]` float32.

    Args:
        source: whose images.
        pictures: from 0 to 255.
    """
    _, channels = source.sequence_shape
    return normalise(
        source, tf.reshape(pictures, [tf.shape(pictures)[0], -1, channels])
    )


def split(images: Images, validation: int, seed: int) -> tuple[Images, Images]:
    """Draws a validation part; both parts keep the order of `images`.

    Args:
        images: the training images, N of them.
        validation: the size of the validation part, from 1 to N - 1.
        seed: the seed of the draw.

    Returns:
        the images that remain for training, and the validation part.

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


def _prepared(
    source: ImageSource,
    make_builder: Callable[..., tfds.core.DatasetBuilder],
    cache: epath.Path,
) -> dict[str, Images]:
    with downloads.quiet():
        builder = make_builder(data_dir=cache / "tensorflow_datasets")
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


def _warn_if_partial(source: ImageSource, sizes: dict[str, int]) -> None:
    if source.sizes is not None and sizes != source.sizes:
        logging.warning(
            "%s: these are not all of the published images, so that no result on them stands "
            "beside another: there are %s; published are %s",
            source.title,
            _numbers(sizes),
            _numbers(source.sizes),
        )


def _numbers(sizes: dict[str, int]) -> str:
    return " + ".join(f"{sizes[split]:,}" for split in SPLITS)
