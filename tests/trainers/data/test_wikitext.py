"""Tests of WikiText's files; nothing here reaches for the network."""

import hashlib
import io
import zipfile

import pytest
from etils import epath

from tests.refusals import refuses
from tests.trainers.data import shared_data
from trainers.data import wikitext
from trainers.language import corpora
from trainers.tasks import registry

TEXTS = {
    "wiki.train.tokens": " \n = A b = \n \n b b c <unk> \n",
    "wiki.valid.tokens": " b c d \n",
    "wiki.test.tokens": " c <unk> \n",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in TEXTS.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_order_of_the_vocabulary(folder):
    corpus = corpora.load("wikitext103", folder, folder / "cache")
    assert corpus.vocabulary.tokens == ("<eos>", "=", "A", "b", "c", "<unk>")
    corpus = corpora.load("wikitext103", folder, folder / "cache", order="frequency")
    assert corpus.vocabulary.tokens == ("<eos>", "b", "=", "A", "c", "<unk>")
    decoded = corpus.vocabulary.decode(corpus.train)
    assert decoded.split() == TEXTS["wiki.train.tokens"].split()


def test_text_that_is_not_the_published_one_is_told(folder, caplog):
    corpora.load("wikitext2", folder, folder / "cache")
    assert (
        "has 12 / 4 / 3 tokens and 6 words; published are 2,088,628 / 217,646"
        in caplog.text
    )


def test_missing_file(folder):
    (folder / "wiki.test.tokens").unlink()
    with refuses("a folder of wiki.train.tokens.*lacks wiki.test.tokens"):
        corpora.load("wikitext2", folder, folder / "cache")


def _archive():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in TEXTS.items():
            archive.writestr(f"wikitext-2/{name}", content)
    return packed.getvalue()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The place that the archive is downloaded from: a folder of this machine."""
    (tmp_path / "wikitext-2-v1.zip").write_bytes(_archive())
    archive = wikitext.ARCHIVES["wikitext2"]
    checksum = hashlib.sha256(_archive()).hexdigest()
    monkeypatch.setitem(
        wikitext.ARCHIVES, "wikitext2", archive._replace(sha256=checksum)
    )
    monkeypatch.setattr(wikitext, "_URL", f"{tmp_path.as_uri()}/")
    return tmp_path / "wikitext-2-v1.zip"


def test_downloads_once(published, tmp_path):
    for _ in range(2):
        paths = wikitext.find("wikitext2", None, epath.Path(tmp_path / "downloads"))
        assert {path.name: path.read_text() for path in paths.values()} == TEXTS
        published.unlink(missing_ok=True)
    assert sorted(path.name for path in paths["train"].parent.iterdir()) == sorted(
        TEXTS
    )


def test_download_that_is_another_file(published, tmp_path):
    published.write_bytes(b"please log in")
    with refuses("WikiText cannot be .*wikitext-2-v1.*corrupted.*Ways out", OSError):
        wikitext.find("wikitext2", None, epath.Path(tmp_path / "downloads"))


def test_no_network(tmp_path):
    with refuses("wikitext.smerity.com/wikitext-103-v1.zip.*wiki.train.tok", OSError):
        corpora.load("wikitext103", None, tmp_path)


@shared_data.needs("wikitext-2")
def test_published_counts(tmp_path, caplog):
    corpus = corpora.load("wikitext2", shared_data.FOLDER / "wikitext-2", tmp_path)
    task = registry.get("wikitext2")
    assert corpus.vocabulary.size == task.vocabulary_size
    assert {
        split: len(getattr(corpus, split)) for split in task.lengths
    } == task.lengths
    assert "published" not in caplog.text
