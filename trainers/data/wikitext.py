"""WikiText-2 and WikiText-103: articles of Wikipedia, word level (Merity et al., 2016)."""

import functools
import os
import shutil
import zipfile
from typing import NamedTuple

import keras
from etils import epath

from trainers.data import downloads, files
from trainers.data.text import NO_DOWNLOAD, find_files

FILES = {
    "train": "wiki.train.tokens",
    "validation": "wiki.valid.tokens",
    "test": "wiki.test.tokens",
}
_URL = "https://wikitext.smerity.com/"


class Archive(NamedTuple):
    """The file that a corpus is downloaded as: its name and its checksum."""

    name: str
    sha256: str


ARCHIVES = {
    "wikitext2": Archive(
        "wikitext-2-v1.zip",
        "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    ),
    "wikitext103": Archive(
        "wikitext-103-v1.zip",
        "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
    ),
}


def find(
    name: str, data_dir: epath.PathLike | None, download_dir: epath.Path
) -> dict[str, epath.Path]:
    """Returns the text file of each split.

    Args:
        name: one of `ARCHIVES`.
        data_dir: the folder of the three files; None to download them.
        download_dir: where downloads are kept.

    Raises:
        ValueError: `data_dir` lacks a file.
        OSError: the files cannot be downloaded.
    """
    if data_dir is not None:
        return find_files(data_dir, FILES)
    folder = download_dir / name
    if not all((folder / file).exists() for file in FILES.values()):
        _download(ARCHIVES[name], folder)
    return {split: folder / file for split, file in FILES.items()}


def _download(archive: Archive, folder: epath.Path) -> None:
    url = _URL + archive.name
    # Without the folder Keras takes one of its own choice.
    folder.mkdir(parents=True, exist_ok=True)
    with downloads.attempt("WikiText", url, FILES.values(), NO_DOWNLOAD):
        path = keras.utils.get_file(
            archive.name,
            url,
            file_hash=archive.sha256,
            hash_algorithm="sha256",
            cache_dir=os.fspath(folder),
            cache_subdir="",
        )
    _unpack(epath.Path(path), folder)


def _unpack(archive: epath.Path, folder: epath.Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.namelist():
            if (name := epath.Path(member).name) in FILES.values():
                with packed.open(member) as text:
                    files.write_atomically(
                        folder / name, functools.partial(shutil.copyfileobj, text)
                    )
    archive.unlink()
