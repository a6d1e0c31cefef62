"""A corpus in an object store, scored to a folder in it."""

import functools
import json

import pytest
import tensorflow as tf

from tests.trainers import test_batch as on_a_disk
from trainers import batch
from trainers.data.stores import to_path
from trainers.scoring.corpus import Corpus

pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
models_are_loaded_once = on_a_disk.models_are_loaded_once


@pytest.fixture(autouse=True)
def boto_reads_its_own_files_once(monkeypatch):
    """Beam makes a client for each operation, and each would read them for a third of a second."""
    boto3 = pytest.importorskip("boto3", reason="the extra `s3` is not installed")
    monkeypatch.setattr(boto3.session, "Session", functools.cache(boto3.Session))


def test_a_corpus_in_a_store_has_the_scores_of_one_on_a_disk(store, exports, tmp_path):
    texts = tmp_path / "texts"
    on_a_disk.write_texts(texts)
    with tf.io.TFRecordWriter(str(texts / "e.tfrecord")) as writer:
        for text in on_a_disk.TEXTS:
            writer.write(text.encode())
    for path in texts.iterdir():
        (to_path(f"{store.url}/texts") / path.name).write_bytes(path.read_bytes())
    model, found = str(exports["words"].parent), []
    for place in (str(tmp_path), store.url):
        corpus = Corpus(model, f"{place}/texts/*", f"{place}/scores", [])
        counts = batch.score(corpus)
        found.append((counts, contents(f"{place}/scores", place)))
    assert found[0] == found[1]
    assert batch.score(corpus) == counts  # it tells what the folder has
    with pytest.raises(ValueError, match="--output"):
        batch.score(corpus._replace(text_field="other"))


def contents(folder, place):
    """Returns the lines of each file of scores, with names that do not tell the place."""
    found = {}
    for path in to_path(folder).iterdir():
        if path.suffix == ".jsonl":
            text = path.read_bytes().decode().replace(f"{place}/", "")
            found[path.name] = [json.loads(line) for line in text.splitlines()]
    return found
