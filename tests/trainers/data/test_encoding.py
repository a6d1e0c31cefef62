"""Tests of the cache of encoded ids."""

import io
import json
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        "meta.json", "test.ids", "train.ids", "validation.ids", "vocabulary.txt",
    ]  # fmt: skip


def test_text_at_fault_leaves_nothing_to_go_on_with(tmp_path):
    for _ in range(2):
        with pytest.raises(ValueError, match="test.txt holds 1 tokens"):
            encoding.encoded(_Source(TEXTS | {"test": "\n"}), tmp_path)
        assert not [path for path in (tmp_path / "encoded").iterdir() if path.is_dir()]


class _KilledError(Exception):
    """Stands for an end that nothing can prepare for."""


class _Killed(io.BytesIO):
    """A text whose reading ends the process at the n-th read, and that remembers its first seek."""

    def __init__(self, content, reads):
        super().__init__(content)
        self.left, self.start = reads, None

    def seek(self, position, whence=0):
        self.start = position if self.start is None else self.start
        return super().seek(position, whence)

    def read(self, size=-1):
        self.left -= 1
        if self.left < 0:
            raise _KilledError
        return super().read(size)


@given(
    words=st.lists(st.sampled_from(["a", "bb", "ccc", "<unk>", "\n"]), min_size=8, max_size=60),
    reads=st.integers(1, 30),
    save=st.integers(1, 60),
    settings=st.sampled_from([{}, {"order": "frequency"}, {"minimum_count": 3}]),
)
def test_stopped_anywhere_goes_on_to_the_same_ids(words, reads, save, settings, tmp_path_factory):
    texts = TEXTS | {"train": " ".join(["a", *words])}
    expected = encoding.encoded(
        _Source(texts, settings=settings), tmp_path_factory.mktemp("expected")
    )
    opened = []

    def open_(split):
        if split != "train":
            return io.BytesIO(texts[split].encode())
        opened.append(_Killed(texts["train"].encode(), reads + len(opened)))
        return opened[-1]

    source = _Source(texts, settings=settings)
    object.__setattr__(source, "open", open_)
    cache, found = tmp_path_factory.mktemp("cache"), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", 7)
        patch.setattr(encoding, "_SAVE_BYTES", save)
        patch.setattr(encoding, "_IDS", 5)
        while found is None:
            try:
                found = encoding.encoded(source, cache)
            except _KilledError:
                assert not list((cache / "encoded").glob("corpus-*"))
    starts = [file.start for file in opened]
    assert starts == sorted(starts)
    assert found[0].tokens == expected[0].tokens
    for split, ids in expected[1].items():
        np.testing.assert_array_equal(found[1][split], ids)


KILLED = """
import io, os, signal, sys
from tests.trainers.data import test_encoding
from trainers.data import encoding, text
text._BLOCK_BYTES, encoding._SAVE_BYTES = 64, 1024
class File(io.BytesIO):
    def read(self, size=-1):
        if self.tell() > 20_000:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(size)
source = test_encoding._Source(test_encoding.LONG)
object.__setattr__(source, "open", lambda split: File(test_encoding.LONG[split].encode()))
encoding.encoded(source, sys.argv[1])
"""
LONG = TEXTS | {"train": "".join(f"w{i % 97} w{i % 89}\n" for i in range(5000))}


def test_killed_process_is_gone_on_with(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    starts = []

    class File(io.BytesIO):
        def seek(self, position, whence=0):
            starts.append(position)
            return super().seek(position, whence)

    source = _Source(LONG)
    object.__setattr__(source, "open", lambda split: File(LONG[split].encode()))
    vocabulary, ids = encoding.encoded(source, tmp_path)
    assert 18_000 < starts[0] < 20_000
    assert [vocabulary.tokens[i] for i in ids["train"]] == LONG["train"].replace(
        "\n", " <eos> "
    ).split()


def _edit(path):
    path.write_text(path.read_text().replace('"w1"', '"w2"', 1))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("progress.json", lambda path: path.write_text("")),
        ("progress.json", lambda path: path.write_text(path.read_text()[:-40])),
        ("progress.json", lambda path: path.write_text("[]")),
        ("progress.json", lambda path: path.write_text('{"position": "far"}')),
        ("progress.json", lambda path: path.write_bytes(b"\xff")),
        ("progress.json", _edit),
        ("train.first", lambda path: path.write_bytes(path.read_bytes()[:200])),
        ("train.first", lambda path: path.write_bytes(path.read_bytes()[::-1])),
        ("train.first", lambda path: path.unlink()),
    ],
)
def test_a_damaged_record_of_a_stopped_encoding_begins_it_again(
    tmp_path, monkeypatch, caplog, name, damage
):
    monkeypatch.setattr(text, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(encoding, "_SAVE_BYTES", 1024)
    source = _Source(LONG)
    object.__setattr__(source, "open", lambda split: _Killed(LONG[split].encode(), 100))
    with pytest.raises(_KilledError):
        encoding.encoded(source, tmp_path)
    (part,) = (tmp_path / "encoded").glob(".*.part")
    damage(part / name)
    vocabulary, ids = encoding.encoded(_Source(LONG), tmp_path)
    assert [vocabulary.tokens[i] for i in ids["train"]] == LONG["train"].replace(
        "\n", " <eos> "
    ).split()
    assert "Encoding from the beginning again: " in caplog.text and name in caplog.text


@pytest.mark.parametrize(("name", "calls"), [("unlink", 0), ("unlink", 1), ("rename", 0)])
def test_killed_at_the_very_end_comes_to_it_again(tmp_path, monkeypatch, name, calls):
    original, left = getattr(pathlib.Path, name), [calls]

    def killed(*arguments):
        if not left[0]:
            raise _KilledError
        left[0] -= 1
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, name, killed)
        with pytest.raises(_KilledError):
            encoding.encoded(_Source(), tmp_path)
    _assert_right(*encoding.encoded(_Source(), tmp_path))


def test_changed_text_is_encoded_anew(tmp_path):
    encoding.encoded(_Source(), tmp_path)
    changed = _Source(TEXTS | {"test": "b b\n"})
    _, ids = encoding.encoded(changed, tmp_path)
    np.testing.assert_array_equal(ids["test"], [1, 1, 2])
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
    ("name", "damage"),
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
    assert "Encoding corpus again" in caplog.text and str(_folder(tmp_path)) in caplog.text
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
    ("split", "content", "message"),
    [
        ("train", "", "train.txt holds no words"),
        ("train", "\n\n", "train.txt holds no words"),
        ("test", "", "test.txt holds 0 tokens; expected at least 2"),
    ],
)
def test_too_little_text(tmp_path, split, content, message):
    with pytest.raises(ValueError, match=message):
        encoding.encoded(_Source(TEXTS | {split: content}), tmp_path)


def test_token_that_only_evaluation_text_has(tmp_path):
    source = _Source(settings={"unknown": False})
    with pytest.raises(
        ValueError, match="validation.txt holds 'what', which .*<unk>: --config.cor"
    ):
        encoding.encoded(source, tmp_path)


def test_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cache_dir=.*file.* cannot be written"):
        encoding.encoded(_Source(), tmp_path / "file")


def test_remote_cache_is_refused():
    with pytest.raises(ValueError, match="a local folder.*Received: cache_dir='gs://bucket/x'"):
        encoding.encoded(_Source(), "gs://bucket/x")
