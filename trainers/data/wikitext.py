"""WikiText-2 and WikiText-103: articles of Wikipedia, word level (Merity et al., 2016)."""

import functools
import os
import shutil
import zipfile
from typing import NamedTuple

import keras
from absl import logging
from etils import epath

from trainers.data import downloads, files
from trainers.data.text import NO_DOWNLOAD, find_files

FILES = {
    "train": "wiki.train.tokens",
    "validation": "wiki.valid.tokens",
    "test": "wiki.test.tokens",
}
_URL = "https://wikitext.smerity.com/"


class Edition(NamedTuple):
    """A published corpus.

    Attributes:
        archive: The name of the archive that it is downloaded as.
        sha256: The archive's checksum.
        tokens: Tokens of each split, each line's `<eos>` included.
        words: Size of the training text's vocabulary.
    """

    archive: str
    sha256: str
    tokens: dict[str, int]
    words: int


_HELD_OUT = {"validation": 217_646, "test": 245_569}  # the same in both
EDITIONS = {
    "wikitext2": Edition(
        "wikitext-2-v1.zip",
        "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
        {"train": 2_088_628, **_HELD_OUT},
        33_278,
    ),
    "wikitext103": Edition(
        "wikitext-103-v1.zip",
        "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
        {"train": 103_227_021, **_HELD_OUT},
        267_735,
    ),
}


def find(
    task: str, data_dir: epath.PathLike | None, download_dir: epath.Path
) -> dict[str, epath.Path]:
    """Returns the text file of each split.

    Args:
        task: One of `EDITIONS`.
        data_dir: The folder of the three files; None to download them.
        download_dir: Where downloads are kept.

    Raises:
        ValueError: `data_dir` lacks a file.
        OSError: The files cannot be downloaded.
    """
    if data_dir is not None:
        return find_files(data_dir, FILES)
    folder = download_dir / task
    if not all((folder / name).exists() for name in FILES.values()):
        _download(EDITIONS[task], folder)
    return {split: folder / name for split, name in FILES.items()}


def _download(edition: Edition, folder: epath.Path) -> None:
    url = _URL + edition.archive
    folder.mkdir(parents=True, exist_ok=True)  # else Keras takes a folder of its own choice
    try:
        downloads.probe(url)
        archive = keras.utils.get_file(
            edition.archive,
            url,
            file_hash=edition.sha256,
            hash_algorithm="sha256",
            cache_dir=os.fspath(folder),
            cache_subdir="",
        )
    except Exception as error:  # Keras raises what it catches as a plain Exception.
        raise downloads.failure("WikiText", url, error, FILES.values(), NO_DOWNLOAD) from error
    _unpack(epath.Path(archive), folder)


def _unpack(archive: epath.Path, folder: epath.Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.namelist():
            if (name := epath.Path(member).name) in FILES.values():
                with packed.open(member) as text:
                    files.write_atomically(
                        folder / name, functools.partial(shutil.copyfileobj, text)
                    )
    archive.unlink()


def warn_of_other_text(task: str, tokens: dict[str, int], words: int) -> None:
    """Warns where the files in a folder are not the published ones, by what they hold."""
    edition = EDITIONS[task]
    if (tokens, words) != (edition.tokens, edition.words):
        logging.warning(
            "%s: this is not the published text, so that its numbers stand beside no others: it "
            "has %s tokens and %d words; published are %s and %d",
            task,
            _numbers(tokens),
            words,
            _numbers(edition.tokens),
            edition.words,
        )


def _numbers(tokens: dict[str, int]) -> str:
    return " / ".join(f"{count:,}" for count in tokens.values())
