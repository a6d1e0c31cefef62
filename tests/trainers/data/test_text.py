"""Tests of reading text files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refuses
from trainers.data import text

# Multi-byte characters, Windows line ends, other white space, blank lines.
PIECES = st.sampled_from(
    ["word", "é", "語", " ", "\n", "\r\n", "\t", "\u00a0", "<unk>"]
)


def _read(path):
    with path.open("rb") as file:
        blocks = [block.decode() for block in text.read_blocks(file, "file")]
    return "".join(blocks).replace("\n", " <eos> ").split()


@given(content=st.lists(PIECES).map("".join), block=st.integers(1, 8))
def test_equals_reading_lines_whatever_the_block(content, block, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "file.txt"
    path.write_bytes(content.encode())
    with path.open(encoding="utf-8") as lines:
        expected = [token for line in lines for token in [*line.split(), "<eos>"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", block)
        assert _read(path) == expected


@given(
    content=st.lists(PIECES.filter(lambda piece: "\r" not in piece)).map("".join),
    block=st.integers(1, 8),
)
def test_the_first_block_may_end_within_a_character(content, block, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "file.txt"
    path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", block)
        text.check(path)


def test_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes("\ufeffone two".encode())
    assert _read(path) == ["one", "two", "<eos>"]


@pytest.mark.parametrize("block", [4, 1 << 20])
def test_not_utf8(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text, "_BLOCK_BYTES", block)
    path = tmp_path / "file.txt"
    path.write_bytes(b"one two caf\xe9 three\n")
    with refuses("file is not UTF-8 text: byte 0xe9 in line 1, at offset 11"):
        _read(path)


@given(
    before=st.lists(PIECES).map("".join),
    wrong=st.sampled_from([b"\xe9 ", b"\xff\n", b"\0 "]),
    block=st.integers(1, 8),
)
def test_a_byte_that_is_no_text_has_its_line(before, wrong, block, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "file.txt"
    path.write_bytes(before.encode() + wrong + b"more\n")
    byte = f"byte {wrong[0]:#04x}" if wrong[0] else "a NUL byte"
    place = f"in line {1 + before.count(chr(10))}, at offset {len(before.encode())}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", block)
        with refuses(f"is not UTF-8 text: {byte} {place}[,;]"):
            _read(path)
