"""Tests of the cache of encoded ids."""

import json
import pathlib

import numpy as np
import pytest

from trainers.data import encoding

TEXTS = {
    "train": [["a", "b"], ["a", "<eos>"]],
    "validation": [["b", "what", "<eos>"]],
    "test": [["a", "<eos>"]],
}


class _Source(encoding.Source):
    """A source that counts how often it is read."""

    def __init__(self, texts=TEXTS, on_read=lambda: None, **fields):
        object.__setattr__(self, "reads", [])

        def tokens(split):
            self.reads.append(split)
            on_read()
            return iter(texts[split])

        checksums = {split: repr(text) for split, text in texts.items()}
        labels = {split: f"{split}.txt" for split in texts}
        super().__init__("corpus", labels, checksums, tokens, **fields)


def _folder(cache):
    (folder,) = (cache / "encoded").iterdir()
    return folder


def _assert_right(vocabulary, ids):
    assert vocabulary.tokens == ("a", "b", "<eos>", "<unk>")
    np.testing.assert_array_equal(ids["train"], [0, 1, 0, 2])
    np.testing.assert_array_equal(ids["validation"], [1, 3, 2])
    np.testing.assert_array_equal(ids["test"], [0, 2])


def test_encodes_once_and_maps_memory(tmp_path):
    source = _Source()
    _assert_right(*encoding.encoded(source, tmp_path))
    source.reads.clear()
    vocabulary, ids = encoding.encoded(source, tmp_path)
    _assert_right(vocabulary, ids)
    assert not source.reads
    for array in ids.values():
        assert isinstance(array, np.memmap) and array.dtype == np.int32
        assert not array.flags.writeable


def test_only_whole_folders_appear(tmp_path):
    seen = []
    source = _Source(on_read=lambda: seen.extend((tmp_path / "encoded").glob("corpus-*")))
    encoding.encoded(source, tmp_path)
    assert not seen
    assert sorted(path.name for path in _folder(tmp_path).iterdir()) == [
        "meta.json", "test.npy", "train.npy", "validation.npy", "vocabulary.txt",
    ]  # fmt: skip


def test_failure_leaves_nothing(tmp_path):
    def fail():
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        encoding.encoded(_Source(on_read=fail), tmp_path)
    assert not list((tmp_path / "encoded").iterdir())


def test_changed_text_is_encoded_anew(tmp_path):
    encoding.encoded(_Source(), tmp_path)
    changed = _Source(TEXTS | {"test": [["b", "b", "<eos>"]]})
    _, ids = encoding.encoded(changed, tmp_path)
    np.testing.assert_array_equal(ids["test"], [1, 1, 2])
    vocabulary, _ = encoding.encoded(_Source(minimum_count=2), tmp_path)
    assert vocabulary.tokens == ("a", "<eos>", "<unk>")


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _age(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train.npy", _truncate),
        ("train.npy", _flip),
        ("test.npy", pathlib.Path.unlink),
        ("vocabulary.txt", _flip),
        ("meta.json", _truncate),
        ("meta.json", lambda path: path.write_text("[]")),
        ("meta.json", pathlib.Path.unlink),
        ("meta.json", _age),
    ],
)
def test_damaged_cache_is_encoded_again(tmp_path, caplog, name, damage):
    encoding.encoded(_Source(), tmp_path)
    damage(_folder(tmp_path) / name)
    source = _Source()
    _assert_right(*encoding.encoded(source, tmp_path))
    assert source.reads
    assert "Encoding corpus again" in caplog.text and str(_folder(tmp_path)) in caplog.text
    source.reads.clear()
    _assert_right(*encoding.encoded(source, tmp_path))
    assert not source.reads


def test_two_processes_at_once(tmp_path):
    def other():
        if not list((tmp_path / "encoded").glob("corpus-*")):
            encoding.encoded(_Source(), tmp_path)

    source = _Source(on_read=other)
    _assert_right(*encoding.encoded(source, tmp_path))
    assert _folder(tmp_path).exists()


@pytest.mark.parametrize(
    ("split", "chunks", "message"),
    [
        ("train", [], "train.txt holds no words"),
        ("train", [["<eos>", "<eos>"]], "train.txt holds no words"),
        ("test", [], "test.txt holds 0 tokens; expected at least 2"),
    ],
)
def test_too_little_text(tmp_path, split, chunks, message):
    with pytest.raises(ValueError, match=message):
        encoding.encoded(_Source(TEXTS | {split: chunks}), tmp_path)


def test_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cache_dir=.*file.* cannot be written"):
        encoding.encoded(_Source(), tmp_path / "file")


def test_remote_cache_is_refused():
    with pytest.raises(ValueError, match="a local folder.*Received: cache_dir='gs://bucket/x'"):
        encoding.encoded(_Source(), "gs://bucket/x")
