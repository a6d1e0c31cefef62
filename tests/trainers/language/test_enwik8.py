"""enwik8 by bytes, with a small file in its place."""

import json
import re
import zipfile

import numpy as np
import pytest
from absl.testing import flagsaver

from tests.refusals import refuses
from tests.trainers import calls
from trainers import lm
from trainers.language import corpora
from trainers.tasks import registry

# Bytes of Wikipedia's markup, beyond ASCII too; a part may end within a character or a line.
CONTENT = ("<page>\n  ''Anarchism'' — Αναρχία \r\n== [[été]] ==\n\n" * 60).encode()[
    :3001
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "enwik8").write_bytes(CONTENT)
    return tmp_path


def decoded(corpus, split):
    text = corpus.vocabulary.decode(getattr(corpus, split))
    return text.encode("latin-1")


def test_each_byte_is_a_token_and_the_parts_are_90_5_and_5_percent(folder):
    corpus = corpora.load("enwik8", folder, folder / "cache")
    parts = [decoded(corpus, split) for split in ("train", "validation", "test")]
    assert b"".join(parts) == CONTENT
    assert [len(part) for part in parts] == [2701, 150, 150]
    assert corpus.vocabulary.size == len(set(CONTENT)) + 1  # and <unk>


def test_the_archive_has_the_same(folder):
    plain = corpora.load("enwik8", folder, folder / "cache")
    with zipfile.ZipFile(folder / "enwik8.zip", "w") as archive:
        archive.write(folder / "enwik8", "enwik8")
    (folder / "enwik8").unlink()
    packed = corpora.load("enwik8", folder, folder / "other")
    assert packed.checksums == plain.checksums
    np.testing.assert_array_equal(packed.train, plain.train)


def test_a_text_of_the_users_has_the_same_bytes():
    assert registry.get("enwik8").list_tokens("é\n") == ["Ã", "©", "<eos>"]


@pytest.mark.parametrize(
    "content, message",
    [
        (
            None,
            "--data_dir must be a folder of enwik8.zip .or enwik8 itself.*which lacks enwik8.z",
        ),
        (b"no archive", "enwik8.zip is not the published archive of enwik8"),
    ],
)
def test_files_that_are_not_there(tmp_path, content, message):
    if content:
        (tmp_path / "enwik8.zip").write_bytes(content)
    with refuses(message):
        corpora.load("enwik8", tmp_path, tmp_path / "cache")
    with refuses("Received: no --data_dir"):
        corpora.load("enwik8", None, tmp_path / "cache")


def test_it_trains_and_is_told_in_bits(folder, own_settings, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(folder / "home"))
    flags = calls.flags(f"""
        model.units=6 model.output_units=4 model.embedding_units=4 data.batch_size=4
        data.window=60 training.epochs=1 training.steps=3 training.jit_compile=False
        evaluation.batch_size=2 --data_dir={folder} --workdir={folder}/run
        --task=enwik8 --preset=small
    """)
    with flagsaver.flagsaver():
        lm.parse_flags(["lm", *flags])
        assert lm.main(["lm"]) == 0
    assert re.search(
        r"test bpc: exact [\d.]+ \(149 characters\)", capsys.readouterr().out
    )
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["scores"]["test"]["exact"]["bpc"] > 0
