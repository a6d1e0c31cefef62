"""Tests of the cache of encoded ids."""

import contextlib
import io
import itertools
import json
import pathlib
import shutil
import threading
import time

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.refusals import refuses
from trainers.data import encoding, text

TEXTS = {"train": "a b a\n", "validation": "b what\n", "test": "a\n"}


class _Source(encoding.Source):
    """A source that counts how often it is read."""

    def __init__(self, texts=TEXTS, on_read=lambda: None, **fields):
        object.__setattr__(self, "reads", [])

        def open_(split):
            self.reads.append(split)
            on_read()
            return io.BytesIO(texts[split].encode())

        labels = {split: f"{split}.txt" for split in texts}
        super().__init__("corpus", labels, dict(texts), open_, **fields)


def _folder(cache):
    (folder,) = (cache / "encoded").glob("corpus-*")
    return folder


def _assert_right(vocabulary, ids):
    assert vocabulary.tokens == ("a", "b", "<eos>", "<unk>")
    assert_array_equal(ids["train"], [0, 1, 0, 2])
    assert_array_equal(ids["validation"], [1, 3, 2])
    assert_array_equal(ids["test"], [0, 2])


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
    source = _Source(
        on_read=lambda: seen.extend((tmp_path / "encoded").glob("corpus-*"))
    )
    encoding.encoded(source, tmp_path)
    assert not seen
    assert sorted(path.name for path in _folder(tmp_path).iterdir()) == [
        "meta.json", "test.ids", "train.ids", "validation.ids", "vocabulary.txt",
    ]  # fmt: skip


def test_text_at_fault_leaves_nothing(tmp_path):
    for _ in range(2):
        with refuses("test.txt holds 1 tokens"):
            encoding.encoded(_Source(TEXTS | {"test": "\n"}), tmp_path)
        assert not [path for path in (tmp_path / "encoded").iterdir() if path.is_dir()]


@hypothesis.settings(max_examples=30)
@given(
    words=st.lists(
        st.sampled_from(["a", "bb", "ccc", "<unk>", "\n"]), min_size=8, max_size=60
    ),
    settings=st.sampled_from([{}, {"order": "frequency"}, {"minimum_count": 3}]),
)
def test_ids_are_the_same_whatever_the_block(words, settings, tmp_path_factory):
    source = _Source(TEXTS | {"train": " ".join(["a a a", *words])}, settings=settings)
    expected = encoding.encoded(source, tmp_path_factory.mktemp("expected"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", 7)
        found = encoding.encoded(source, tmp_path_factory.mktemp("cache"))
    assert found[0].tokens == expected[0].tokens
    for split, ids in expected[1].items():
        assert_array_equal(found[1][split], ids)


class _KilledError(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("name", ["mkdir", "open", "rename"])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_what_a_killed_process_leaves_is_in_nobodys_way(
    tmp_path, monkeypatch, name, calls
):
    original, left = getattr(pathlib.Path, name), [calls]

    def killed(path, *arguments, **others):
        if ".part" in str(path):
            left[0] -= 1
            if left[0] < 0:
                raise _KilledError
        return original(path, *arguments, **others)

    with monkeypatch.context() as patch, contextlib.suppress(_KilledError):
        patch.setattr(pathlib.Path, name, killed)
        # A killed process removes nothing.
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        encoding.encoded(_Source(), tmp_path)
    _assert_right(*encoding.encoded(_Source(), tmp_path))
    assert not list((tmp_path / "encoded").glob(".*.part"))


def test_a_large_text_says_how_far_it_has_come(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(time, "monotonic", itertools.count(step=11.0).__next__)
    encoding.encoded(_Source(TEXTS | {"train": "a b\n" * 2**20}), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    counted = [line for line in lines if "train" in line and "counted" in line]
    assert len(counted) > 2 and counted[1].endswith(": 2 MiB counted")
    assert any("train" in line and line.endswith("4 MiB written") for line in lines)


def test_changed_text_is_encoded_anew(tmp_path):
    encoding.encoded(_Source(), tmp_path)
    changed = _Source(TEXTS | {"test": "b b\n"})
    _, ids = encoding.encoded(changed, tmp_path)
    assert_array_equal(ids["test"], [1, 1, 2])
    vocabulary, _ = encoding.encoded(_Source(settings={"minimum_count": 2}), tmp_path)
    assert vocabulary.tokens == ("a", "<eos>", "<unk>")


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _age(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"source": {}}))


@pytest.mark.parametrize(
    "name, damage",
    [
        ("train.ids", _truncate),
        ("train.ids", _flip),
        ("test.ids", pathlib.Path.unlink),
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
    assert (
        "Encoding corpus again" in caplog.text and str(_folder(tmp_path)) in caplog.text
    )
    source.reads.clear()
    _assert_right(*encoding.encoded(source, tmp_path))
    assert not source.reads


def test_two_at_once_encode_once(tmp_path):
    """The second one waits for the lock, which is held as between two processes."""
    second = _Source()
    thread = threading.Thread(target=encoding.encoded, args=(second, tmp_path))
    started = []

    def start():
        if not started:
            started.append(thread.start())

    source = _Source(on_read=start)
    _assert_right(*encoding.encoded(source, tmp_path))
    thread.join(60)
    assert not thread.is_alive()
    assert not second.reads


@pytest.mark.parametrize(
    "split, content, message",
    [
        ("train", "", "train.txt holds no words"),
        ("train", "\n\n", "train.txt holds no words"),
        ("test", "", "test.txt holds 0 tokens; expected at least 2"),
    ],
)
def test_too_little_text(tmp_path, split, content, message):
    with refuses(message):
        encoding.encoded(_Source(TEXTS | {split: content}), tmp_path)


def test_token_that_only_evaluation_text_has(tmp_path):
    source = _Source(settings={"unknown": False})
    with refuses("validation.txt holds 'what', which .*<unk>: --config.cor"):
        encoding.encoded(source, tmp_path)


def test_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cache_dir=.*file.* cannot be written"):
        encoding.encoded(_Source(), tmp_path / "file")


def test_remote_cache_is_refused():
    with refuses("a local folder.*Received: cache_dir='gs://bucket/x'"):
        encoding.encoded(_Source(), "gs://bucket/x")
