"""Images as sequences of pixels: MNIST, CIFAR-10, SVHN, and those of a user's own files.

MNIST    60,000 + 10,000 handwritten digits of 28 x 28 pixels, one channel
CIFAR10  50,000 + 10,000 photographs of 32 x 32 pixels, three channels
SVHN     73,257 + 26,032 digits of house numbers, 32 x 32 pixels, three channels

tensorflow-datasets downloads and prepares them, or this module reads the published files in
`data_dir`. The arrays are the same, in the order of the files. tensorflow-datasets itself shuffles
while it writes, and cannot read a user's files. Hence the readers here, and the builders of
`trainers.data.prepared`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from absl import logging
from etils import epath
from keras import ops

from keras_trellis.types import Tensor
from trainers.data import files, image_files
from trainers.data.image_files import SPLITS, Images


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


class ImageSource(NamedTuple):
    """A source of images.

    Attributes:
        title: the name in messages.
        read: reads the images of each of `SPLITS` from the files in a folder.
        classes: the name of each class.
        shape: the shape of an image before it is read pixel by pixel: height and width, and
            channels if there are several.
        published: the name that tensorflow-datasets has for the images. None: they cannot be
            downloaded.
        files: the names of the published files.
        sizes: the published number of images of each split; None: nobody has published one.
        mean: what is subtracted from values that go from 0 to 1, as by the authors' script.
        deviation: what they are then divided by.
    """

    title: str
    read: Callable[[epath.PathLike], dict[str, Images]]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    published: str | None = None
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
    "mnist",
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
    "cifar10",
    tuple(name for names in image_files.CIFAR10_FILES.values() for name in names),
    {"train": 50_000, "test": 10_000},
)

SVHN = ImageSource(
    "SVHN",
    image_files.read_svhn,
    tuple("0123456789"),
    (32, 32, 3),
    "svhn_cropped",
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
    elif source.published is not None:
        parts = _prepared(source, source.published, files.cache_folder(cache_dir))
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


def normalise(source: ImageSource, pixels: Tensor) -> Tensor:
    """Returns pixels as the authors' script feeds them to the network, float32.

    That is (pixel / 255 - mean) / deviation, by the data set's mean and deviation.

    Args:
        source: whose pixels.
        pixels: from 0 to 255, of any shape.
    """
    return (ops.cast(pixels, "float32") / 255 - source.mean) / source.deviation


def as_sequences(source: ImageSource, pictures: Tensor) -> Tensor:
    """Returns images `[B, *shape]` as the network reads them, row by row: `[B, T, p]` float32.

    Args:
        source: whose images.
        pictures: from 0 to 255.
    """
    _, channels = source.sequence_shape
    rows, *_ = ops.shape(pictures)
    return normalise(source, ops.reshape(pictures, [rows, -1, channels]))


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
    source: ImageSource, published: str, cache: epath.Path
) -> dict[str, Images]:
    # It needs tensorflow-datasets.
    from trainers.data import prepared

    with prepared.quiet():
        builder = prepared.in_order(published)(data_dir=cache / "tensorflow_datasets")
        url = next(iter(builder.url_infos))
        instead = "what needs no download: --task=copy_memory or --task=adding"
        prepared.prepare(builder, source.title, url, source.files, instead)
        return {split: prepared.images(builder, split) for split in SPLITS}


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
